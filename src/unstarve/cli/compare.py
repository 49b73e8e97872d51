"""`unstarve compare A B`: two runs side by side, and whether they differ by more than noise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unstarve import api
from unstarve.cli.examples import examples
from unstarve.cli.output_files import JsonTo, check_one_prints, write_file, write_json
from unstarve.present.exports import report_json as json_view
from unstarve.present.page.html_page import comparison_page
from unstarve.present.terminal.report_card import print_comparison
from unstarve.present.terminal.screen import screen


@examples(
    ("Compare before and after:", "unstarve compare before.unstarve after.unstarve"),
    (
        "Fail a CI job if training became slower:",
        'unstarve compare main.unstarve branch.unstarve --fail-if "throughput<-5%"',
    ),
)
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="The baseline run.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The run to judge.")],
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="EXPR",
            help='Exit 1 if this holds for B: "throughput<-5%" (change against A), "wait_share>+3pt", '
            '"step_p95>200". Repeatable.',
        ),
    ] = None,
    json_to: JsonTo = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write both runs side by side as one page."),
    ] = None,
) -> None:
    """Compare two recorded runs; exit 1 if a gate fails.

    A throughput change within the noise of the two runs does not fail a gate.
    """
    check_one_prints(json=json_to, html=html)
    result = api.compare(a, b, fail_if or ())
    if html is not None:
        views_a, views_b = (api.views_of(api.load_run(path)) for path in (a, b))
        write_file(html, comparison_page(result, views_a, views_b))
    if json_to is not None:
        write_json(json_to, json_view.comparison(result))
    elif html is None:
        print_comparison(result, screen())
    if any(gate.failed for gate in result.gates):
        raise typer.Exit(1)
