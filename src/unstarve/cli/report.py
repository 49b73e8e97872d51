"""`unstarve report RUN`: what a run file says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from unstarve.api import diagnose, load_run, reading, series_of, views_of
from unstarve.cli.json_output import STDOUT, JsonTo, write_json
from unstarve.cli.pages import write_page
from unstarve.errors import UsageError
from unstarve.model import Diagnosis, Series
from unstarve.present.exports import report_json as json_view
from unstarve.present.exports.markdown import markdown
from unstarve.present.exports.prometheus import exposition, report_metrics
from unstarve.present.page.html_page import report_page
from unstarve.present.terminal.report_card import print_report
from unstarve.present.terminal.screen import screen
from unstarve.words import printable


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run file, finished or still being recorded.")],
    json_to: JsonTo = None,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the report as Markdown, for a pull request.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write the report as one self-contained page."),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option("--tensorboard", metavar="DIR", help="Write the steps as TensorBoard scalars."),
    ] = None,
    prometheus: Annotated[
        Path | None,
        typer.Option(
            "--prometheus", metavar="FILE", help="Write the totals for node exporter's textfile folder."
        ),
    ] = None,
) -> None:
    """Print the verdict of a recorded run. Needs no torch."""
    if json_to == STDOUT and as_markdown:
        raise UsageError("--json - and --markdown exclude each other: both print to standard output")
    recorded = load_run(run)
    with reading(recorded):
        diagnosis = diagnose(recorded)
        if html is not None:
            write_page(html, report_page(diagnosis, views_of(recorded)))
        if prometheus is not None:
            write_page(prometheus, exposition(report_metrics(diagnosis, series_of(recorded))))
        if tensorboard is not None:
            _write_events(tensorboard, diagnosis, series_of(recorded))
        if json_to is not None:
            write_json(json_to, json_view.report(diagnosis))
        if as_markdown:
            typer.echo(markdown(diagnosis), nl=False)
        elif html is tensorboard is prometheus is json_to is None:
            print_report(diagnosis, screen())


def _write_events(folder: Path, diagnosis: Diagnosis, series: Sequence[Series]) -> None:
    from unstarve.present.exports.tensorboard import write_events  # tensorboard is an extra

    count = write_events(folder, diagnosis, series)
    where = printable(str(folder))
    typer.echo(
        f"written: {count} steps to {where}; look at them with: tensorboard --logdir {where}", err=True
    )
