"""`unstarve whatif RUN`: predicted throughput over workers, prefetch and batch size."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unstarve import api
from unstarve.cli.examples import examples
from unstarve.cli.output_files import JsonTo, write_json
from unstarve.errors import UsageError
from unstarve.outputs import check_output
from unstarve.present.exports import report_json
from unstarve.present.exports.figures import check_figure_name, whatif_figure
from unstarve.present.terminal.screen import screen
from unstarve.present.terminal.whatif_table import print_whatif

_MOST_WORKERS = 256


@examples(
    ("Forecast other worker counts:", "unstarve whatif train.unstarve --workers 2,4,8"),
    (
        "Forecast batch sizes and draw the curve:",
        "unstarve whatif train.unstarve --batch-size 32,64 --plot whatif.png",
    ),
)
def whatif(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run file, finished or still being recorded.")],
    workers: Annotated[
        str, typer.Option("--workers", metavar="N,N,…", help="Worker counts.")
    ] = "0,1,2,4,8,16",
    prefetch: Annotated[
        str,
        typer.Option("--prefetch", metavar="N,N,…", help="Values of prefetch_factor. [default: as recorded]"),
    ] = "",
    batch_size: Annotated[
        str, typer.Option("--batch-size", metavar="N,N,…", help="Batch sizes. [default: as recorded]")
    ] = "",
    json_to: JsonTo = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Also draw the curve as .png or .svg.")
    ] = None,
) -> None:
    """Predict how fast training would be with other loader settings, without running it.

    The recorded batches run through a model of the loader and its cores, next to the recorded steps. Needs no
    torch.
    """
    check_figure_name(plot)
    check_output(plot)
    result = api.whatif(
        run,
        _numbers("--workers", workers, least=0, most=_MOST_WORKERS),
        _numbers("--prefetch", prefetch, least=1, most=1000),
        _numbers("--batch-size", batch_size, least=1, most=10**9),
    )
    if plot is not None:
        whatif_figure(result, plot)
    if json_to is not None:
        write_json(json_to, report_json.whatif(result, str(run)))
    else:
        print_whatif(result, screen())


def _numbers(option: str, text: str, *, least: int, most: int) -> list[int]:
    """``"0,1,2"`` as numbers."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all(word.isdigit() and least <= int(word) <= most for word in words):
        raise UsageError(
            f"{option} must be whole numbers from {least} to {most}, such as 1,2,4, got {text!r}"
        )
    return [int(word) for word in words]
