"""Sentences about the result of `unstarve check`, shared by the terminal and Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from unstarve.model.check_report import CheckedLoader, CheckReport
from unstarve.model.finding import Severity
from unstarve.words import counted, duration, listed, size, workers

_LOOKED_AT = 4
"""Loaders that the headline names."""


def headline(report: CheckReport) -> str:
    """``2 errors and 1 warning in train.py``, or what was looked at if nothing was found."""
    counts = [counted(report.count(one), one.value) for one in Severity if report.count(one)]
    if counts:
        return f"{listed(counts)} in {report.target}"
    if report.files is not None:
        return f"Nothing found: {counted(report.checks, 'check')} looked at {counted(report.files, 'file')}."
    if not report.loaders:
        return f"Nothing checked in {report.target}"
    named = [f"{one.name} ({one.where})" if one.where else one.name for one in report.loaders]
    if len(named) > _LOOKED_AT:
        named = [*named[:_LOOKED_AT], counted(len(named) - _LOOKED_AT, "other")]
    return f"Nothing found: {counted(report.checks, 'check')} looked at {listed(named)}."


def start_up(report: CheckReport) -> Iterator[tuple[str, str]]:
    """What comes before the first batch, as pairs of a name and a time."""
    if report.import_s is not None:
        yield "importing torch", duration(report.import_s)
    if report.build_s is not None:
        yield "from there to the first loader", duration(report.build_s)
    for loader in report.loaders:
        if loader.pickled_bytes is not None and loader.pickle_s is not None:
            sent = f"{size(loader.pickled_bytes)} to each of {workers(loader.workers)}"
            yield f"{loader.name}: dataset pickled", f"{duration(loader.pickle_s)}, {sent}"
        if loader.first_batch_s is not None:
            yield f"{loader.name}: first batch", duration(loader.first_batch_s)


def ending(report: CheckReport) -> str | None:
    """Where the script was ended; None if it ended by itself."""
    if report.stopped_at is None:
        return None
    return f"{report.target} was ended after the first batches of {report.stopped_at}."


def remarks(report: CheckReport) -> list[str]:
    """What could not be checked."""
    return [*report.problems, *(_sentence(one) for one in report.loaders if one.problem)]


def _sentence(loader: CheckedLoader) -> str:
    return f"{loader.problem}; checks that look at batches did not run on it"
