"""What a profiler's file says about a training, reduced to what a report shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IdleGap:
    """A stretch in which a device had nothing to do."""

    device: int
    begin_s: float
    """Since the beginning of the window."""
    seconds: float
    host: str
    """What the training thread was doing in the middle of it; empty when the file does not say."""


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """One device over the window."""

    device: int
    busy_s: float
    """Union of kernels, copies, memsets and graphs."""
    kernel_s: float
    """Union of kernels and graphs."""
    idle_s: float
    starved_s: float
    """Idle while the training thread waited for a loader."""
    exposed_copy_s: float
    """Copies from the host while no kernel ran."""
    launch_gap_s: float = 0.0
    """Short idle gaps between kernels: the host launched the next one too late."""
    median_kernel_s: float | None = None
    """Half of the kernels are shorter; None without kernels."""
    launch_bound: bool | None = None
    """Whether short kernels that are launched one by one leave the device idle: `importers.device_work` has
    the limits. None in runs that were recorded before this was told."""

    @property
    def late_s(self) -> float:
        """Idle for another reason than the loader and launching: the host did something else."""
        return max(self.idle_s - self.starved_s - self.launch_gap_s, 0.0)


@dataclass(frozen=True, slots=True)
class CopyUse:
    """Copies of one kind on one device."""

    device: int
    kind: str
    """``HtoD``, ``DtoH``, ``DtoD`` or ``PtoP``."""
    memory: str
    """Host memory: ``pageable``, ``pinned``, or empty when unknown or not involved."""
    count: int
    bytes: int
    seconds: float
    exposed_s: float
    """While no kernel ran on the device."""


@dataclass(frozen=True, slots=True)
class NamedUse:
    """A kernel, an operator or a system call, over all its calls."""

    name: str
    calls: int
    seconds: float
    """Union-free sum of its durations."""
    self_s: float | None = None
    """Operators: without the operators inside it, on the CPU."""
    device_s: float | None = None
    """Operators: its kernels and copies on the device."""
    process: int | None = None
    """System calls: the process that made them."""


@dataclass(frozen=True, slots=True)
class FileUse:
    """One file, as one process used it."""

    path: str
    process: int
    opens: int
    reads: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PhaseUse:
    """One phase of the training step, over all profiled steps."""

    name: str
    """``data``, ``copy``, ``forward``, ``backward``, ``optimizer`` or ``other``."""
    seconds: float
    """On the host. The phases sum to the steps."""
    device_s: float
    """Of the kernels and copies that were launched in it."""


@dataclass(frozen=True, slots=True)
class AllocatedBy:
    """What one phase or one operator allocated on one device."""

    name: str
    allocations: int
    allocated_bytes: int
    net_bytes: int
    """Allocated less freed: what it left behind."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Tensors on one device over the window, as the profiler saw them allocated and freed."""

    device: str
    """``cuda:0``, ``cpu`` …"""
    relative: bool
    """Only allocations inside of the window are known: bytes count from its beginning."""
    peak_bytes: int
    """Most bytes allocated at once."""
    peak_at_s: float
    reserved_bytes: int | None
    """What torch's allocator held at the peak; None where it reserves nothing or the trace does not say."""
    unused_bytes: int | None
    """Reserved and not allocated at the peak: fragmentation, and blocks kept for later."""
    at_s: tuple[float, ...] = ()
    """Times of at most 300 points, since the beginning of the window."""
    allocated: tuple[int, ...] = ()
    """Bytes at these times: the most and the last of each stretch."""
    reserved: tuple[int, ...] = ()
    """The same; empty where `reserved_bytes` is None."""
    by_phase: tuple[AllocatedBy, ...] = ()
    by_operator: tuple[AllocatedBy, ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """One profiled window of a training."""

    source: str
    """``torch.profiler`` or ``nsys``."""
    tool: str
    """Version of the profiler or of its export; empty when unknown."""
    window_s: float
    waits: int
    """Loader waits in the window."""
    wait_s: float
    devices: tuple[DeviceUse, ...] = ()
    steps: int = 0
    """Profiled steps; 0 when the file does not mark them."""
    phases: tuple[PhaseUse, ...] = ()
    gaps: tuple[IdleGap, ...] = ()
    """The longest, longest first."""
    copies: tuple[CopyUse, ...] = ()
    kernels: tuple[NamedUse, ...] = ()
    operators: tuple[NamedUse, ...] = ()
    by_shape: tuple[NamedUse, ...] = ()
    """Operators with the shapes of their inputs; empty when those were not recorded."""
    by_stack: tuple[NamedUse, ...] = ()
    """Operators with the line of Python that called them; empty when stacks were not recorded."""
    memory: tuple[DeviceMemory, ...] = ()
    """By device, the fullest first; empty when the profiler did not record memory."""
    calls: tuple[NamedUse, ...] = ()
    files: tuple[FileUse, ...] = ()
