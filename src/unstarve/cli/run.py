"""`unstarve run CMD…`: record a training, then print the verdict."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from unstarve.cli.examples import examples
from unstarve.cli.output_files import JsonTo
from unstarve.cli.recording import (
    Command,
    Force,
    HtmlFile,
    Output,
    Quiet,
    Request,
    With,
    record_and_show,
)
from unstarve.errors import UsageError
from unstarve.model.engine_names import Engine
from unstarve.model.launch_settings import ProfileSettings
from unstarve.outputs import check_output
from unstarve.record.fold import DEFAULT_MAX_BYTES, SMALLEST_MAX_BYTES


class OnHang(StrEnum):
    """What to do when no batch comes."""

    REPORT = "report"
    RAISE = "raise"


@examples(
    ("Record a training, with its own arguments:", "unstarve run train.py --epochs 3"),
    ("Record a module, and write the report as a page:", "unstarve run --html report.html -m package.train"),
    ("Record two ranks:", "unstarve run torchrun --nproc-per-node 2 train.py"),
    ("Use settings that `unstarve tune --save` found:", "unstarve run --with tuned.toml train.py"),
)
def run(
    command: Command,
    output: Output = None,
    json_to: JsonTo = None,
    html_file: HtmlFile = None,
    steps: Annotated[
        int | None,
        typer.Option("--steps", min=1, metavar="N", help="Record N steps, then continue unrecorded."),
    ] = None,
    stop_after: Annotated[
        int | None,
        typer.Option(
            "--stop-after",
            min=1,
            metavar="N",
            help="End the command cleanly after N steps (batches delivered).",
        ),
    ] = None,
    engine: Annotated[
        Engine | None,
        typer.Option(
            "--engine",
            help="Run the command's torch loaders on one of unstarve's engines: same batches, faster. "
            "auto picks the fastest engine that fits.",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="[=WAIT,WARMUP,ACTIVE,REPEAT]",
            help="Run torch.profiler over a few steps: by default 3, after 5 and a warm-up of 1. "
            "The trace, with the workers in it, is written next to the run file.",
        ),
    ] = None,
    profile_stacks: Annotated[
        bool, typer.Option("--profile-stacks", help="With --profile: record the Python stack of operators.")
    ] = False,
    memory_snapshot: Annotated[
        Path | None,
        typer.Option(
            "--memory-snapshot",
            metavar="FILE",
            help="With --profile, on CUDA: write the window's allocations for pytorch.org/memory_viz.",
        ),
    ] = None,
    io: Annotated[
        bool,
        typer.Option(
            "--io",
            help="Count opens, reads, bytes and time for each file and process; name slow patterns.",
        ),
    ] = False,
    perf: Annotated[
        bool,
        typer.Option(
            "--perf",
            help="Count cycles, instructions, cache and TLB misses of loading and of the step.",
        ),
    ] = False,
    ledger: Annotated[
        bool,
        typer.Option(
            "--ledger",
            help="Digest every delivered sample, to find repetitions in data that has no indices.",
        ),
    ] = False,
    copies: Annotated[
        bool,
        typer.Option(
            "--copies",
            help="On CUDA: time copies to the GPU in a few steps, and say from which memory they come.",
        ),
    ] = False,
    memory: Annotated[
        bool,
        typer.Option(
            "--memory",
            help="Look at memory more often, and name the lines whose allocations stay. Slows Python code "
            "for 20 seconds.",
        ),
    ] = False,
    max_size: Annotated[
        int,
        typer.Option(
            "--max-size",
            metavar="MB",
            min=SMALLEST_MAX_BYTES >> 20,
            help="Largest run file. In a longer training, the least informative steps become sums.",
        ),
    ] = DEFAULT_MAX_BYTES >> 20,
    hang_after: Annotated[
        float,
        typer.Option(
            "--hang-after",
            min=0,
            metavar="SECONDS",
            help="Without a batch for this long, show where every worker and the training process are. "
            "0: never.",
        ),
    ] = 60.0,
    on_hang: Annotated[
        OnHang,
        typer.Option("--on-hang", help="report: only say so. raise: also end the wait with an exception."),
    ] = OnHang.REPORT,
    settings_file: With = None,
    quiet: Quiet = False,
    force: Force = False,
) -> None:
    """Record a training and report whether it waits for data.

    The command runs as it would alone: same batches, same output, same exit code. The report goes to
    standard error. If the command fails, the report says why.

    A script or -m MODULE runs with the Python that unstarve is installed in; to use the active one:
    `unstarve run python train.py`.
    """
    if steps is not None and stop_after is not None:
        raise UsageError("give --steps or --stop-after, not both; --stop-after N also records N steps")
    if profile_stacks and profile is None:
        raise UsageError("--profile-stacks needs --profile")
    if memory_snapshot is not None and profile is None:
        raise UsageError("--memory-snapshot needs --profile")
    check_output(memory_snapshot)
    chosen = None if engine is None else engine.value
    record_and_show(
        Request(
            command,
            "run",
            output,
            json_to,
            html_file,
            quiet,
            force,
            steps=steps,
            stop_after=stop_after,
            engine=chosen,
            profile=None
            if profile is None
            else profile_window(profile, stacks=profile_stacks, memory_snapshot=memory_snapshot),
            io=io,
            perf=perf,
            ledger=ledger,
            copies=copies,
            memory=memory,
            max_bytes=max_size << 20,
            settings_file=settings_file,
            hang_after_s=hang_after,
            raises_on_hang=on_hang is OnHang.RAISE,
        )
    )


def profile_window(text: str, *, stacks: bool, memory_snapshot: Path | None = None) -> ProfileSettings:
    """The window that ``WAIT,WARMUP,ACTIVE,REPEAT`` names; missing numbers have their defaults."""
    names = ("wait", "warmup", "active", "repeat")
    words = text.split(",") if text else []
    if len(words) > len(names) or not all(word.strip().isdecimal() for word in words):
        raise UsageError(f"--profile takes up to four numbers of steps, such as 5,1,3,1; got {text!r}")
    numbers = dict(zip(names, map(int, words), strict=False))
    if numbers.get("active") == 0 or numbers.get("repeat") == 0:
        raise UsageError(f"--profile must have at least one active step and one window; got {text!r}")
    snapshot = None if memory_snapshot is None else str(memory_snapshot.absolute())
    return ProfileSettings(**numbers, stacks=stacks, memory_snapshot=snapshot)
