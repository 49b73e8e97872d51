"""How long this machine takes for what loading needs besides the user's code, measured in half a second.

`TYPICAL` holds costs that were measured with stock torch 2.11 and 2.13 (Linux, fork, file descriptors) for
batches of 1 to 60 tensors and 2 KB to 20 MB on two and four cores of one kind of machine. Other machines are
faster or slower at it, so the primitives behind these costs are timed wherever a run is recorded, and the
costs are scaled by the ratio. What a run recorded itself always comes first.

`of_this_machine` measures once per machine and keeps the result in the user's cache folder. It must not
disturb a training, so it is called when the command has ended, or by a verb that runs nothing. It needs no
torch: torch hands tensors over with the same descriptors, pipes and pages of the standard library.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import mmap
import os
import pickle
import platform
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from multiprocessing.reduction import DupFd, ForkingPickler
from pathlib import Path
from statistics import median
from typing import NamedTuple

from unstarve.machine import machine_cpu_s, usable_cores
from unstarve.model import MachineTimes, Run

REFERENCE = MachineTimes(
    message_s=5.7e-5,
    descriptor_s=5.0e-5,
    fresh_s_per_byte=4.8e-10,
    fork_s=2.2e-4,
    fork_s_per_byte=1.0e-11,
    half_crowded=1.1,
    crowded=1.2,
)
"""The machine of `TYPICAL`, as the code below measures it."""

_LONGEST_S = 3.0
_MESSAGES, _DESCRIPTORS = 16, 9
_FRESH_BYTES, _HELD_BYTES = 8 << 20, 64 << 20
_FORKS, _ROUNDS = 7, 3
_SETTLE_S, _CROWD_S = 0.01, 0.06
_TURN_S, _MOST_TURNS = 0.02, 8
_BLOCK_BYTES, _IMAGE_BYTES = 1 << 15, 1 << 20
_MOST_CROWD = 128
_LARGEST_FACTOR = 20.0
"""A measurement further from the reference than this went wrong."""
_BUSY_CORES = 0.15
"""Share of the cores: with more foreign work than this, the effect of our own cannot be seen."""
_KEPT_S, _KEPT_BUSY_S = 30 * 86_400, 3_600


@dataclass(frozen=True, slots=True)
class LoadingCosts:
    """Seconds that loading takes besides fetching and collating."""

    send_s: float = 0.15e-3
    """Sending thread, CPU: pickling a handle for each tensor."""
    send_s_per_tensor: float = 0.07e-3
    send_delay_s: float = 0.3e-3
    take_s: float = 0.35e-3
    """Training thread, CPU: the message, each tensor's descriptor and mapping, the next index."""
    take_s_per_tensor: float = 0.24e-3
    take_delay_s: float = 0.15e-3
    """Training thread: waiting for the worker to hand out each descriptor."""
    take_delay_s_per_tensor: float = 0.14e-3
    index_delay_s: float = 0.3e-3
    """From giving an index to an idle worker until it begins."""
    share_s: float = 0.12e-3
    """Worker, CPU: creating shared memory."""
    share_s_per_tensor: float = 0.06e-3
    share_s_per_byte: float = 0.7e-9
    """Worker, CPU: the kernel maps fresh pages of shared memory for a large batch."""
    touch_s_per_byte: float = 0.25e-9
    """First reader of the batch, the step or the pin thread: mapping the same pages again, and unmapping."""
    fresh_s_per_byte: float = 0.25e-9
    """Worker, besides the kernel's time: fresh memory is in no cache."""
    private_s_per_byte: float = 0.29e-9
    """Training thread, without workers: the kernel maps fresh pages for a batch too large to reuse memory."""
    in_line_s: float = 0.08e-3
    """Training thread, without workers: cost of a batch besides its samples and collating."""
    disturbed_s: float = 0.25e-3
    """Added to a step by workers that write, send and wake up beside it."""
    worker_start_s: float = 6e-3
    """Training thread: creating one worker, besides what the fork takes for the memory of the process."""
    fork_s_per_byte: float = REFERENCE.fork_s_per_byte
    """Training thread: a fork copies the page tables of its private memory."""
    worker_boot_s: float = 12e-3
    """Worker, CPU, until its first batch."""
    spawn_boot_s: float = 2.5
    """The same for a spawned worker, which starts Python and imports torch first."""
    end_s: float = 10e-3
    """Training thread: ending the workers of an epoch."""
    end_s_per_worker: float = 2.5e-3
    half_crowded: float = REFERENCE.half_crowded
    """Duration of CPU work while half of the cores compute, relative to a machine that is idle otherwise."""
    crowded: float = REFERENCE.crowded
    """The same while all of them do: they share caches, memory, power, and often the core itself."""
    measured: bool = False
    """On the run's machine; otherwise these are typical values."""

    def growth(self, share: float) -> float:
        """Duration of CPU work while this share of the cores computes, relative to a single core's."""
        if share <= 0.5:
            return 1 + (self.half_crowded - 1) * share * 2
        return self.half_crowded + (self.crowded - self.half_crowded) * (min(share, 1.0) * 2 - 1)


TYPICAL = LoadingCosts()
_BY_MESSAGE = (
    "send_s", "send_delay_s", "take_s", "take_delay_s", "index_delay_s", "share_s", "in_line_s",
    "disturbed_s", "worker_start_s", "worker_boot_s", "spawn_boot_s", "end_s",
)  # fmt: skip
_BY_DESCRIPTOR = (
    "send_s_per_tensor", "take_s_per_tensor", "take_delay_s_per_tensor", "share_s_per_tensor",
)  # fmt: skip
_BY_BYTE = ("share_s_per_byte", "touch_s_per_byte", "fresh_s_per_byte", "private_s_per_byte")
_BY_FORK = ("end_s_per_worker",)


def loading_costs(times: MachineTimes | None) -> LoadingCosts:
    """The costs on a machine with these times; typical ones where it was not measured."""
    if times is None:
        return TYPICAL

    def scaled(names: Sequence[str], took_s: float, usual_s: float) -> dict[str, float]:
        factor = min(max(took_s / usual_s, 1 / _LARGEST_FACTOR), _LARGEST_FACTOR)
        return {name: getattr(TYPICAL, name) * factor for name in names}

    return LoadingCosts(
        **scaled(_BY_MESSAGE, times.message_s, REFERENCE.message_s),
        **scaled(_BY_DESCRIPTOR, times.descriptor_s, REFERENCE.descriptor_s),
        **scaled(_BY_BYTE, times.fresh_s_per_byte, REFERENCE.fresh_s_per_byte),
        **scaled(_BY_FORK, times.fork_s, REFERENCE.fork_s),
        fork_s_per_byte=min(times.fork_s_per_byte, _LARGEST_FACTOR * REFERENCE.fork_s_per_byte),
        half_crowded=min(max(times.half_crowded, 1.0), _LARGEST_FACTOR),
        crowded=min(max(times.crowded, times.half_crowded, 1.0), _LARGEST_FACTOR),
        measured=True,
    )


# Measured once per machine.


def of_this_machine() -> MachineTimes | None:
    """This machine's times, from the user's cache folder or measured now; None if that fails."""
    kept = _kept()
    if kept is not None:
        return kept.times
    # In a process of its own: no threads, little memory, and a limit on what can go wrong.
    command = [sys.executable, "-m", "unstarve.predict.machine_times"]
    quiet, times = False, None
    try:
        said = json.loads(subprocess.run(command, capture_output=True, timeout=_LONGEST_S, check=True).stdout)
        quiet, times = said["quiet"], _checked(said["times"])
    except (OSError, subprocess.SubprocessError, ValueError, TypeError, KeyError):
        pass  # too busy, for example: it is tried again in an hour
    except KeyboardInterrupt:
        return None  # the run is still to be finished
    _keep(_Kept(time.time() + (_KEPT_S if quiet else _KEPT_BUSY_S), times))
    return times


def on_its_machine(run: Run, *, may_measure: bool) -> Run:
    """The same run, with this machine's times if it was recorded here and holds none.

    `may_measure` allows half a second to measure them, unless the run's training is still going on.
    """
    if run.machine is not None or not any(process.host == socket.gethostname() for process in run.processes):
        return run
    times = of_this_machine() if may_measure and not run.live else known_times()
    return dataclasses.replace(run, machine=times)


def known_times() -> MachineTimes | None:
    """This machine's times if they were measured lately: reads one small file."""
    kept = _kept()
    return None if kept is None else kept.times


class _Kept(NamedTuple):
    """What was found, and until when it holds."""

    until: float
    times: MachineTimes | None
    """None if it could not be measured."""


def _kept() -> _Kept | None:
    try:
        said = json.loads(_cache_file().read_text())
        kept = _Kept(float(said["until"]), None if said["times"] is None else _checked(said["times"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return kept if time.time() < kept.until else None


def _keep(kept: _Kept) -> None:
    times = None if kept.times is None else kept.times._asdict()
    with contextlib.suppress(OSError):  # it is measured again the next time
        file = _cache_file()
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = file.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps({"until": kept.until, "times": times}))
        unfinished.replace(file)


def _checked(said: Mapping[str, float]) -> MachineTimes:
    """Raises ValueError for times that no machine has, TypeError for other things."""
    times = MachineTimes(**said)
    for one, usual in zip(times, REFERENCE, strict=True):
        if not 0 <= one <= usual * _LARGEST_FACTOR:
            raise ValueError(f"measured {one}, where {usual} is usual")
    return times


def _cache_file() -> Path:
    """One file for each kind of machine that shares this folder: a home directory may be on a network."""
    given = os.environ.get("UNSTARVE_CACHE")
    folder = given or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unstarve"
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                break
        else:
            line = platform.processor()
    what = (platform.node(), line, os.cpu_count(), usable_cores(), platform.release(), sys.version_info[:2])
    return Path(folder) / f"machine-{hashlib.sha256(repr(what).encode()).hexdigest()[:12]}.json"


def measure() -> MachineTimes:
    """Time the primitives on this machine, in half a second. Call it in a process without threads.

    CPU times are the smallest of several rounds, so that other processes matter little.
    """
    one, several = _take_s(1), _take_s(_DESCRIPTORS)
    cores = min(usable_cores(), _MOST_CROWD)
    fork_s = _fork_s()
    with mmap.mmap(-1, _HELD_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        for at in range(0, _HELD_BYTES, mmap.PAGESIZE):
            held[at] = 1
        held_fork_s = _fork_s()
    alone_s = _alone_s(cores)
    half = _crowded_s(cores // 2) / alone_s if cores > 2 else 1.0
    return MachineTimes(
        message_s=one,
        descriptor_s=max(several - one, 0.0) / (_DESCRIPTORS - 1),
        fresh_s_per_byte=_fresh_s_per_byte(),
        fork_s=fork_s,
        fork_s_per_byte=max(held_fork_s - fork_s, 0.0) / _HELD_BYTES,
        half_crowded=max(half, 1.0),
        crowded=max(_crowded_s(cores) / alone_s if cores > 1 else 1.0, half, 1.0),
    )


def _take_s(descriptors: int) -> float:
    """CPU seconds to take a message with so many descriptors from another process."""
    ours, theirs = Pipe()
    other = Process(target=_send, args=(theirs, descriptors))
    other.start()
    took = []
    for _ in range(_MESSAGES):
        ours.send_bytes(b"next")
        ours.poll(None)
        begin_s = time.thread_time()
        for handle in pickle.loads(ours.recv_bytes()):
            fd = handle.detach()
            mmap.mmap(fd, mmap.PAGESIZE).close()
            os.close(fd)
        took.append(time.thread_time() - begin_s)
    ours.send_bytes(b"")  # the end
    other.join()
    return min(took)


def _send(theirs: Connection, descriptors: int) -> None:
    """The other side: fresh shared memory and a message about it, whenever it is asked."""
    with contextlib.suppress(EOFError, OSError):
        while theirs.recv_bytes():
            fds = [os.memfd_create("unstarve") for _ in range(descriptors)]
            for fd in fds:
                os.ftruncate(fd, mmap.PAGESIZE)
            theirs.send_bytes(ForkingPickler.dumps([DupFd(fd) for fd in fds]))
            for fd in fds:
                os.close(fd)


def _fresh_s_per_byte() -> float:
    """CPU seconds per byte to write to shared memory for the first time, beyond writing to it again."""
    content, found = bytes(_FRESH_BYTES), []
    for _ in range(_ROUNDS):
        fd = os.memfd_create("unstarve")
        os.ftruncate(fd, _FRESH_BYTES)
        with mmap.mmap(fd, _FRESH_BYTES) as shared:
            write = partial(shared.__setitem__, slice(None), content)
            took = [_cpu_s(write), _cpu_s(write)]
        os.close(fd)
        found.append(took[0] - took[1])
    return max(min(found), 0.0) / _FRESH_BYTES


def _cpu_s(work: Callable[[], object]) -> float:
    begin_s = time.thread_time()
    work()
    return time.thread_time() - begin_s


def _fork_s() -> float:
    """Seconds that a fork holds up the process that forks."""
    took = []
    for _ in range(_FORKS):
        begin_s = time.perf_counter()
        pid = os.fork()
        if not pid:
            os._exit(0)
        took.append(time.perf_counter() - begin_s)
        os.waitpid(pid, 0)
    return min(took)


def _decode_s(until_s: float) -> float:
    """Median CPU seconds of a piece of work like decoding an image, which is repeated until then."""
    content, half = os.urandom(_BLOCK_BYTES), _IMAGE_BYTES // 2
    image = memoryview(bytearray(_IMAGE_BYTES))

    def decode() -> None:
        zlib.compress(content, 1)
        image[:half] = image[half:]

    took = [_cpu_s(decode)]
    while time.perf_counter() < until_s:
        took.append(_cpu_s(decode))
    return median(took)


def _crowded_s(processes: int) -> float:
    """CPU seconds of that work while so many processes do it at once."""
    return _working_s([_SETTLE_S + 1e-3 * processes] * processes, _CROWD_S)


def _alone_s(cores: int) -> float:
    """CPU seconds of that work in one process: several take turns, for cores are not equally fast."""
    turns = min(cores, _MOST_TURNS)
    return _working_s([_SETTLE_S + 1e-3 * turns + _TURN_S * turn for turn in range(turns)], _TURN_S)


def _working_s(delays_s: Sequence[float], lasts_s: float) -> float:
    """Median CPU seconds of that work in processes that begin it after these delays."""
    reader, writer = os.pipe()
    now_s = time.perf_counter()
    pids = []
    for delay_s in delays_s:
        pid = os.fork()
        if not pid:
            time.sleep(max(now_s + delay_s - time.perf_counter(), 0.0))
            os.write(writer, b"%r\n" % _decode_s(now_s + delay_s + lasts_s))
            os._exit(0)
        pids.append(pid)
    os.close(writer)
    with os.fdopen(reader) as said:
        found = [float(line) for line in said]
    for pid in pids:
        os.waitpid(pid, 0)
    return median(found)


def main() -> None:
    """Print the times as JSON, and whether other processes left the machine alone meanwhile."""
    begin_s, machine_s = time.perf_counter(), machine_cpu_s()
    times, own = measure(), os.times()
    now_s = machine_cpu_s()
    own_s = own.user + own.system + own.children_user + own.children_system
    quiet = True
    if machine_s is not None and now_s is not None:
        foreign = (now_s - machine_s - own_s) / (time.perf_counter() - begin_s)
        quiet = foreign < _BUSY_CORES * usable_cores()
    if not quiet:  # it was crowded from the beginning
        times = times._replace(half_crowded=REFERENCE.half_crowded, crowded=REFERENCE.crowded)
    print(json.dumps({"quiet": quiet, "times": times._asdict()}))


if __name__ == "__main__":
    main()
