"""torch raised because of its workers: look at them while they still exist."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import connection
from typing import Any

from unstarve.collect.recorder import recorder
from unstarve.collect.stuck.failures import LoaderFailure, keep_failure
from unstarve.collect.stuck.look import Wait, look_at
from unstarve.collect.stuck.state_page import read_page
from unstarve.collect.tap import Tap

_TIMED_OUT = re.compile(r"DataLoader timed out after ([\d.]+) seconds")
_END_S = 0.5
"""A worker whose connection broke is about to end."""


def note_failure(iterator: Any, tap: Tap, error: Exception) -> None:
    """Keep what is known of the workers, if this exception of an iterator's ``__next__`` is about them.

    A worker that dies while training receives its batch shows as a broken connection.
    """
    owner = recorder()
    if owner is None or owner.page.path is None:
        return
    folder, page = owner.page.path.parent, read_page(owner.page.path)
    facts = {} if page is None else page.loaders.get(tap.number, {})
    found = LoaderFailure(str(error), facts.get("name", "the loader"))
    timed_out = _TIMED_OUT.search(str(error))
    if timed_out is not None and page is not None:
        timeout_s = float(timed_out[1])
        since_ns = time.perf_counter_ns() - round(timeout_s * 1e9)
        picture = look_at(page, Wait(tap.number, tap.wait.epoch, tap.wait.index, since_ns))
        found = replace(found, timeout_s=timeout_s, picture=picture)
    else:
        found = replace(found, exits=_exits(getattr(iterator, "_workers", []), error))
    if found.exits or found.picture is not None:
        keep_failure(folder, os.getpid(), found)


def _exits(workers: Sequence[Any], error: Exception) -> dict[int, int]:
    """Exit codes of the workers that did not end by themselves, by pid."""
    if workers and isinstance(error, (OSError, EOFError)):
        connection.wait([worker.sentinel for worker in workers], _END_S)
    return {worker.pid: worker.exitcode for worker in workers if worker.exitcode}
