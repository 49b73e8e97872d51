"""Whether the learner got there, and what is missing.

The version that came with the lab and the learner's own are run anew, in turns, by processes that take
nothing from the learner's folder but the learner's version and what it imports.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unstarve.errors import UsageError
from unstarve.labs.harness_process import told_by
from unstarve.labs.lab import Fault, Given
from unstarve.labs.started import Started
from unstarve.labs.turns import Results, does_less_work, run_in_turns, speedup
from unstarve.model import Cause
from unstarve.words import percent

_ENOUGH_S = 100
"""How long a comparison may take."""
_EPOCHS = 6
"""Or calls of a version. A cache has to be filled in the first, so that few epochs gain little."""
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
    may_be_none = not started.lab.cases and any(one.least_speedup is None for one in started.lab.faults)
    unless = ", unless nothing is wrong," if may_be_none else ""
    said = f"Your verdict is committed: {causes}. Now change {started.lab.edited}{unless} and check again."
    return Judgement(False, (said,), committed=True)


def _judge_versions(started: Started, fault: Fault, progress: Progress) -> Judgement:
    if fault.least_speedup is None:
        if started.is_untouched():
            return Judgement(
                True, ("Right: the data is not guilty, and there is nothing to fix in the loader.",)
            )
        return Judgement(False, (f"The data is not guilty: leave {started.lab.edited} as it was.",))
    return _compare(started, fault.least_speedup, progress)


def _compare(started: Started, goal: float, progress: Progress) -> Judgement:
    """Run both versions in turns."""
    lab = started.lab
    assert lab.edited is not None

    def run(file: Path, step_rounds: int | None) -> dict[str, Any] | str:
        progress(f"running {file.name}")
        return _run(file, started, step_rounds)

    def is_open(slow: Results, fast: Results) -> bool:
        found = speedup(slow, fast)
        waits_too_long = found.low >= goal and _wait_share(fast) > lab.most_wait_share
        return not _fake(slow, fast) and (
            found.is_open(goal) or (waits_too_long and _least_wait_share(fast) <= lab.most_wait_share)
        )

    with started.original() as original:
        told = run_in_turns((original / lab.slow, started.folder / lab.edited), run, is_open, _ENOUGH_S)
    if isinstance(told, str):
        return Judgement(False, (told,))
    slow, fast = told
    found, waits = speedup(slow, fast), _wait_share(fast)
    trains = "wait_share" in fast[0]
    line = f"Your version is {found} as fast as {lab.slow}."
    if trains:
        line = f"With your loader, training is {found} as fast and waits {percent(waits)} of the time."
    missing = _fake(slow, fast) or found.missing(goal)
    if missing is None and waits > lab.most_wait_share:
        missing = f"The goal is to wait less than {percent(lab.most_wait_share)} of the time."
        if _least_wait_share(fast) <= lab.most_wait_share:
            missing += " In some rounds it did: close other programs, and check again."
    measured = {"speedup": found.mean, "low": found.low, "high": found.high, "rounds": len(fast)}
    if trains:
        measured["wait_share"] = waits
    return Judgement(missing is None, (line, missing) if missing else (line,), measured=measured)


def _fake(slow: Results, fast: Results) -> str | None:
    """What the learner's version does less of than the original, in a sentence."""
    trains = "wait_share" in fast[0]
    if len({(one["digest"], one["samples"], one.get("steps")) for one in (*slow, *fast)}) > 1:
        same = "deliver the same samples as the slow one" if trains else "compute the same"
        return f"But it does not {same}."
    if trains and does_less_work(slow, fast):
        return "But its training step does less work."
    return None


def _wait_share(results: Results) -> float:
    return float(statistics.median(one.get("wait_share", 0.0) for one in results))


def _least_wait_share(results: Results) -> float:
    return float(min(one.get("wait_share", 0.0) for one in results))


def _run(file: Path, started: Started, step_rounds: int | None) -> dict[str, Any] | str:
    return told_by(started.lab.harness, file, _EPOCHS, step_rounds)
