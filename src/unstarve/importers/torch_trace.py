"""A torch.profiler trace → `Capture`. Old files say Kernel, Memcpy, Operator where new ones say kernel, …"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from unstarve.errors import ProfileError
from unstarve.importers.capture import COPY_KINDS, MEMORIES, Capture
from unstarve.importers.device_memory import UNKNOWN, device_number
from unstarve.importers.trace_events import Progress, TraceFile

_LATEST_US = 1 << 51
_MOST_DEVICES = 1 << 10
_MOST_BYTES = 1 << 44
_LOADER = re.compile(r"enumerate\(DataLoader\)#(\w+)\.__next__")
_STEP = re.compile(r"ProfilerStep#\d+")
_COPY = re.compile(r"Memcpy (\w+)(?: \((\w+) -> (\w+)\))?")
_HOST = {
    "cpu_op": True, "Operator": True, "user_annotation": False,
    "cuda_runtime": False, "Runtime": False, "cuda_driver": False,
}  # fmt: skip
"""Categories of the host, and whether they are operators."""
_CALLS = {"cuda_runtime", "Runtime", "cuda_driver"}
_FUNCTION = "python_function"
_LIBRARY = re.compile(r"(.*/)?(torch|unstarve)/|<built-in|nn\.Module: ")
"""Functions that are left out: far more than all other events together, and nested a hundred deep."""


def read_torch_trace(path: Path, progress: Progress) -> Capture:
    """Read a trace as torch.profiler exports it, compressed or not. Raises ProfileError."""
    capture = Capture("torch.profiler")
    trace = TraceFile(path, progress)
    reader = _Reader(capture)
    for event in trace:
        reader.add(event)
    if not reader.known:
        raise ProfileError(
            f"{path} is a trace, but not one of torch.profiler: it has no operators or kernels"
        )
    capture.tool = _tool(trace.header)
    return capture


class _Reader:
    """Sorts events into a capture's columns."""

    def __init__(self, capture: Capture) -> None:
        self._to = capture
        self._base_us: int | None = None
        self._threads: dict[tuple[Any, Any], int] = {}
        self.known = 0
        """Events that a torch.profiler writes."""

    def add(self, event: dict[str, Any]) -> None:
        """Take one event; what cannot be understood is left out."""
        if event.get("ph") != "X":
            if event.get("name") == "[memory]":
                self._memory(event)
            return
        category, name = event.get("cat"), event.get("name")
        times = self._times(event)
        if times is None or not isinstance(category, str) or not isinstance(name, str):
            return
        kind = category.lower()
        details = event.get("args")
        details = details if isinstance(details, dict) else {}
        if kind in ("kernel", "graph"):
            self.known += 1
            self._to.kernels.add(
                *times, _device(details), self._to.names.number(name), _link(details), _call(details)
            )
        elif kind in ("memcpy", "gpu_memcpy"):
            self.known += 1
            self._copy(times, name, details)
        elif kind in ("memset", "gpu_memset"):
            self._to.fills.add(*times, _device(details), _call(details))
        elif category == _FUNCTION:
            if not _LIBRARY.match(name):
                self._to.frames.add(*times, self._thread(event), self._to.names.number(name))
        elif category in _HOST:
            self.known += 1
            self._host(times, event, name, details, operator=_HOST[category])
            if category in _CALLS and (call := _call(details)) >= 0:
                self._to.launches.add(*times, call)

    def _times(self, event: dict[str, Any]) -> tuple[int, int] | None:
        begin, length = number_of(event.get("ts")), number_of(event.get("dur", 0))
        if begin is None or length is None or not 0 <= begin < _LATEST_US or not 0 <= length < _LATEST_US:
            return None
        if self._base_us is None:
            # A day before the first event: later ones in the file may have begun earlier.
            self._base_us = max(int(begin) - 86_400_000_000, 0)
        begin_ns = int((begin - self._base_us) * 1000)
        return begin_ns, begin_ns + int(length * 1000)

    def _memory(self, event: dict[str, Any]) -> None:
        """A tensor's memory was allocated or freed."""
        times, details = self._times(event), event.get("args")
        if times is None or not isinstance(details, dict):
            return
        kind, index, change = (number_of(details.get(name)) for name in ("Device Type", "Device Id", "Bytes"))
        if kind is None or index is None or change is None or abs(change) >= _MOST_BYTES:
            return
        if 0 <= kind < _MOST_DEVICES and -1 <= index < _MOST_DEVICES - 1:
            totals = (_total(details, name) for name in ("Total Allocated", "Total Reserved"))
            number = device_number(int(kind), int(index))
            self._to.memory.add(times[0], times[0], self._thread(event), number, int(change), *totals)

    def _copy(self, times: tuple[int, int], name: str, details: dict[str, Any]) -> None:
        said = _COPY.match(name)
        kind = said[1] if said else ""
        ends = (said[2], said[3]) if said else ()
        memory = next((one for one in MEMORIES[1:] if one.capitalize() in ends), "")
        size = number_of(details.get("bytes"))
        self._to.copies.add(
            *times,
            _device(details),
            COPY_KINDS.index(kind) if kind in COPY_KINDS else COPY_KINDS.index("DtoD"),
            MEMORIES.index(memory),
            int(size) if size is not None and 0 <= size < _MOST_BYTES else 0,
            _link(details),
            _call(details),
        )

    def _host(
        self,
        times: tuple[int, int],
        event: dict[str, Any],
        name: str,
        details: dict[str, Any],
        operator: bool,
    ) -> None:
        thread = self._thread(event)
        if _STEP.fullmatch(name):
            self._to.steps.add(*times, thread)
            return
        number = self._to.names.number(name)
        if _LOADER.match(name):
            self._to.waits.add(*times, thread, number)
        shape, stack = details.get("Input Dims", details.get("Input dims")), details.get("Call stack")
        self._to.host.add(
            *times,
            thread,
            number,
            _link(details),
            int(operator),
            self._to.names.number(f"{name} {json.dumps(shape)}") if operator and shape else -1,
            self._to.names.number(f"{name} {_caller(stack)}")
            if operator and isinstance(stack, str) and stack
            else -1,
        )

    def _thread(self, event: dict[str, Any]) -> int:
        key = (str(event.get("pid"))[:40], str(event.get("tid"))[:40])
        return self._threads.setdefault(key, len(self._threads))


def number_of(value: Any) -> float | None:
    """A finite number, also written as a text."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # an integer of hundreds of digits
        return None


def _device(details: dict[str, Any]) -> int:
    device = number_of(details.get("device"))
    return int(device) if device is not None and 0 <= device < _MOST_DEVICES else 0


def _link(details: dict[str, Any]) -> int:
    """The number that joins an operator and the device's work it launched; −1 when there is none."""
    link = number_of(details.get("External id", details.get("external id")))
    return int(link) if link is not None and 0 <= link < 1 << 62 else -1


def _call(details: dict[str, Any]) -> int:
    """The number that joins a call of the CUDA runtime and the device's work; −1 when there is none."""
    call = number_of(details.get("correlation"))
    return int(call) if call is not None and 0 <= call < 1 << 62 else -1


def _total(details: dict[str, Any], name: str) -> int:
    total = number_of(details.get(name))
    return int(total) if total is not None and 0 <= total < _MOST_BYTES else UNKNOWN


def _caller(stack: str) -> str:
    """The innermost line of a stack outside of torch: ``train.py(42): loss``."""
    lines = [line.strip() for line in stack.split(";") if line.strip()]
    return next(
        (line for line in lines if "/torch/" not in line and "<built-in" not in line),
        lines[0] if lines else "",
    )


def _tool(header: dict[str, Any]) -> str:
    version = header.get("schemaVersion")
    return f"trace schema {version}" if isinstance(version, (int, str)) else ""
