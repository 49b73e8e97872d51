"""`Capture` → `Profile`: how busy each device was, what it waited for, and where the time went."""

from __future__ import annotations

import numpy as np

from unstarve.importers.capture import COPY_KINDS, MEMORIES, Capture, Column, Times
from unstarve.importers.device_memory import memory_of
from unstarve.importers.device_work import MOST_GAPS, DeviceWork, HostThread
from unstarve.importers.nesting import enclosing, innermost
from unstarve.importers.phases import phases_at, phases_of, segments_of
from unstarve.importers.spans import Union, clipped, shared_each, union
from unstarve.model.profile import CopyUse, FileUse, NamedUse, Profile

_MOST_NAMED = 30
_MOST_OPERATORS = 200
"""More than a training uses, so that two runs can be compared by operator."""
_MOST_FILES = 200

_ALLOCATORS = frozenset(
    f"aten::{name}" for name in ("empty", "empty_strided", "empty_like", "new_empty", "resize_", "to_empty")
)


def profile_of(capture: Capture) -> Profile:
    """Everything a report shows of a profiler's file."""
    low, high = capture.window
    waits = _waits(capture, low, high)
    devices, gaps = [], []
    thread = training_thread(capture)
    doing = HostThread(capture, thread)
    for device in _devices(capture):
        work = DeviceWork(capture, device, low, high)
        devices.append(work.use(waits))
        gaps += work.gaps(doing, waits)
    host = _HostWork(capture)
    segments = segments_of(capture, waits, thread, host.copied)
    moments = capture.memory.begin
    return Profile(
        source=capture.source,
        tool=capture.tool,
        window_s=(high - low) / 1e9,
        waits=int(((capture.waits.begin >= low) & (capture.waits.begin < high)).sum()),
        wait_s=waits.total_ns / 1e9,
        devices=tuple(devices),
        steps=len(capture.steps) or max(len(waits.begin) - 1, 0),
        phases=phases_of(capture, waits, host.launched, segments),
        gaps=tuple(sorted(gaps, key=lambda gap: -gap.seconds)[:MOST_GAPS]),
        copies=_copies(capture, low, high),
        kernels=_kernels(capture),
        operators=host.operators("name"),
        by_shape=host.operators("shape"),
        by_stack=host.operators("stack"),
        memory=memory_of(capture, low, high, phases_at(segments, moments), host.allocating(capture.memory)),
        calls=_calls(capture),
        files=_files(capture),
    )


def training_thread(capture: Capture) -> int | None:
    """The thread that waits for loaders; without waits, the one that keeps the host busiest."""
    column = capture.waits if len(capture.waits) else capture.host
    if not len(column):
        return None
    threads, numbers = np.unique(column.of("thread"), return_inverse=True)
    spent = np.bincount(numbers, weights=(column.end - column.begin).astype(float))
    return int(threads[int(spent.argmax())])


def _waits(capture: Capture, low: int, high: int) -> Union:
    chosen = capture.waits.of("thread") == training_thread(capture)
    return clipped(union(capture.waits.begin[chosen], capture.waits.end[chosen]), low, high)


def _devices(capture: Capture) -> list[int]:
    used = np.concatenate([c.of("device") for c in (capture.kernels, capture.copies, capture.fills)])
    return [int(device) for device in np.unique(used)]


def _copies(capture: Capture, low: int, high: int) -> tuple[CopyUse, ...]:
    column = capture.copies
    found = []
    keys = np.stack([column.of("device"), column.of("kind"), column.of("memory")], axis=1)
    for device, kind, memory in np.unique(keys, axis=0):
        mine = (keys == (device, kind, memory)).all(axis=1)
        kernels = DeviceWork(capture, int(device), low, high).kernels
        begin, end = column.begin[mine], column.end[mine]
        exposed = (end - begin) - shared_each(begin, end, kernels)
        found.append(
            CopyUse(
                int(device),
                COPY_KINDS[int(kind)],
                MEMORIES[int(memory)],
                int(mine.sum()),
                int(column.of("bytes")[mine].sum()),
                int((end - begin).sum()) / 1e9,
                int(exposed.sum()) / 1e9,
            )
        )
    return tuple(sorted(found, key=lambda copy: -copy.seconds))


def _kernels(capture: Capture) -> tuple[NamedUse, ...]:
    column = capture.kernels
    names, numbers = np.unique(column.of("name"), return_inverse=True)
    calls = np.bincount(numbers, minlength=len(names))
    spent = np.bincount(numbers, weights=(column.end - column.begin).astype(float), minlength=len(names))
    order = np.argsort(-spent, kind="stable")[:_MOST_NAMED]
    return tuple(
        NamedUse(capture.names.texts[int(names[at])], int(calls[at]), float(spent[at]) / 1e9) for at in order
    )


class _HostWork:
    """Host events with what is inside them and what they launched."""

    def __init__(self, capture: Capture) -> None:
        host = capture.host
        self._host, self._texts = host, capture.names.texts
        self.is_operator = host.of("operator") == 1
        around = self._around = enclosing(host, self.is_operator)
        self._stacks = self._callers(capture)
        self._lengths = host.end - host.begin
        self._own = self._lengths.copy()
        inner = np.flatnonzero(self.is_operator & (around >= 0))
        np.subtract.at(self._own, around[inner], self._lengths[inner])
        links = host.of("link").tolist()
        order = np.argsort(self.is_operator, kind="stable").tolist()  # operators last: they win
        launcher = {
            links[at]: at if self.is_operator[at] or around[at] < 0 else int(around[at])
            for at in order
            if links[at] >= 0
        }
        self.launched = _device_ns(host, launcher, capture.kernels) + _device_ns(
            host, launcher, capture.copies
        )
        self.copied = _outward(_device_ns(host, launcher, capture.copies, "HtoD"), around)

    def operators(self, by: str) -> tuple[NamedUse, ...]:
        """Operators by what they take, grouped by ``name``, ``shape`` or ``stack``."""
        keys = self._stacks if by == "stack" else self._host.of(by)
        chosen = self.is_operator & (keys >= 0)
        if not chosen.any():
            return ()
        groups, numbers = np.unique(keys[chosen], return_inverse=True)

        def summed(values: Times) -> np.ndarray:
            return np.bincount(numbers, values[chosen].astype(float), len(groups)) / 1e9

        calls = np.bincount(numbers, minlength=len(groups))
        spent, own_s, device_s = (
            summed(self._lengths),
            summed(np.maximum(self._own, 0)),
            summed(self.launched),
        )
        largest = np.argsort(-np.maximum(own_s, device_s), kind="stable")[:_MOST_OPERATORS]
        return tuple(
            NamedUse(
                self._texts[int(groups[at])],
                int(calls[at]),
                float(spent[at]),
                float(own_s[at]),
                float(device_s[at]),
            )
            for at in largest
        )

    def allocating(self, events: Column) -> Times:
        """The name of the innermost operator around each event, on its thread; −1 where there is none.

        Operators that do nothing but allocate are passed over for the one that called them.
        """
        if not len(events):
            return events.begin
        names = self._host.of("name")
        allocates = np.array([text in _ALLOCATORS for text in self._texts], bool)
        inner = innermost(self._host, self.is_operator, self._around, events.of("thread"), events.begin)
        while (bare := (inner >= 0) & (self._around[inner] >= 0) & allocates[names[inner]]).any():
            inner[bare] = self._around[inner[bare]]
        return np.where(inner >= 0, names[inner], -1)

    def _callers(self, capture: Capture) -> Times:
        """By operator: its name and the Python function that called it, numbered; −1 where none did.

        Old traces have the stack beside each operator, new ones have the functions as events.
        """
        host, frames = self._host, capture.frames
        if not len(frames) or (host.of("stack") >= 0).any():
            return host.of("stack")
        every = np.ones(len(frames), bool)
        around = enclosing(frames, every)
        inner = innermost(frames, every, around, host.of("thread"), host.begin)
        known = np.flatnonzero(self.is_operator & (inner >= 0))
        pairs = np.stack([host.of("name")[known], frames.of("name")[inner[known]]], axis=1)
        texts = self._texts
        numbers = [
            capture.names.number(f"{texts[operator]} {texts[function]}")
            for operator, function in pairs.tolist()
        ]
        found = np.full(len(host), -1, np.int64)
        found[known] = numbers
        return found


def _device_ns(host: Column, launcher: dict[int, int], work: Column, kind: str | None = None) -> Times:
    """Nanoseconds on the device per host event: counted for the operator that launched the work."""
    spent = np.zeros(len(host), np.int64)
    links, lengths = work.of("link"), work.end - work.begin
    chosen = links >= 0
    if kind is not None:
        chosen &= work.of("kind") == COPY_KINDS.index(kind)
    for link, length in zip(links[chosen].tolist(), lengths[chosen].tolist(), strict=True):
        at = launcher.get(link, -1)
        if at >= 0:
            spent[at] += length
    return spent


def _outward(spent: Times, around: Times) -> Times:
    """The same, counted for all operators around each event, too."""
    total = spent.copy()
    for at in np.flatnonzero(spent).tolist():
        outer = int(around[at])
        while outer >= 0:
            total[outer] += spent[at]
            outer = int(around[outer])
    return total


def _calls(capture: Capture) -> tuple[NamedUse, ...]:
    texts = capture.names.texts
    found = [
        NamedUse(texts[name], count, spent_ns / 1e9, process=process)
        for (process, name), (count, spent_ns) in capture.calls.items()
    ]
    return tuple(sorted(found, key=lambda call: -call.seconds)[:_MOST_NAMED])


def _files(capture: Capture) -> tuple[FileUse, ...]:
    found = [
        FileUse(path, process, opens, reads, size, spent_ns / 1e9)
        for (process, path), (opens, reads, size, spent_ns) in capture.files.items()
    ]
    return tuple(sorted(found, key=lambda file: -file.seconds)[:_MOST_FILES])
