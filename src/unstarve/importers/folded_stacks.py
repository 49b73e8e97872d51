"""A torch.profiler trace → stacks with their own time, as flame graphs are drawn from them.

    MainThread;train.py(8): main;aten::linear;aten::addmm 1250

One line per stack, outermost first, then its own time in microseconds, for flamegraph.pl and speedscope.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from unstarve.importers.capture import Column, Names
from unstarve.importers.torch_trace import number_of
from unstarve.importers.trace_events import TraceFile

_KINDS = frozenset({"python_function", "cpu_op", "Operator", "user_annotation", "unstarve"})
_MOST_STACKS = 200_000
"""Different ones; what further ones take counts for the stack around them."""
_OURS = re.compile(r"(.*/)?unstarve/")
_BEFORE_US = 1e9
"""Events may have begun this long before the first in the file."""
_NUMBER = re.compile(r"#\d+$")
"""Of a step: all steps are one."""


def folded_stacks(trace: Path) -> Iterator[str]:
    """The lines, in the order of the first time. Raises ProfileError if the trace cannot be read."""
    events, names, threads = Column("thread", "name"), Names(), _Threads()
    base_us: float | None = None
    for event in TraceFile(trace, lambda done: None):
        threads.note(event)
        name, kind = str(event.get("name")), str(event.get("cat"))
        begin, length = number_of(event.get("ts")), number_of(event.get("dur"))
        if kind not in _KINDS or begin is None or length is None or _OURS.match(name):
            continue
        base_us = begin - _BEFORE_US if base_us is None else base_us
        begin_ns = int((begin - base_us) * 1000)
        number = names.number(_NUMBER.sub("", name))
        events.add(begin_ns, begin_ns + int(length * 1000), threads.number(event), number)
    yield from _folded(events, names.texts, threads.names())


class _Threads:
    """Threads of the trace by number, and their names."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._named: dict[tuple[str, str], str] = {}

    def note(self, event: dict[str, Any]) -> None:
        """Take the name of a thread, or of a whole process such as a worker."""
        details = event.get("args")
        if event.get("name") in ("thread_name", "process_name") and isinstance(details, dict):
            whole = event["name"] == "process_name"
            key = (str(event.get("pid")), "" if whole else str(event.get("tid")))
            self._named[key] = str(details.get("name"))

    def number(self, event: dict[str, Any]) -> int:
        key = (str(event.get("pid")), str(event.get("tid")))
        return self._numbers.setdefault(key, len(self._numbers))

    def names(self) -> list[str]:
        """By number."""
        return [
            self._named.get((pid, tid)) or self._named.get((pid, "")) or f"thread {tid}"
            for pid, tid in self._numbers
        ]


def _folded(events: Column, texts: list[str], threads: list[str]) -> Iterator[str]:
    """Sweep over the events of each thread, with the open ones on a stack."""
    stacks: dict[tuple[int, str], int] = {}
    own_ns: list[int] = []
    parents: list[tuple[int, str]] = []

    def inside(parent: int, name: str) -> int:
        key = (parent, name)
        found = stacks.get(key)
        if found is None:
            if parent >= 0 and len(stacks) >= _MOST_STACKS:
                return parent
            found = stacks[key] = len(own_ns)
            own_ns.append(0)
            parents.append(key)
        return found

    begin, end = events.begin.tolist(), events.end.tolist()
    thread, name = events.of("thread").tolist(), events.of("name").tolist()
    open_: list[tuple[int, int]] = []
    """Stack and end of the events around."""
    last = None
    for at in np.lexsort((-events.end, events.begin, events.of("thread"))).tolist():
        if thread[at] != last:
            open_, last = [(inside(-1, threads[thread[at]]), 1 << 62)], thread[at]
        while open_[-1][1] <= begin[at]:
            open_.pop()
        until = min(end[at], open_[-1][1])
        length = until - begin[at]
        if len(open_) > 1:
            own_ns[open_[-1][0]] -= length
        stack = inside(open_[-1][0], texts[name[at]])
        own_ns[stack] += length
        open_.append((stack, until))
    for number, spent in enumerate(own_ns):
        if spent >= 1000:
            yield f"{_path(number, parents)} {spent // 1000}"


def _path(number: int, parents: list[tuple[int, str]]) -> str:
    names = []
    while number >= 0:
        number, name = parents[number]
        names.append(" ".join(name.replace(";", ",").split()))
    return ";".join(reversed(names))
