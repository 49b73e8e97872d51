"""`unstarve import FILE`: a profiler's file becomes a run, with the same report as any other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unstarve.api import diagnose, load_run, reading, views_of
from unstarve.cli.examples import examples
from unstarve.cli.output_files import JsonTo, check_json, write_file, write_json
from unstarve.importers.import_file import import_file
from unstarve.present.exports import report_json as json_view
from unstarve.present.page.html_page import report_page
from unstarve.present.terminal.report_card import print_report
from unstarve.present.terminal.screen import screen
from unstarve.progress import stages, stderr_console
from unstarve.record import format as f
from unstarve.words import percent, printable


@examples(
    ("Report on an export of Nsight Systems:", "unstarve import profile.sqlite"),
    (
        "Report on a torch.profiler trace, as a page:",
        "unstarve import run.pt.trace.json.gz --html report.html",
    ),
)
def import_(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="An nsys SQLite export, or a torch.profiler trace (.json or .json.gz).",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="RUN", help="Run file to write. Default: FILE's name."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace an existing run file.")] = False,
    json_to: JsonTo = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write the report as a self-contained HTML page."),
    ] = None,
) -> None:
    """Read what another profiler recorded, and report on it as on any run. Needs no torch.

    Says how busy each GPU was, how long it starved for data or copies, and what the host was doing meanwhile.
    """
    check_json(json_to)
    run = output or Path(_plain_name(file) + f.SUFFIX)
    with stages(stderr_console()) as shown:
        shown.stage(f"reading {file}")
        total = max(file.stat().st_size, 1) if file.is_file() else 1
        import_file(file, run, lambda done: shown.detail(percent(min(done / total, 1.0))), force=force)
    recorded = load_run(run)
    with reading(recorded):
        diagnosis = diagnose(recorded)
        if json_to is not None:
            write_json(json_to, json_view.report(diagnosis))
        if html is not None:
            write_file(html, report_page(diagnosis, views_of(recorded)))
        if json_to is html is None:
            print_report(diagnosis, screen())
    typer.echo(printable(f"run file: {run}"), err=True)


def _plain_name(file: Path) -> str:
    """The file's name without the suffixes of traces: ``run.pt.trace.json.gz`` is ``run``."""
    name = file.name
    for suffix in (".gz", ".json", ".trace", ".pt", ".sqlite", ".db"):
        name = name.removesuffix(suffix)
    return name or "imported"
