"""An NVIDIA GPU as seen from outside of training: is CUDA in use, how busy and how full is the GPU.

Nothing here ever creates a CUDA context. All of it comes from the driver's management library (NVML). The
driver itself records the utilization several times a second, so that reading it now and then gives all of
it, no matter when training finds time. It is about the whole GPU: other processes count, too. A number that
cannot be had (another vendor, a container without the library, a slice of a GPU) is −1.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from typing import Any

import torch

_UNKNOWN = -1
_RELAXED = 2
"""CUDA's ``cudaStreamCaptureModeRelaxed``."""
_NO_ATTACH = 2
"""Initialize without attaching to the GPUs, which takes seconds where there are many."""
_HELD = ("allocated", "reserved")
_GPU_UTILIZATION = 1
_PCIE_SENT, _PCIE_RECEIVED = 0, 1
_MOST_SAMPLES = 1024


def cuda_in_use() -> bool:
    """Whether this process has initialized CUDA already."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]  # torch does not type it


def has_context(device: int) -> bool:
    """Whether this process has already used this device, rather than merely being able to."""
    asked = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    return asked is not None and bool(asked(device))


def allocator_peaks() -> dict[str, int]:
    """What torch's allocator held at most on the fullest device of this process; empty without CUDA.

    ``allocated_peak_bytes`` are those of tensors, ``reserved_peak_bytes`` also those kept for later ones. A
    script that resets torch's peaks gets those since then.
    """
    if not cuda_in_use():
        return {}
    found = []
    for device in range(torch.cuda.device_count()):
        if has_context(device):
            stats = torch.cuda.memory_stats_as_nested_dict(device)
            found.append([stats.get(f"{name}_bytes", {}).get("all", {}).get("peak", 0) for name in _HELD])
    return dict(zip((f"{name}_peak_bytes" for name in _HELD), max(found, default=()), strict=False))


def describe_device(lose: Callable[[str], None]) -> dict[str, Any]:
    """The name of what this process trains on, and how full it was; `lose` is told what cannot be read."""
    name = torch.cuda.get_device_name() if cuda_in_use() else "cpu"
    try:
        return {"name": name, **allocator_peaks()}
    except Exception as error:  # another allocator than torch's own keeps no such numbers
        lose(f"the memory of tensors on the GPU is unknown: {error!r}")
        return {"name": name}


def device_memory() -> dict[str, int] | None:
    """Memory in tensors now and at most, and of the device in all; None if CUDA is not in use."""
    if not cuda_in_use():
        return None
    return {
        "allocated_bytes": torch.cuda.memory_allocated(),
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "total_bytes": torch.cuda.mem_get_info()[1],
    }


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Value(ctypes.Union):
    _fields_ = (("integer", ctypes.c_uint), ("double", ctypes.c_double))


class _Sample(ctypes.Structure):
    _fields_ = (("at_us", ctypes.c_ulonglong), ("value", _Value))


class Gauge:
    """One GPU's load and memory."""

    def __init__(self, library: Any, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._handle = handle
        self._samples = (_Sample * _MOST_SAMPLES)()
        self._seen_us = time.time_ns() // 1000
        """What the driver recorded before this moment is not about this process."""

    @staticmethod
    def of(device: int) -> Gauge | None:
        """The gauge of torch's device `device`; None where there is no such library or no such device."""
        library = _nvml()
        uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
        if library is None or uuid is None:
            return None
        handle = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(handle)):
            return None
        return Gauge(library, handle)

    def utilization(self) -> list[tuple[int, int]]:
        """What the driver has recorded since the last call: (nanoseconds since 1970, percent), oldest first.

        The percentage is the share of the time since the previous sample in which any kernel was running.
        """
        count, kind = ctypes.c_uint(_MOST_SAMPLES), ctypes.c_uint()
        failed = self._library.nvmlDeviceGetSamples(
            self._handle,
            _GPU_UTILIZATION,
            ctypes.c_ulonglong(self._seen_us),
            ctypes.byref(kind),
            ctypes.byref(count),
            self._samples,
        )
        if failed:  # also when there is nothing new
            return []
        found = [(s.at_us, s.value.integer) for s in self._samples[: count.value] if s.at_us > self._seen_us]
        self._seen_us = max((at_us for at_us, _ in found), default=self._seen_us)
        return [(at_us * 1000, percent) for at_us, percent in sorted(found)]

    def engines(self) -> tuple[int, int, int, int]:
        """Milliwatts; bytes a second received and sent over PCI Express; percent of the JPEG engines' time.

        The driver watches PCI Express for 20 ms a direction, and the caller waits for it.
        """
        power_mw = self._number("nvmlDeviceGetPowerUsage")
        kb_per_s = [self._number("nvmlDeviceGetPcieThroughput", way) for way in (_PCIE_RECEIVED, _PCIE_SENT)]
        received, sent = (_UNKNOWN if number == _UNKNOWN else number * 1000 for number in kb_per_s)
        sampled_us = ctypes.byref(ctypes.c_uint())
        return power_mw, received, sent, self._number("nvmlDeviceGetJpgUtilization", after=(sampled_us,))

    def _number(self, name: str, *before: int, after: tuple[Any, ...] = ()) -> int:
        """What a function of the library says; unknown where the driver is too old for it, or refuses."""
        function, found = getattr(self._library, name, None), ctypes.c_uint()
        if function is None or function(self._handle, *before, ctypes.byref(found), *after):
            return _UNKNOWN
        return found.value

    def memory(self) -> tuple[int, int]:
        """Bytes in use on the device, by all processes, and its total."""
        memory = _Memory()
        if self._library.nvmlDeviceGetMemoryInfo(self._handle, ctypes.byref(memory)):
            return _UNKNOWN, _UNKNOWN
        return memory.used, memory.total

    def shared(self) -> bool:
        """Whether more than one process computes on the device, as far as this process can see."""
        count = ctypes.c_uint(0)
        processes = getattr(self._library, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        if processes is not None:  # since driver 510
            # Without room for the list the call fails, but still says how long the list is.
            processes(self._handle, ctypes.byref(count), None)
        return count.value > 1


@functools.cache
def _nvml() -> Any | None:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        return None if library.nvmlInitWithFlags(_NO_ATTACH) else library
    except (OSError, AttributeError):  # no NVIDIA driver, or one that is too old
        return None
