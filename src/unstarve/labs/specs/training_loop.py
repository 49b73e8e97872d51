"""Lab 5."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from time import perf_counter

from unstarve.intervals import half_width, turn_order
from unstarve.labs.lab import Fault, Given, Lab, Question
from unstarve.labs.original import original
from unstarve.labs.turns import ANSWERS, Results, Speedup, contradicts, speedup
from unstarve.model.profile import Profile
from unstarve.words import percent

_PHASES = ("data", "forward", "backward", "optimizer")
_SHARE_WITHIN = 0.2
_CALLS_WITHIN = 0.05
_WAIT, _WARMUP, _ACTIVE = 5, 2, 6
_ROUNDS = 5


def _wrong_share(given: Given) -> str | None:
    answer = _number(given.answer)
    if answer is None or not 0 <= answer <= 100:
        return "write a number from 0 to 100."
    found = _profiled(given.folder, given.seed)
    drawn = LAB.fault(given.seed)
    assert drawn is not None
    seconds = {phase.name: phase.seconds for phase in found.phases}
    share = seconds[drawn.verdict] / sum(seconds.values())
    if abs(answer / 100 - share) > _SHARE_WITHIN:
        return f"{percent(answer / 100)} is not what the check finds when it profiles the same steps."
    return None


def _wrong_calls(given: Given) -> str | None:
    answer = _number(given.answer)
    if answer is None:
        return "write a number."
    found = _profiled(given.folder, given.seed)
    calls = max(use.calls for use in found.operators) / _ACTIVE
    if abs(answer - calls) > _CALLS_WITHIN * calls:
        return "no: sort the operators by calls, take the first, and divide by the number of profiled steps."
    return None


def _wrong_mixed(given: Given) -> str | None:
    answer = str(given.answer).strip().lower()
    if answer not in ANSWERS:
        return "write faster, slower or same."
    mixed = _mixed(given.folder, given.seed)
    if not contradicts(answer, mixed.low, mixed.high):
        return None
    said = "as fast as full precision" if answer == "same" else answer
    return f"measured in turns, mixed precision is not {said} here."


def _wrong_tensorboard(given: Given) -> str | None:
    from unstarve.errors import ProfileError
    from unstarve.importers.torch_trace import read_torch_trace

    folder = given.folder / str(given.answer)
    traces = sorted(folder.glob("*.pt.trace.json*"))
    if not traces:
        return f"{folder} has no trace, that is, no file NAME.pt.trace.json or NAME.pt.trace.json.gz."
    try:
        capture = read_torch_trace(traces[-1], lambda done: None)
    except ProfileError as error:
        return f"the trace cannot be read: {error}."
    return None if len(capture.steps) else f"{traces[-1].name} has no profiled steps."


LAB = Lab(
    name="training-loop",
    title="A training loop under the profiler",
    goal="Find the phase that takes most of a step, make it fast, and see what mixed precision does.",
    minutes=2,
    files=("README.md", "slow_training.py", "fast_training.py", "profile_training.py", "analysis.md"),
    slow="slow_training.py",
    edited="fast_training.py",
    harness="unstarve.labs.versions",
    faults=tuple(Fault(phase, phase, 1.5) for phase in _PHASES),
    verdict_text="Which phase slows the step down: data, forward, backward or optimizer?\n"
    "Commit it with `unstarve lab check` before you change anything.",
    questions=(
        Question(
            "share",
            "How much of a profiled step of slow_training.py does this phase take?\n"
            "In percent, a number from 0 to 100; right within 20 points.",
            _wrong_share,
        ),
        Question(
            "calls",
            "How often does one step of slow_training.py call the operator that is called most often?\n"
            "Right within 5%.",
            _wrong_calls,
        ),
        Question(
            "mixed",
            "Is slow_training.py with --mixed faster, slower or the same on this machine?\n"
            "Up to 10% is the same. Write faster, slower or same.",
            _wrong_mixed,
        ),
        Question(
            "tensorboard",
            "Into which folder did you export a trace for TensorBoard? Relative to the lab's folder.",
            _wrong_tensorboard,
        ),
    ),
    hints=(
        "`python profile_training.py slow` prints the phases of a step. Which one is the largest?",
        "`unstarve report full.unstarve --ops --sort calls` lists operators by calls, over all 6 steps.",
        "`unstarve compare full.unstarve mixed.unstarve` says whether the speed differs, and in which "
        "operators.",
        "Only one of four things has to change: __getitem__ (average a whole tensor, not a list), Recall "
        "(keys and values never change: multiply them once), GateGradient.backward (add up the gates first) "
        "or RowSGD.step (subtract a whole tensor, not its rows).",
    ),
)


@lru_cache(maxsize=1)
def _profiled(folder: Path, seed: int) -> Profile:
    """The training that came with the lab, profiled anew. The seed is what the folder's state says."""
    with original(LAB) as slow:
        from unstarve.evaluate.profiling.profile_block import profile

        with profile(wait=_WAIT, warmup=_WARMUP, active=_ACTIVE) as profiled:
            slow.train(folder, number=seed, after_step=profiled.step)
    return profiled.result


@lru_cache(maxsize=1)
def _mixed(folder: Path, seed: int) -> Speedup:
    """How much faster mixed than full precision is, measured in turns."""
    results: dict[bool, Results] = {False: [], True: []}
    with original(LAB) as slow:
        for number in range(_ROUNDS + 1):  # the first warms up
            for mixed in turn_order((False, True), number):
                began = perf_counter()
                slow.train(folder, number=seed, mixed=mixed).cpu()  # waits for the GPU
                results[mixed].append({"seconds": perf_counter() - began})
    return speedup(results[False][1:], results[True][1:], half_width)


def _number(answer: object) -> float | None:
    try:
        number = float(str(answer).removesuffix("%"))
    except ValueError:
        return None
    return number if math.isfinite(number) else None
