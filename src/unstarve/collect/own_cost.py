"""What recording costs this process, in CPU time: time off the core is other programs' doing.

Reading a thread's CPU clock costs about as much as a good part of what it would measure. So the bookkeeping
of a step, and that around a fetch, is measured for a few of them: the next one after every write, which is at
most twenty times a second. Writing and the stack sampler's thread are measured throughout.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from unstarve.stack_levels import uncounted

T = TypeVar("T")

_cpu_ns = time.thread_time_ns


class OwnCost:
    """The recording of one process. Steps and fetches are those that were measured."""

    __slots__ = ("fetch_ns", "fetches", "hook_ns", "sampler_s", "step_ns", "steps", "written_ns")

    def __init__(self) -> None:
        self.steps = self.step_ns = 0
        self.fetches = self.fetch_ns = 0
        self.written_ns = 0
        """Spent on writing by threads that do other things, too."""
        self.hook_ns = 0
        """Spent in the hook after an optimizer's step."""
        self.sampler_s = 0.0
        """CPU time of the stack sampler's thread."""

    @uncounted
    def apart(self, record: Callable[[Callable[..., T]], Any], users: Callable[..., T]) -> tuple[T, int]:
        """Return ``record(users)`` and its CPU time in ns, without that of `users` and of writing."""
        users_ns = 0

        @uncounted
        def timed(*args: Any) -> T:
            nonlocal users_ns
            begin_ns = _cpu_ns()
            try:
                return users(*args)
            finally:
                users_ns += _cpu_ns() - begin_ns

        written_ns, begin_ns = self.written_ns, _cpu_ns()
        result = record(timed)
        spent_ns = _cpu_ns() - begin_ns - users_ns - (self.written_ns - written_ns)
        return result, max(spent_ns, 0)

    def fields(self) -> dict[str, float]:
        """The fields of an ``own`` META."""
        return {
            "steps": self.steps,
            "step_cpu_s": self.step_ns / 1e9,
            "fetches": self.fetches,
            "fetch_cpu_s": self.fetch_ns / 1e9,
            "rest_cpu_s": (self.written_ns + self.hook_ns) / 1e9 + self.sampler_s,
        }
