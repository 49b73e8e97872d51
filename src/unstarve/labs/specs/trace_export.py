"""Lab 7."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from unstarve.labs.lab import Given, Lab, Question
from unstarve.words import counted

if TYPE_CHECKING:
    from unstarve.labs.traced import Drawn

_GAP = "…"
_PAUSE_TOLERANCE = 0.2


def _draw(given: Given) -> Drawn:
    from unstarve.labs.traced import drawn  # needs torch

    return drawn(given.seed)


def _number(truth: Callable[[Drawn], int], wrong: str) -> Callable[[Given], str | None]:
    """Judge an answer that has to be exactly this number."""
    return lambda given: None if given.number() == truth(_draw(given)) else f"{given.answer} {wrong}"


def _word(truth: Callable[[Drawn], str], wrong: str) -> Callable[[Given], str | None]:
    """Judge an answer that has to be this word, in small or capital letters."""

    def judge(given: Given) -> str | None:
        right = str(given.answer).strip().lower() == truth(_draw(given))
        return None if right else f"{given.answer} {wrong}"

    return judge


def _wrong_pause(given: Given) -> str | None:
    said, truth_ms = given.number(), 1000 * _draw(given).pause_s
    if said is not None and abs(said - truth_ms) <= _PAUSE_TOLERANCE * truth_ms:
        return None
    return f"{given.answer} ms is not how long it is: look at its event in the profiler's trace."


def _wrong_report(given: Given) -> str | None:
    path = given.folder / str(given.answer)
    if not path.is_file():
        return f"there is no file {given.answer} in this folder."
    text = path.read_text("utf-8", errors="replace")
    gaps = text.count(_GAP)
    if gaps:
        return f"{given.answer} still has {counted(gaps, 'gap')} ({_GAP})."
    draw = _draw(given)
    if draw.pause_name not in text or f"worker {draw.late_worker}" not in text:
        return f"{given.answer} does not name the pause and the late worker, as “worker N”."
    return None


LAB = Lab(
    name="trace-export",
    title="Traces",
    goal="Export the trace of a training, read it, compare two of them, and write the report.",
    minutes=1,
    files=("README.md", "slow_training.py", "fast_training.py", "read_trace.py", "report.md"),
    hints=(
        "`unstarve trace slow.unstarve` writes slow.trace.json. Open it in ui.perfetto.dev, or run "
        "`python read_trace.py slow.trace.json`: one line for every kind of event on every track.",
        "The late worker: compare the `fetch` events of the four worker tracks.",
        "The pause: the longest `step` on the track `main`. Its arguments have the number of its batch.",
        "What happens in that step is in the profiler's trace only, and only if the window covers it: for "
        "batch 40, `--profile=38,1,3` skips 38 steps, warms up one and records the three around it.",
        "What was repaired: make the same tables of slow and fast, and look for the line that changed. The "
        "phases are under `profiled steps`; use the same window for both.",
    ),
    questions=(
        Question(
            "late_worker",
            "Slow version: the number of the worker whose fetches take longest, 0 to 3.",
            _number(lambda draw: draw.late_worker, "is not the late worker."),
        ),
        Question(
            "pause_batch",
            "Slow version: the number of the batch in whose step training pauses, as in the trace.",
            _number(lambda draw: draw.pause_step, "is not the batch with the longest step."),
        ),
        Question(
            "pause_name",
            "What training does in that pause: the name of its event in the profiler's trace.",
            _word(lambda draw: draw.pause_name, "is not what training does there."),
        ),
        Question("pause_ms", "How long that takes, in milliseconds. 20% more or less is fine.", _wrong_pause),
        Question(
            "largest_phase",
            "Slow version: which of forward, backward and optimizer takes longest?",
            _word(lambda draw: draw.largest_phase, "is not the largest of the three phases."),
        ),
        Question(
            "repaired",
            "What does the fast version no longer have: the late worker, the pause or the large phase?\n"
            "Write worker, pause or phase.",
            _word(lambda draw: draw.repaired, "is not what was repaired."),
        ),
        Question("report", "The file with your report, once it has no gaps: report.md", _wrong_report),
    ),
)
