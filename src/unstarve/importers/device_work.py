"""What ran on one device, and why it was idle in between."""

from __future__ import annotations

import numpy as np

from unstarve.importers.capture import COPY_KINDS, Capture, Column, Times
from unstarve.importers.spans import Union, clipped, complement, minus, shared_each, shared_ns, union
from unstarve.model.profile import DeviceUse, IdleGap

MOST_GAPS = 10
SHORT_GAP_NS = 200_000
"""A launch gap is shorter: to launch one operator takes the host 10 to 100 µs. In a longer one it does
something else, and `IdleGap` says what."""
SHORT_KERNEL_NS = 50_000
"""The host needs about this long for an operator in eager mode. While kernels take longer, it runs ahead."""
LAUNCH_BOUND = 0.2
"""Share of the window from which launch gaps make it launch-bound: without them it is 1.25 times as fast, a
gain that is worth a CUDA graph or torch.compile."""
_LOOK_BACK = 64
"""Host events before a moment among which the one around it is sought."""
_UNKNOWN_NS = np.iinfo(np.int64).max


class DeviceWork:
    """What ran on one device, as unions inside the window."""

    def __init__(self, capture: Capture, device: int, low: int, high: int) -> None:
        self._device, self._low, self._high = device, low, high
        self._columns = (capture.kernels, capture.copies, capture.fills)
        self._launches = capture.launches
        self.kernels = self._of(capture.kernels)
        copies = capture.copies
        self.from_host = self._of(copies, copies.of("kind") == COPY_KINDS.index("HtoD"))
        parts = [self.kernels, self._of(copies), self._of(capture.fills)]
        busy = union(np.concatenate([p.begin for p in parts]), np.concatenate([p.end for p in parts]))
        self.busy = clipped(busy, low, high)
        self.idle = complement(busy, low, high)

    def _of(self, column: Column, chosen: np.ndarray | None = None) -> Union:
        mine = self._mine(column)
        if chosen is not None:
            mine &= chosen
        return clipped(union(column.begin[mine], column.end[mine]), self._low, self._high)

    def _mine(self, column: Column) -> np.ndarray:
        mine: np.ndarray = column.of("device") == self._device
        return mine

    def use(self, waits: Union) -> DeviceUse:
        """The device's seconds over the window; `waits` are those of the training thread for a loader."""
        window_ns = self._high - self._low
        launch_gap_ns = minus(self._launch_gaps(), waits).total_ns
        median_ns = self._median_kernel_ns()
        return DeviceUse(
            device=self._device,
            busy_s=self.busy.total_ns / 1e9,
            kernel_s=self.kernels.total_ns / 1e9,
            idle_s=self.idle.total_ns / 1e9,
            starved_s=shared_ns(self.idle, waits) / 1e9,
            launch_gap_s=launch_gap_ns / 1e9,
            exposed_copy_s=(self.from_host.total_ns - shared_ns(self.from_host, self.kernels)) / 1e9,
            median_kernel_s=None if median_ns is None else median_ns / 1e9,
            launch_bound=median_ns is not None
            and median_ns < SHORT_KERNEL_NS
            and launch_gap_ns >= LAUNCH_BOUND * window_ns,
        )

    def _median_kernel_ns(self) -> float | None:
        kernels = self._columns[0]
        mine = self._mine(kernels)
        return float(np.median(kernels.end[mine] - kernels.begin[mine])) if mine.any() else None

    def _launch_gaps(self) -> Union:
        """Short idle gaps before work that the host launched too late: the call ended inside of the gap.

        Where the file does not say which call launched the work, a short gap counts.
        """
        begin, end = self.idle.begin, self.idle.end
        work, launched = self._launched()
        after = np.searchsorted(work, end)
        known = np.append(launched, np.int64(-1))  # no work follows the last gap
        late = known[np.minimum(after, len(launched))] > begin
        chosen = late & (end - begin < SHORT_GAP_NS)
        return Union(begin[chosen], end[chosen])

    def _launched(self) -> tuple[Times, Times]:
        """When each piece of the device's work began, in order, and when the call that launched it ended."""
        mine = [self._mine(column) for column in self._columns]
        columns = list(zip(self._columns, mine, strict=True))
        begin = np.concatenate([column.begin[chosen] for column, chosen in columns])
        call = np.concatenate([column.of("call")[chosen] for column, chosen in columns])
        order = np.argsort(begin, kind="stable")
        begin, call = begin[order], call[order]
        calls = self._launches.of("call")
        by_call = np.argsort(calls, kind="stable")
        calls = calls[by_call]
        at = np.minimum(np.searchsorted(calls, call), max(len(calls) - 1, 0))
        if not len(calls):
            return begin, np.full(len(begin), _UNKNOWN_NS)
        known = (call >= 0) & (calls[at] == call)
        return begin, np.where(known, self._launches.end[by_call][at], _UNKNOWN_NS)

    def gaps(self, host: HostThread, waits: Union) -> list[IdleGap]:
        """The longest stretches without work."""
        lengths = self.idle.end - self.idle.begin
        longest = np.argsort(-lengths, kind="stable")[:MOST_GAPS]
        found = []
        for at in longest:
            begin, end = int(self.idle.begin[at]), int(self.idle.end[at])
            waited = int(shared_each(np.array([begin]), np.array([end]), waits)[0])
            doing = "waiting for the loader" if 2 * waited > end - begin else host.doing((begin + end) // 2)
            found.append(IdleGap(self._device, (begin - self._low) / 1e9, (end - begin) / 1e9, doing))
        return found


class HostThread:
    """What one thread did, by moment."""

    def __init__(self, capture: Capture, thread: int | None) -> None:
        mine = capture.host.of("thread") == thread
        order = np.argsort(capture.host.begin[mine], kind="stable")
        self._begin = capture.host.begin[mine][order]
        self._end = capture.host.end[mine][order]
        self._name = capture.host.of("name")[mine][order]
        self._texts = capture.names.texts

    def doing(self, moment: int) -> str:
        """The innermost event around a moment; empty when there is none."""
        last = int(np.searchsorted(self._begin, moment, side="right"))
        for at in range(last - 1, max(last - 1 - _LOOK_BACK, -1), -1):
            if self._end[at] >= moment:
                return self._texts[int(self._name[at])]
        return ""
