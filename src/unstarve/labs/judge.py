"""Whether the learner got there, and what is missing.

The version that came with the lab and the learner's own are run anew, in turns, by processes that take
nothing from the learner's folder but the learner's version and what it imports.
"""

from __future__ import annotations

import math
import shutil
import statistics
import tempfile
import time
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
"""As many again while these leave it open whether the goal is reached, but none begins after `_ENOUGH_S`."""
_ENOUGH_S = 80
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
    lab = started.lab
    faults = lab.drawn(started.seed)
    if not faults:
        lines = tuple(_wrong_answers(started))
        if lab.trial is not None and not lines:
            return Judgement(*lab.trial(started.folder, started.seed))
        return Judgement(not lines, lines)
    if lab.cases and started.prediction is None:
        return _predict(started)
    verdict = _causes(started, "verdict")
    if verdict is None:
        return Judgement(False, ("Write your verdict into answers.toml, then check again.",))
    if started.verdict is None:
        return _commit(started, verdict)
    wrong = tuple(_wrong_verdicts(started, faults))
    if wrong:
        again = f"Start over with another draw: unstarve lab start --force {lab.name}"
        return Judgement(False, (*wrong, again))
    lines = tuple(_wrong_answers(started))
    if lab.trial is None:
        judgement = _judge_versions(started, faults[0], progress)
    else:
        judgement = Judgement(*lab.trial(started.folder, started.seed))
    told = (*judgement.lines, *lines, *_predicted(started, faults))
    return Judgement(judgement.passed and not lines, told, measured=judgement.measured)


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


def _causes(started: Started, kind: str) -> str | None:
    """The learner's verdict or prediction, a cause for each case; None while one is missing."""
    answers = started.answers()
    said = [str(answers.get(key, "")).strip().lower() for key in started.lab.keys(kind)]
    known = started.lab.own_verdicts or (*(cause.value for cause in Cause), FED)
    name = "verdict of this lab" if started.lab.own_verdicts else "cause"
    for one in said:
        if one and one not in known:
            raise UsageError(f"{one} in answers.toml is no {name}; choose one of {', '.join(known)}")
    return " ".join(said) if all(said) else None


def _predict(started: Started) -> Judgement:
    prediction = _causes(started, "prediction")
    if prediction is None:
        return Judgement(False, ("Write your predictions into answers.toml, then check again.",))
    started.predict(prediction)
    said = "Your predictions are committed. Now measure, and write your verdicts into answers.toml."
    return Judgement(False, (said,), committed=True)


def _wrong_verdicts(started: Started, faults: tuple[Fault, ...]) -> Iterator[str]:
    said = (started.verdict or "").split()
    if not started.lab.cases and said[0] != faults[0].verdict:
        is_cause = not started.lab.own_verdicts
        yield f"Your verdict, {said[0]}, is {'not what slows this training down' if is_cause else 'wrong'}."
    for case, cause, fault in zip(started.lab.cases, said, faults, strict=False):
        if cause != fault.verdict:
            yield f"Case {case}: your verdict, {cause}, is not what slows this training down."


def _predicted(started: Started, faults: tuple[Fault, ...]) -> Iterator[str]:
    if started.prediction is not None:
        said = started.prediction.split()
        right = sum(cause == fault.verdict for cause, fault in zip(said, faults, strict=True))
        yield f"Your predictions were right in {right} of {len(faults)} cases."


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
    causes = ", ".join(verdict.split())
    said = f"Your verdict is committed: {causes}. Now change {started.lab.edited}, and check again."
    return Judgement(False, (said,), committed=True)


def _judge_versions(started: Started, fault: Fault, progress: Progress) -> Judgement:
    if fault.least_speedup is None:
        if started.is_untouched():
            return Judgement(
                True, ("Right: the data is not guilty, and there is nothing to fix in the loader.",)
            )
        return Judgement(False, (f"The data is not guilty: leave {started.lab.edited} as it was.",))
    slow, fast = _measure(started, fault.least_speedup, progress)
    if isinstance(fast, str):
        return Judgement(False, (fast,))
    mean, low, high = _speedup(slow, fast)
    ratio = times_interval(mean, low, high, 2)
    if "wait_share" in fast[0]:
        waits = statistics.median(one["wait_share"] for one in fast)
        lines = [f"With your loader, training is {ratio} as fast and waits {percent(waits)} of the time."]
        other = "But it does not deliver the same samples as the slow one."
    else:
        waits = None
        lines = [f"Your version is {ratio} as fast as {started.lab.slow}."]
        other = "But it does not compute the same."
    passed = True
    if len({(one["digest"], one["samples"], one.get("steps")) for one in (*slow, *fast)}) > 1:
        lines.append(other)
        passed = False
    if low < fault.least_speedup:
        lines.append(
            f"The goal is {times(fault.least_speedup, 1)}, and the whole interval has to lie above it."
        )
        passed = False
    if waits is not None and waits > started.lab.most_wait_share and passed:
        lines.append(f"The goal is to wait less than {percent(started.lab.most_wait_share)} of the time.")
        passed = False
    measured = {"speedup": mean, "low": low, "high": high}
    if waits is not None:
        measured["wait_share"] = waits
    return Judgement(passed, tuple(lines), measured=measured)


Results = list[dict[str, Any]]


def _speedup(slow: Results, fast: Results) -> tuple[float, float, float]:
    """How many times as fast, and the interval."""
    logs = [math.log(a["seconds"] / b["seconds"]) for a, b in zip(slow, fast, strict=True)]
    mean, around = statistics.mean(logs), half_width(logs)
    return math.exp(mean), math.exp(mean - around), math.exp(mean + around)


def _measure(started: Started, goal: float, progress: Progress) -> tuple[Results, Results | str]:
    """Run both versions in turns; instead of the learner's results, why there are none."""
    began = time.monotonic()
    lab = started.lab
    assert lab.edited is not None
    # Next to the learner's files, and so on the same disk.
    with tempfile.TemporaryDirectory(prefix=".check-", dir=started.folder) as temporary:
        original = Path(temporary)
        for name in lab.files:
            shutil.copyfile(lab.folder / name, original / name)
        shutil.copyfile(started.folder / STATE, original / STATE)
        results: dict[Path, Results] = {original / lab.slow: [], started.folder / lab.edited: []}
        for number in range(2 * _ROUNDS):
            if number >= _ROUNDS:
                mean, low, _ = _speedup(*results.values())
                if not low < goal < mean or time.monotonic() - began > _ENOUGH_S:
                    break
            for file in turn_order(list(results), number):
                progress(f"round {number + 1}: {file.name}")
                told = _run(file, started)
                if isinstance(told, str):
                    return [], told
                results[file].append(told)
    slow, fast = results.values()
    return slow, fast


def _run(file: Path, started: Started) -> dict[str, Any] | str:
    return told_by(started.lab.harness, file, _EPOCHS)
