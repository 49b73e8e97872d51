"""Lab 8."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from unstarve.importers.nsys_export import read_nsys_export
from unstarve.importers.summarize import profile_of
from unstarve.labs.lab import Given, Lab, Question
from unstarve.labs.nsys_recording import BOTTLENECKS, bottleneck_of, write_export
from unstarve.launch.nsys_command import FORK_OPTION
from unstarve.model.profile import Profile


@dataclass(frozen=True, slots=True)
class Truth:
    """What the exports of a seed say, written and read anew: nothing in the learner's folder counts."""

    bottleneck: str
    kernel_share: float
    """Of the time, 0 to 1."""
    copy_gb_s: float
    kernels_per_step: int
    workers: int
    speedup: float
    """With the right remedy."""


@lru_cache(maxsize=8)
def truth(seed: int) -> Truth:
    """Record and read both versions of the training that this seed draws."""
    bottleneck = bottleneck_of(seed)
    slow, fast = _profile(seed), _profile(seed, bottleneck)
    copies = [copy for copy in slow.copies if copy.kind == "HtoD"]
    readers = {call.process for call in slow.calls}
    return Truth(
        bottleneck,
        slow.devices[0].kernel_s / slow.window_s,
        sum(copy.bytes for copy in copies) / sum(copy.seconds for copy in copies) / 1e9,
        sum(kernel.calls for kernel in slow.kernels) // slow.steps,
        len(readers) - 1,  # the training reads its script
        slow.window_s / fast.window_s,
    )


def _profile(seed: int, remedy: str | None = None) -> Profile:
    with tempfile.TemporaryDirectory(prefix="unstarve-lab-") as temporary:
        path = Path(temporary) / "export.sqlite"
        write_export(path, seed, remedy)
        return profile_of(read_nsys_export(path, lambda _: None))


def _wrong_bottleneck(given: Given) -> str | None:
    said = str(given.answer).strip().lower()
    if said not in BOTTLENECKS:
        return f"choose one of {', '.join(BOTTLENECKS)}."
    if said != bottleneck_of(given.seed):
        return f"{said} is not what slows this training down. Where does the GPU's time go?"
    return None


def _wrong_option(given: Given) -> str | None:
    said = str(given.answer).strip().lstrip("-").partition("=")[0]
    if said != FORK_OPTION.lstrip("-"):
        return "this option does not show forked workers. Read the printed command again."
    return None


def _wrong_kernel_share(given: Given) -> str | None:
    said, right = _number(given.answer), 100 * truth(given.seed).kernel_share
    if abs(said - right) <= 2:
        return None
    return "this is not the share. Copies keep a GPU busy, too, and do not count here."


def _wrong_copy_speed(given: Given) -> str | None:
    if abs(_number(given.answer) / truth(given.seed).copy_gb_s - 1) <= 0.1:
        return None
    return "this is not the speed. Divide the size of the HtoD copies by their time."


def _wrong_kernel_count(given: Given) -> str | None:
    if _number(given.answer) == truth(given.seed).kernels_per_step:
        return None
    return "a step launches a different number of kernels. Divide all their calls by the steps."


def _wrong_workers(given: Given) -> str | None:
    if _number(given.answer) == truth(given.seed).workers:
        return None
    return "this is not the number of workers. The process that launches the kernels is not one."


def _wrong_speedup(given: Given) -> str | None:
    if abs(_number(given.answer) / truth(given.seed).speedup - 1) <= 0.05:
        return None
    return "this is not the gain. With the right remedy, `unstarve compare` prints it."


def _number(answer: Any) -> float:
    """The number in an answer, even if it was written as text; NaN if there is none."""
    try:
        return float(str(answer).strip().rstrip("%×x"))
    except ValueError:
        return math.nan


LAB = Lab(
    name="nsight",
    title="Nsight Systems",
    goal="Record a training with Nsight Systems, and read the export without its window.",
    minutes=1,
    files=("README.md", "train.py", "record.py", "query.py"),
    questions=(
        Question(
            "fork_option",
            "Which option of nsys makes forked workers visible?",
            _wrong_option,
        ),
        Question(
            "bottleneck",
            "slow.sqlite: what slows this training down?\n"
            '"loader" (the GPU waits for batches), "copies" (batches take long to get to the GPU),\n'
            '"launch" (the host launches kernels too slowly) or "gpu" (the kernels themselves).',
            _wrong_bottleneck,
        ),
        Question(
            "kernel_percent",
            "slow.sqlite: for what share of the time did kernels run, in percent? Within 2 points.",
            _wrong_kernel_share,
        ),
        Question(
            "copy_gb_per_s",
            "slow.sqlite: how fast are batches copied to the GPU, in GB/s (1e9 bytes)? Within 10%.",
            _wrong_copy_speed,
        ),
        Question(
            "kernels_per_step",
            "slow.sqlite: how many kernels does a step launch? Exactly.",
            _wrong_kernel_count,
        ),
        Question(
            "workers",
            "slow.sqlite: how many worker processes read files? Exactly.",
            _wrong_workers,
        ),
        Question(
            "speedup",
            "How many times as fast is fast.sqlite, with the remedy for your bottleneck? Within 5%.",
            _wrong_speedup,
        ),
    ),
    hints=(
        "`unstarve nsys --print train.py` prints the command for nsys, with the option for forked workers.",
        "`unstarve import slow.sqlite` reads the export. Begin with the table `devices`: kernels, exposed "
        "copies, starved and launch gaps are shares of the same time, and the largest names the bottleneck.",
        "GPU busy is not the same as GPU at work: a copy keeps the GPU busy while no kernel runs. "
        "`unstarve import slow.sqlite --force --json -` has all numbers; `profile.devices` and "
        "`profile.copies` are what you need.",
        "If `python record.py fast` makes next to no difference, the bottleneck in answers.toml is wrong. "
        "`unstarve compare slow.unstarve fast.unstarve` says how large the difference is.",
    ),
)
