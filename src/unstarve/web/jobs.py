"""The jobs of the server: summaries and pages of runs. They run in other processes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unstarve import api
from unstarve.analyze.diagnose import analyze_run
from unstarve.errors import RunFileError, UnstarveError
from unstarve.model import Live, Run
from unstarve.present.page.html_page import comparison_page, report_page
from unstarve.record.run_reader import read_run
from unstarve.web.private_paths import private, without_folders

RUNNING = "running"
UNREADABLE = "unreadable"
HOME = "/"
_MOST_CHARACTERS = 300
_LAST_TIME_S = 1e11  # in the year 5138


@dataclass(frozen=True, slots=True)
class Summary:
    """A run's line in the list; None is unknown."""

    state: str
    """A verdict's state, `RUNNING` or `UNREADABLE`."""
    headline: str
    cause: str | None = None
    command: str = ""
    started_at: float | None = None
    """Seconds since 1970."""
    wall_s: float | None = None
    steps: int | None = None
    steps_per_s: float | None = None
    samples_per_s: float | None = None
    headroom: float | None = None
    """How many times as fast training would be if loading were free."""
    cut_short: bool = False


def summarize(path: Path) -> Summary:
    """A run's line in the list, even if the run cannot be read."""
    try:
        return _summary(read_run(path))
    except MemoryError:
        raise
    except Exception as error:  # a bad run must not hide the others
        return Summary(UNREADABLE, _short(str(_cannot_show(error, path))))


def running(now: Live) -> Summary:
    """The line of a run that is being recorded."""
    return Summary(
        RUNNING,
        "being recorded now",
        command=_words(now.command),
        started_at=_time(now.started_at),
        wall_s=_finite(now.elapsed_s),
        steps=now.steps,
        steps_per_s=_finite(now.steps_per_s),
        samples_per_s=_finite(now.samples_per_s),
    )


def report_html(path: Path) -> str:
    """The page of a report. Raises `RunFileError` when the run cannot be shown."""
    try:
        run = read_run(path)
        return report_page(private(api.diagnose(run), [path]), api.views_of(run), home=HOME)
    except MemoryError:
        raise
    except Exception as error:  # a file that breaks the analysis is a bad file, not a bad server
        raise _cannot_show(error, path) from None


def comparison_html(a: Path, b: Path) -> str:
    """The page that compares two runs. Raises `RunFileError` when they cannot be compared."""
    try:
        views = [api.views_of(read_run(path)) for path in (a, b)]
        return comparison_page(private(api.compare(a, b), [a, b]), views[0], views[1], home=HOME)
    except MemoryError:
        raise
    except Exception as error:  # as above
        raise _cannot_show(error, a, b) from None


def last_look(path: Path) -> Live:
    """The live view of a run that is not being recorded. Raises `RunFileError`."""
    return next(api.follow(path))


def check(path: Path) -> str | None:
    """What is wrong with an uploaded file; None if it is a run."""
    try:
        read_run(path)
    except MemoryError:
        raise
    except RunFileError as error:
        return without_folders(str(error), [path])
    except Exception as error:  # valid chunks may hold anything
        return without_folders(f"the file is damaged: {error!r}", [path])
    return None


def _summary(run: Run) -> Summary:
    found = analyze_run(run)
    return Summary(
        state=found.verdict.state.value,
        headline=_short(without_folders(found.verdict.headline)),
        cause=found.verdict.cause.value,
        command=_words(found.command),
        started_at=_time(found.started_at),
        wall_s=_finite(found.wall_s),
        steps=found.steps,
        steps_per_s=_finite(found.throughput.steps_per_s),
        samples_per_s=_finite(found.throughput.samples_per_s),
        headroom=None if found.headroom is None else _finite(found.headroom.speedup),
        cut_short=found.cut_short,
    )


def _words(command: Sequence[object]) -> str:
    return _short(without_folders(" ".join(str(word) for word in command)))


def _short(text: str) -> str:
    """Cut to what fits into a list."""
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _finite(value: float | None) -> float | None:
    """JSON has no infinity."""
    return value if value is not None and math.isfinite(value) else None


def _time(value: object) -> float | None:
    """When a run began; None if it is implausible, as in a damaged file."""
    return value if isinstance(value, float) and 0 < value < _LAST_TIME_S else None


def _cannot_show(error: Exception, *files: Path) -> RunFileError:
    is_ours = isinstance(error, UnstarveError)
    sentence = str(error) if is_ours else f"this run cannot be analysed: {error!r}"
    return RunFileError(without_folders(sentence, files))
