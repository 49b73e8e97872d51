"""torch raised because of its workers: look at them while they still exist."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

from unstarve.collect.recorder import recorder
from unstarve.collect.stuck.failures import LoaderFailure, keep_failure
from unstarve.collect.stuck.look import Wait, look_at
from unstarve.collect.stuck.state_page import read_page
from unstarve.collect.tap import Tap

_DIED = re.compile(r"DataLoader worker \(pid\(?s?\)? .*\) (?:exited unexpectedly|is killed by signal)")
_TIMED_OUT = re.compile(r"DataLoader timed out after ([\d.]+) seconds")


def note_failure(iterator: Any, tap: Tap, error: RuntimeError) -> None:
    """Keep what is known of the workers, if this exception of an iterator's ``__next__`` is about them."""
    message, owner = str(error), recorder()
    died, timed_out = _DIED.search(message), _TIMED_OUT.search(message)
    if owner is None or owner.page.path is None or not (died or timed_out):
        return
    parts, page = owner.page.path.parent.parent, read_page(owner.page.path)
    facts = {} if page is None else page.loaders.get(tap.number, {})
    failure = LoaderFailure(message, facts.get("name", "the loader"), facts.get("where"))
    if timed_out is not None and page is not None:
        timeout_s = float(timed_out[1])
        since_ns = time.perf_counter_ns() - round(timeout_s * 1e9)
        picture = look_at(page, parts, Wait(tap.number, tap.wait.epoch, tap.wait.index, since_ns))
        failure = LoaderFailure(message, failure.loader, failure.where, {}, timeout_s, picture)
    elif died is not None:
        workers = getattr(iterator, "_workers", [])
        exits = {worker.pid: worker.exitcode for worker in workers if worker.exitcode is not None}
        failure = LoaderFailure(message, failure.loader, failure.where, exits)
    keep_failure(Path(parts), os.getpid(), failure)
