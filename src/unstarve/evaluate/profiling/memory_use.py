"""`unstarve.memory_profile` and `unstarve.largest_batch`: peak memory of a function, and what fits."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

from unstarve.errors import UsageError
from unstarve.machine import available_bytes
from unstarve.words import size

P = ParamSpec("P")
R = TypeVar("R")

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_VISIBLE_BYTES = 32 << 20
"""A step that needs less is lost in what allocators keep for themselves."""
_SAFETY = 0.9
"""Share of the free memory that a batch may fill: allocators need some for themselves."""
_MOST_SAMPLES = 1 << 24


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory of one call of a function, in bytes. None where it cannot be measured."""

    name: str
    host_before: int
    host_peak: int
    """Largest resident memory of this process during the call."""
    host_after: int
    device_peak: int | None
    """Most memory in the device's tensors at a time; None without a device."""
    device_reserved: int | None
    """Most memory that torch had taken from the device."""

    @property
    def host_added(self) -> int:
        """What the call needed beyond what was there before it."""
        return max(self.host_peak - self.host_before, 0)

    def __str__(self) -> str:
        host = f"{size(self.host_added)} more at its peak, {size(self.host_peak)} in all"
        kept = self.host_after - self.host_before
        left = f", kept {size(kept)}" if kept > 0 else ""
        device = ""
        if self.device_peak is not None and self.device_reserved is not None:
            device = f"; device: {size(self.device_peak)} in tensors, {size(self.device_reserved)} reserved"
        return f"{self.name}: {host}{left}{device}"


def memory_profile(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function: each call prints its peak of host and device memory to standard error.

    The last result is the wrapper's attribute ``memory``, a `MemoryUse`. Works without a GPU, too. The peak
    on the host is the kernel's own, so that memory freed again inside the call counts as well.
    """

    @functools.wraps(function)
    def measured(*args: P.args, **kwargs: P.kwargs) -> R:
        with _Peak(getattr(function, "__qualname__", "function")) as peak:
            result = function(*args, **kwargs)
        measured.memory = peak.use  # type: ignore[attr-defined]  # documented above
        print(f"unstarve: {peak.use}", file=sys.stderr)
        return result

    return measured


class _Peak:
    """Memory of a block; `use` is there once it has ended."""

    use: MemoryUse

    def __init__(self, name: str) -> None:
        self._name = name
        self._before = 0

    def __enter__(self) -> _Peak:
        if _uses_gpu():
            torch.cuda.reset_peak_memory_stats()
        _reset_host_peak()
        self._before = _status_bytes("VmRSS")
        return self

    def __exit__(self, *error: object) -> None:
        used = _uses_gpu()
        self.use = MemoryUse(
            self._name,
            self._before,
            max(_status_bytes("VmHWM"), self._before),
            _status_bytes("VmRSS"),
            torch.cuda.max_memory_allocated() if used else None,
            torch.cuda.max_memory_reserved() if used else None,
        )


def largest_batch(
    model: torch.nn.Module,
    make_batch: Callable[[int], Any],
    *,
    step: Callable[[torch.nn.Module, Any], object] | None = None,
    limit: int | None = None,
    sizes: Sequence[int] | None = None,
    verify: bool = False,
) -> int:
    """The largest batch size whose training step fits into memory, from the slope over a few small ones.

    `make_batch(n)` returns a batch of n samples, on the model's device. `step(model, batch)` runs one
    training step; by default a forward pass and a backward pass of the sum of its output. On a GPU the free
    memory of the device counts; on a CPU `limit` bytes, by default the free memory of the machine. 90 % of it
    may be filled. `sizes` are the batch sizes to measure; by default the first whose memory is clearly
    visible, and two more.

    `verify` runs one step with the answer, and halves it until it fits. Raises UsageError if memory does not
    grow with the batch, and if not even one sample fits.
    """
    run = step or _default_step
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    on_gpu = device.type == "cuda"
    free = _device_free(device) if on_gpu else limit if limit is not None else available_bytes()

    def needed(count: int) -> int:
        return _step_peak(model, make_batch(count), run, device)

    sizes = _visible_sizes(needed, free) if sizes is None else sizes
    if len(sizes) < 2 or list(sizes) != sorted(set(sizes)) or sizes[0] < 1:
        raise UsageError(f"sizes must be at least two growing batch sizes, got {list(sizes)}")
    peaks = [needed(count) for count in sizes]
    slope, base = _line(sizes, peaks)
    if slope <= 0:
        raise UsageError(
            f"memory does not grow with the batch ({', '.join(size(peak) for peak in peaks)} for "
            f"{', '.join(map(str, sizes))} samples); try larger sizes"
        )
    fits = int(min((_SAFETY * free - base) / slope, _MOST_SAMPLES))
    while verify and fits >= 1 and not _fits(model, make_batch, run, fits, device, free):
        fits //= 2
    if fits < 1:
        raise UsageError(
            f"not even one sample fits: it needs {size(base + slope)}, and {size(free)} are free"
        )
    return fits


def _visible_sizes(needed: Callable[[int], int], free: int) -> Sequence[int]:
    """Three batch sizes, the smallest of which needs a memory that is clearly visible."""
    count = 1
    needed(count)  # the first step of all also fills caches
    while count < _MOST_SAMPLES and needed(count) < min(_VISIBLE_BYTES, free // 16):
        count *= 2
    return count, 2 * count, 3 * count


def _default_step(model: torch.nn.Module, batch: Any) -> None:
    output = model(*batch) if isinstance(batch, (tuple, list)) else model(batch)
    tensor = output if isinstance(output, torch.Tensor) else next(iter(output))
    tensor.sum().backward()


def _step_peak(
    model: torch.nn.Module, batch: Any, run: Callable[[torch.nn.Module, Any], object], device: torch.device
) -> int:
    """Bytes that a step needs beyond the model itself."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
    with _Peak("step") as peak:
        run(model, batch)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    model.zero_grad(set_to_none=True)
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) - before
    return peak.use.host_added


def _fits(
    model: torch.nn.Module,
    make_batch: Callable[[int], Any],
    run: Callable[[torch.nn.Module, Any], object],
    count: int,
    device: torch.device,
    free: int,
) -> bool:
    try:
        return _step_peak(model, make_batch(count), run, device) <= free
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return False


def _line(sizes: Sequence[int], peaks: Sequence[int]) -> tuple[float, float]:
    """Slope and base of the least-squares line."""
    mean_size, mean_peak = sum(sizes) / len(sizes), sum(peaks) / len(peaks)
    spread = sum((one - mean_size) ** 2 for one in sizes)
    slope = sum((s - mean_size) * (p - mean_peak) for s, p in zip(sizes, peaks, strict=True)) / spread
    return slope, max(mean_peak - slope * mean_size, 0.0)


def _device_free(device: torch.device) -> int:
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def _uses_gpu() -> bool:
    return torch.cuda.is_available() and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _reset_host_peak() -> None:
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return  # then the peak is that of the whole process


def _status_bytes(name: str) -> int:
    """A line of ``/proc/self/status``, such as ``VmRSS:  123 kB``; 0 where there is none."""
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
