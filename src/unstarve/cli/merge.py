"""`unstarve merge RUN…`: run files of several nodes → one, and its report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unstarve.api import diagnose, load_run, reading, views_of
from unstarve.cli.examples import examples
from unstarve.cli.output_files import STDOUT, JsonTo, write_file, write_json
from unstarve.cli.ray_option import RayAddress
from unstarve.cluster import joined
from unstarve.errors import RunExistsError, UsageError
from unstarve.outputs import check_output
from unstarve.present.exports import report_json as json_view
from unstarve.present.page.html_page import report_page
from unstarve.present.terminal.report_card import print_report
from unstarve.present.terminal.screen import screen
from unstarve.record.merge import merge as merge_runs
from unstarve.words import printable


@examples(
    (
        "Merge the runs of two nodes and print the report:",
        "unstarve merge node0.unstarve node1.unstarve",
    ),
    ("Choose the name of the merged run:", "unstarve merge node*.unstarve -o job.unstarve"),
    (
        "Make a node's run small before you copy it:",
        "unstarve merge --fold node0.unstarve -o small0.unstarve",
    ),
    (
        "Merge runs that lie on the nodes of a Ray cluster:",
        "unstarve merge --ray 10.0.0.1:6379 /scratch/job.unstarve",
    ),
)
def merge(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN…", help="Run files of one job, one from each node.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="RUN", help="The run file to write.")
    ] = Path("merged.unstarve"),
    fold: Annotated[
        bool,
        typer.Option(
            "--fold",
            help="Fold the steps of each rank into windows, 4 KB for each minute; the rank that the others "
            "wait for stays in full. With more than 16 ranks this is done anyway.",
        ),
    ] = False,
    ray: RayAddress = None,
    json_to: JsonTo = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Also write the report as a self-contained HTML page."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace the run file if it exists.")] = False,
) -> None:
    """Merge the run files that `unstarve run` wrote on the nodes of one job, and print the job's report.

    With --ray, the nodes of a Ray cluster read the run files that they hold.
    """
    if output.exists() and not force:
        raise RunExistsError(
            f"{output} already exists; choose another name with -o, or replace it with --force"
        )
    if output.resolve() in [run.resolve() for run in runs]:
        raise UsageError(f"{output} is one of the runs to merge: choose another name with -o")
    check_output(output)
    if ray is None:
        merge_runs(runs, output, fold=fold)
    else:
        with joined(ray) as cluster:
            found = cluster.find_runs(runs)
            merge_runs([one.path for one in found], output, fold=fold, elsewhere=cluster.reader(found))
    merged = load_run(output)
    with reading(merged):
        diagnosis = diagnose(merged)
        if html is not None:
            write_file(html, report_page(diagnosis, views_of(merged)))
        if json_to is not None:
            write_json(json_to, json_view.report(diagnosis))
        if json_to != STDOUT:
            print_report(diagnosis, screen())
    typer.echo(printable(f"written: {output}"), err=True)
