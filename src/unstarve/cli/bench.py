"""`unstarve bench`: the fixes against torch's own DataLoader, on this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer
from rich.console import Console
from rich.status import Status

from unstarve.cli.examples import examples
from unstarve.cli.output_files import STDOUT, JsonTo, check_json, write_json
from unstarve.cli.ray_option import RayAddress
from unstarve.cluster import joined
from unstarve.errors import StoppedError, UsageError
from unstarve.model import Part
from unstarve.outputs import check_output
from unstarve.present.exports import report_json
from unstarve.present.exports.figures import check_figure_name, speedup_figure
from unstarve.present.terminal.bench_table import print_part, print_summary

if TYPE_CHECKING:
    from unstarve.benchmark.bench_plan import BenchPlan, Sizes

_SEVERAL = 5
_SIZED_PART = "rows"
"""The part that --batch-size or --dataset-size alone measures."""


@examples(
    ("Measure everything on this machine:", "unstarve bench"),
    ("Try it on little data:", "unstarve bench --quick --part rows"),
    ("Measure the nodes of a Ray cluster:", "unstarve bench --ray 10.0.0.1:6379"),
    ("Use five seeds and keep the numbers:", "unstarve bench --multi-seed --json bench.json"),
)
def bench(
    part: Annotated[
        list[str] | None,
        typer.Option("--part", metavar="A,B…", help="Letters or names of parts. [default: all]"),
    ] = None,
    multi_seed: Annotated[
        bool,
        typer.Option("--multi-seed", help=f"Use {_SEVERAL} seeds, instead of one seed three times."),
    ] = False,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="N|N,N…", help="How many seeds, or which.")
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option("--batch-size", min=1, help="Batch size in memory; without --part, only part a runs."),
    ] = None,
    dataset_size: Annotated[
        str | None,
        typer.Option(
            "--dataset-size",
            metavar="ROWS,COLUMNS",
            help="Table in memory; without --part, only part a runs.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Little data, few rounds: a smoke test.")] = False,
    json_to: JsonTo = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the speed-ups as .png or .svg.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", metavar="DIR", help="Folder for temporary files: put it on the disk to measure."
        ),
    ] = None,
    ray: RayAddress = None,
) -> None:
    """Measure the fixes against torch's own DataLoader: time per batch, speed-up, memory, targets.

    All ways to load take turns, so a busy machine slows them alike. Ctrl-C prints what was measured so far.
    With --ray, every node of a Ray cluster is measured, once its CPUs are free.
    """
    from unstarve.benchmark.run_benchmark import run

    plan = _plan(part, multi_seed, seeds, batch_size, dataset_size, quick, folder)
    check_json(json_to)
    if ray is not None:
        _bench_nodes(ray, plan, json_to, plot)
        return
    check_figure_name(plot)
    check_output(plot)
    alone = json_to == STDOUT
    with BenchProgress(Console(), Console(stderr=True), tables=not alone) as shown:
        result = run(plan, shown)
    if not alone:
        print_summary(result, Console())
    if json_to is not None:
        write_json(json_to, report_json.bench(result))
    if plot is not None:
        speedup_figure(result, plot)
    if result.interrupted:
        raise typer.Exit(130)


def _bench_nodes(address: str, plan: BenchPlan, json_to: Path | None, plot: Path | None) -> None:
    from unstarve.benchmark.bench_nodes import run_on_nodes

    if plot is not None:
        raise UsageError("--plot draws the results of one machine: leave it out with --ray")
    out = Console()
    with joined(address) as cluster, BenchProgress(out, Console(stderr=True), tables=False) as shown:
        results = run_on_nodes(plan, cluster, shown)
    if not results:
        raise StoppedError("stopped before a part was measured")
    if json_to != STDOUT:
        for name, result in results.items():
            out.rule(name)
            for part in result.parts:
                print_part(part, out)
            print_summary(result, out)
    if json_to is not None:
        write_json(json_to, report_json.bench_nodes(results))
    if any(result.interrupted for result in results.values()):
        raise typer.Exit(130)


class BenchProgress:
    """Shows on a terminal what is being measured, and prints each part's table when it is done."""

    def __init__(self, out: Console, progress: Console, *, tables: bool) -> None:
        self._out = out
        self._progress = progress
        self._tables = tables
        self._status: Status | None = None
        self._part = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def begins(self, what: str, part: int, parts: int) -> None:
        """`what` is being measured, in part `part` of `parts`."""
        text = f"part {part} of {parts} · {what}"
        if not self._progress.is_terminal:
            if part != self._part:  # in a log, one line per part is enough
                self._progress.print(f"unstarve: {text}", markup=False, highlight=False, soft_wrap=True)
        elif self._status is None:
            self._status = self._progress.status(text)
            self._status.start()
        else:
            self._status.update(text)
        self._part = part

    def ended(self, part: Part) -> None:
        """A part is done, or was interrupted."""
        if self._tables:
            print_part(part, self._out)


def _plan(
    part: list[str] | None,
    multi_seed: bool,
    seeds: str | None,
    batch_size: int | None,
    dataset_size: str | None,
    quick: bool,
    folder: Path | None,
) -> BenchPlan:
    from unstarve.benchmark.bench_plan import QUICK, BenchPlan, Sizes

    sizes = QUICK if quick else Sizes()
    if batch_size is not None:
        sizes = replace(sizes, row_batch=batch_size, image_batch=batch_size)
    if dataset_size is not None:
        sizes = _sized(sizes, dataset_size)
    words = tuple(word for words in part or () for word in words.split(",") if word)
    if not words and (batch_size is not None or dataset_size is not None):
        words = (_SIZED_PART,)
    return BenchPlan(words, _seeds(seeds, multi_seed, quick), sizes, quick, memory=not quick, folder=folder)


def _sized(sizes: Sizes, text: str) -> Sizes:
    try:
        rows, columns = (int(word) for word in text.split(","))
    except ValueError:
        rows = columns = 0
    if rows < 1 or columns < 1:
        raise UsageError(f"--dataset-size must be ROWS,COLUMNS, such as 5000,100, got {text!r}")
    return replace(sizes, rows=rows, columns=columns)


def _seeds(text: str | None, multi_seed: bool, quick: bool) -> tuple[int, ...]:
    if text is None:
        return tuple(range(_SEVERAL)) if multi_seed else (0,) * (2 if quick else 3)
    try:
        numbers = tuple(int(word) for word in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 0 or numbers == (0,):
        raise UsageError(
            f"--seeds must be a number of seeds, such as 5, or a list, such as 1,7,42, got {text!r}"
        )
    return tuple(range(numbers[0])) if len(numbers) == 1 else numbers
