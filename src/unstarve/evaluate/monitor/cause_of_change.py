"""Why a loader's waits have changed: known where this process is being recorded."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from unstarve.analyze.step_series import most_changed, series_of
from unstarve.collect.recorder import recorder
from unstarve.evaluate.monitor.regime import Shift
from unstarve.model import Cause
from unstarve.record.run_file import run_of_parts
from unstarve.record.run_reader import read_run

_MOST_BYTES = 64_000_000
"""A record larger than this takes seconds to read, and training would have to wait for it."""


def what_changed(shift: Shift) -> Cause | None:
    """The cause whose share of the wait has changed the most; None where nothing is recorded."""
    try:
        return _from_record(shift)
    except Exception as error:  # a record that cannot be read must not cost the user the training
        logging.getLogger(__name__).debug("the cause of a change is not known: %r", error)
        return None


def _from_record(shift: Shift) -> Cause | None:
    owner = recorder()
    if owner is None or not owner.active:
        return None
    owner.flush(time.perf_counter_ns())
    parts = Path(owner.settings.parts)
    if sum(part.stat().st_size for part in parts.iterdir()) > _MOST_BYTES:
        return None
    before, after = ((windows[0].begin_ns, windows[-1].end_ns) for windows in (shift.before, shift.after))
    own = [one for one in series_of(read_run(run_of_parts(parts))) if one.pid == os.getpid()]
    # The recorder has another name for the loader: it is the one that delivered when the change came.
    busiest = max(own, key=lambda s: sum(after[0] <= p.got_ns <= after[1] for p in s.points), default=None)
    return None if busiest is None else most_changed(busiest, before, after)
