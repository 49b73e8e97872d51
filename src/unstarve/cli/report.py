"""`unstarve report RUN`: a run file in the terminal, as a page, or for another program."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from unstarve.api import diagnose, load_run, reading, series_of, views_of
from unstarve.cli.examples import examples
from unstarve.cli.output_files import STDOUT, JsonTo, check_one_prints, write_file, write_json
from unstarve.errors import UsageError
from unstarve.importers.attach_profile import kept_trace
from unstarve.model import Diagnosis, Series
from unstarve.present.exports import report_json as json_view
from unstarve.present.exports.markdown import markdown
from unstarve.present.exports.prometheus import exposition, report_metrics
from unstarve.present.page.html_page import report_page
from unstarve.present.terminal.profile_tables import operator_table
from unstarve.present.terminal.report_card import print_report
from unstarve.present.terminal.screen import screen
from unstarve.words import printable


class Grouping(StrEnum):
    """What makes two operators the same."""

    name = "name"
    shape = "shape"
    stack = "stack"


class Sorting(StrEnum):
    """Times of an operator, and its calls."""

    self = "self"
    cpu = "cpu"
    device = "device"
    calls = "calls"


@examples(
    ("Print the verdict again:", "unstarve report train.unstarve"),
    ("Write a page to send to a colleague:", "unstarve report train.unstarve --html report.html"),
    ("Print everything as JSON, for a program or a bug report:", "unstarve report train.unstarve --json -"),
)
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run file, finished or still being recorded.")],
    json_to: JsonTo = None,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the report as Markdown, for a pull request.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write the report as a self-contained HTML page; - prints it."
        ),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            "--tensorboard",
            metavar="DIR",
            help="Write one TensorBoard event per step, and the profiler's trace if there is one.",
        ),
    ] = None,
    ops: Annotated[
        bool, typer.Option("--ops", help="Print the operators of a profiled run (run --profile, import).")
    ] = False,
    by: Annotated[
        Grouping, typer.Option("--by", help="With --ops: group operators by this.")
    ] = Grouping.name,
    sort: Annotated[
        Sorting, typer.Option("--sort", help="With --ops: largest first, by this time.")
    ] = Sorting.self,
    prometheus: Annotated[
        Path | None,
        typer.Option(
            "--prometheus",
            metavar="FILE",
            help="Write totals for node exporter's textfile collector; - prints them.",
        ),
    ] = None,
) -> None:
    """Print the verdict on a recorded run, or write it in another format. Needs no torch."""
    check_one_prints(json=json_to, html=html, prometheus=prometheus)
    if as_markdown and STDOUT in (json_to, html, prometheus):
        raise UsageError("--markdown prints to standard output, and so does -: give one of them")
    recorded = load_run(run)
    with reading(recorded):
        diagnosis = diagnose(recorded)
        if html is not None:
            write_file(html, report_page(diagnosis, views_of(recorded)))
        if prometheus is not None:
            write_file(prometheus, exposition(report_metrics(diagnosis, series_of(recorded))))
        if tensorboard is not None:
            _write_events(tensorboard, diagnosis, series_of(recorded))
        if json_to is not None:
            write_json(json_to, json_view.report(diagnosis))
        if ops:
            _print_operators(diagnosis, by, sort)
            return
        if as_markdown:
            typer.echo(markdown(diagnosis), nl=False)
        elif html is tensorboard is prometheus is json_to is None:
            print_report(diagnosis, screen())


def _print_operators(diagnosis: Diagnosis, by: Grouping, sort: Sorting) -> None:
    if diagnosis.profile is None:
        raise UsageError(f"{diagnosis.path} has no profile: record it with unstarve run --profile")
    table = operator_table(diagnosis.profile, by.value, sort.value)
    if table is None:
        hint = "; record them with --profile-stacks" if by is Grouping.stack else ""
        raise UsageError(f"{diagnosis.path} has no operators by {by.value}{hint}")
    screen().print(table)


def _write_events(folder: Path, diagnosis: Diagnosis, series: Sequence[Series]) -> None:
    from unstarve.present.exports.tensorboard import write_events, write_trace  # tensorboard is an extra

    count = write_events(folder, diagnosis, series)
    where = printable(str(folder))
    trace = kept_trace(Path(diagnosis.path))
    if trace is not None:
        kept = write_trace(folder, diagnosis, trace)
        typer.echo(printable(f"written: {kept}, for the plugin torch-tb-profiler"), err=True)
    typer.echo(f"written: {count} steps to {where}; view them with: tensorboard --logdir {where}", err=True)
