"""Whether the learner got there, and what is missing.

The loader that came with the lab and the learner's own are run anew, in turns, by processes that take nothing
from the learner's folder but the file that makes the loader and what it imports.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unstarve.errors import UsageError
from unstarve.intervals import half_width, turn_order
from unstarve.labs.harness_process import told_by
from unstarve.labs.lab import Fault, Given
from unstarve.labs.started import STATE, Started
from unstarve.model import Cause
from unstarve.words import percent, times, times_interval

_ROUNDS = 3
_EPOCHS = 4
FED = "fed"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of one check."""

    passed: bool
    lines: tuple[str, ...]
    """What was found and what is missing, one sentence each."""
    committed: bool = False
    """The verdict was committed by this very check."""
    measured: dict[str, Any] = field(default_factory=dict)


Progress = Callable[[str], None]


def judge(started: Started, progress: Progress = lambda _: None) -> Judgement:
    """Check a lab. Raises `UsageError` for an answer that is none."""
    fault = started.lab.fault(started.seed)
    verdict = None if fault is None else _verdict(started)
    if fault is not None and verdict is not None and started.verdict is None:
        return _commit(started, verdict)
    lines = list(_wrong_answers(started))
    if fault is None:
        return Judgement(not lines, tuple(lines))
    if verdict is None:
        return Judgement(False, ("Write your verdict into answers.toml, then check again.", *lines))
    if started.verdict != fault.verdict:
        said = f"Your verdict, {started.verdict}, is not what slows this training down."
        if started.lab.own_verdicts:
            said = f"Your verdict, {started.verdict}, is wrong."
        again = f"Start over with another draw: unstarve lab start --force {started.lab.name}"
        return Judgement(False, (said, again, *lines))
    if started.lab.trial is None:
        judgement = _judge_loader(started, fault, progress)
    else:
        judgement = Judgement(*started.lab.trial(started.folder))
    return Judgement(judgement.passed and not lines, (*judgement.lines, *lines), measured=judgement.measured)


def _wrong_answers(started: Started) -> Iterator[str]:
    answers = started.answers() if started.lab.questions else {}
    for question in started.lab.questions:
        answer = answers.get(question.key, "")
        if answer == "":
            yield f"{question.key} in answers.toml is still empty."
            continue
        wrong = question.wrong(Given(answer, started.folder, started.seed))
        if wrong is not None:
            yield f"{question.key}: {wrong}"


def _verdict(started: Started) -> str | None:
    said = str(started.answers().get("verdict", "")).strip().lower()
    known = started.lab.own_verdicts or (*(cause.value for cause in Cause), FED)
    if said and said not in known:
        kind = "verdict" if started.lab.own_verdicts else "cause"
        raise UsageError(f"{said} in answers.toml is no {kind}; choose one of {', '.join(known)}")
    return said or None


def _commit(started: Started, verdict: str) -> Judgement:
    if not started.is_untouched():
        return Judgement(
            False,
            (
                f"{started.lab.edited} has changed already. Commit your verdict before you fix anything: it "
                "is a diagnosis, not a description of the fix.",
                f"Start over: unstarve lab start --force {started.lab.name}",
            ),
        )
    started.commit(verdict)
    said = f"Your verdict is committed: {verdict}. Now change {started.lab.edited}, and check again."
    return Judgement(False, (said,), committed=True)


def _judge_loader(started: Started, fault: Fault, progress: Progress) -> Judgement:
    if fault.least_speedup is None:
        if started.is_untouched():
            return Judgement(
                True, ("Right: the data is not guilty, and there is nothing to fix in the loader.",)
            )
        return Judgement(False, (f"The data is not guilty: leave {started.lab.edited} as it was.",))
    slow, fast = _measure(started, progress)
    if isinstance(fast, str):
        return Judgement(False, (fast,))
    ratios = [a["seconds"] / b["seconds"] for a, b in zip(slow, fast, strict=True)]
    mean, around = statistics.mean(ratios), half_width(ratios)
    low, high = mean - around, mean + around
    waits = statistics.median(one["wait_share"] for one in fast)
    lines = [
        f"With your loader, training is {times_interval(mean, low, high, 2)} as fast and waits "
        f"{percent(waits)} of the time."
    ]
    passed = True
    if {(one["digest"], one["samples"]) for one in (*slow, *fast)} != {
        (slow[0]["digest"], slow[0]["samples"])
    }:
        lines.append("But it does not deliver the same samples as the slow one.")
        passed = False
    if low < fault.least_speedup:
        lines.append(
            f"The goal is {times(fault.least_speedup, 1)}, and the whole interval has to lie above it."
        )
        passed = False
    if waits > started.lab.most_wait_share and passed:
        lines.append(f"The goal is to wait less than {percent(started.lab.most_wait_share)} of the time.")
        passed = False
    return Judgement(
        passed, tuple(lines), measured={"speedup": mean, "low": low, "high": high, "wait_share": waits}
    )


def _measure(started: Started, progress: Progress) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | str]:
    """Run both loaders in turns; instead of the learner's results, why there are none."""
    lab = started.lab
    assert lab.edited is not None
    with tempfile.TemporaryDirectory(prefix="unstarve-lab-") as temporary:
        original = Path(temporary)
        for name in lab.files:
            shutil.copyfile(lab.folder / name, original / name)
        shutil.copyfile(started.folder / STATE, original / STATE)
        results: dict[Path, list[dict[str, Any]]] = {original / lab.slow: [], started.folder / lab.edited: []}
        for number in range(_ROUNDS):
            for file in turn_order(list(results), number):
                progress(f"round {number + 1} of {_ROUNDS}: {file.name}")
                told = _run(file, started)
                if isinstance(told, str):
                    return [], told
                results[file].append(told)
    slow, fast = results.values()
    return slow, fast


def _run(file: Path, started: Started) -> dict[str, Any] | str:
    from unstarve.labs.workload import Workload  # needs torch

    return told_by("unstarve.labs.harness", file, _EPOCHS, Workload(file.parent).step_ms())
