"""One recorder per process: owns its part of the run file, numbers loaders and epochs, watches limits."""

from __future__ import annotations

import atexit
import os
import platform
import socket
import sys
import threading
import time
import weakref
from collections import Counter
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import torch

from unstarve.collect import file_opens as opens
from unstarve.collect import transforms
from unstarve.collect.call_site import short
from unstarve.collect.dataset_facts import Describe, dataset_facts
from unstarve.collect.describe import failed_images, loader_config
from unstarve.collect.device.gpu import describe_device, device_memory
from unstarve.collect.device.stalls import device_clock
from unstarve.collect.host_facts import describe_system, group_rank, launched_as
from unstarve.collect.loader_numbers import LoaderNumbers
from unstarve.collect.loader_origin import Origin, creation
from unstarve.collect.memory.memory_watch import MemoryWatch
from unstarve.collect.own_cost import OwnCost
from unstarve.collect.perf_counters import PerfMeter
from unstarve.collect.process_pulse import ProcessPulse
from unstarve.collect.profiler_window import ProfilerWindow
from unstarve.collect.random_draws import DrawWatch
from unstarve.collect.sample_digests import SampleDigests
from unstarve.collect.sample_ledger import SampleLedger
from unstarve.collect.sampling import loop_sampler
from unstarve.collect.sampling.stack_sampler import StackSampler
from unstarve.collect.stuck.stack_dump import own_page
from unstarve.collect.stuck.training_waits import WaitWatch
from unstarve.collect.substitute import new_substitute
from unstarve.collect.training_thread import training_thread
from unstarve.model.launch_settings import LaunchSettings
from unstarve.record import format as f
from unstarve.record.writer import Writer

_DEVICE_AFTER_STEPS = 5
"""By then training has used its device, and a run that is killed later still names it."""

_SYSTEM_EVERY = 4
"""Reports of the stack sampler; reading /proc costs more than all the rest of a report."""

_MOST_LOSSES = 5
"""What cannot be recorded for one batch can rarely be recorded for another."""


class Recorder:
    """Writes this process's events. Every method may be called from any thread."""

    def __init__(self, settings: LaunchSettings, worker_id: int | None = None) -> None:
        self.settings = settings
        self.pid = os.getpid()
        worker = worker_id is not None or torch.utils.data.get_worker_info() is not None
        # A worker makes batches: it must neither be ended nor be fed from memory.
        self.substitute = None if worker else new_substitute()
        self.limit_reached = False
        """Some loader has delivered as many batches as were to be recorded; see `ends_at`."""
        self._delivered: Counter[int] = Counter()
        self._limit = sys.maxsize if worker else settings.steps or settings.stop_after or sys.maxsize
        self.own_cost = OwnCost()
        self._losses = 0
        self._stopped: str | None = None
        self._loaders = LoaderNumbers()
        self.sampler: StackSampler | None = None  # its thread does what training need not do itself
        self._watching = False
        self._pulse = ProcessPulse(training=not worker)
        self.taps: dict[int, weakref.ref[Any]] = {}
        """Of the newest iteration over each loader: now and then, one of its batches is looked at."""
        self._reports = 0
        """Of the stack sampler."""
        self._failed_before = failed_images()
        self._device_memory: dict[str, int] | None = None
        """When the first steps were over, if a GPU is used."""
        self._epochs: dict[int, int] = {}
        self._threads: dict[int, int] = {}
        self._lock = threading.RLock()
        name = f"{socket.gethostname()}-{self.pid}-{time.time_ns()}.part"
        self.writer = Writer(Path(settings.parts) / name, settings.segment_bytes)
        self.page = own_page(None if settings.state is None else Path(settings.state), worker_id)
        """What this process does now, for whoever looks when it hangs or has died."""
        self.waits = WaitWatch(self.page)
        if settings.raises_on_hang and not worker:
            self.waits.raise_when_asked()
        self.window: ProfilerWindow | None = None
        """The profiler's window, until it is over."""
        if settings.profile is not None and not worker:
            self.window = ProfilerWindow(settings.profile, Path(settings.parts), self.lose)
        self.draws = DrawWatch(self.writer.meta)
        self.digests = SampleDigests(self.writer.meta, self.lose) if settings.ledger and not worker else None
        """Digests every sample that is delivered, if asked to."""
        self.samples = SampleLedger(self.writer.meta)
        """What samplers give out."""
        self.perf = PerfMeter() if settings.perf else None
        """Reads the processor's counters around steps and fetches, if asked to."""
        self.device = None if worker else device_clock(self.row, self.lose)
        self.writer.ledger.has_device = self.device is not None
        self.memory = MemoryWatch(self.writer, training=not worker, on_request=settings.memory)
        start_ns = time.perf_counter_ns()
        self.writer.meta(
            "process",
            pid=self.pid,
            host=socket.gethostname(),
            **launched_as(),
            worker=worker,
            worker_id=worker_id,
            versions={
                "unstarve": settings.version,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
            start_ns=start_ns,
            offset_ns=time.time_ns() - start_ns,
        )
        atexit.register(self.close)
        # A process forked by multiprocessing exits without exit handlers, but runs these.
        self._at_exit = Finalize(None, self.close, exitpriority=0)

    @property
    def active(self) -> bool:
        """Whether anything is recorded: not in a forked child, and not after a limit was reached."""
        return self.writer.ledger.active

    def loader_number(
        self,
        loader: Any,
        kind: str,
        site: tuple[Any, ...] | None,
        name: str | None,
        describe_more: Describe | None = None,
    ) -> int:
        """The number of this loader. One created where a loader that is gone was created takes its number.

        `describe_more` adds facts about its dataset.
        """
        with self._lock:
            origin = Origin(*(site or creation().origin()))
            where = f"{short(origin.file)}:{origin.line}"
            config = loader_config(loader) | ({"remade_by": origin.remade_by} if origin.remade_by else {})
            length = config.pop("dataset_len", None)
            like = f"{where} {kind} {name or origin.words} {config}"
            anew = origin.maker is not None and origin.maker.makes_anew
            number, is_new = self._loaders.number(like, loader, length, anew=anew)
            if not is_new:
                return number
            shown = name or origin.name or f"loader {number + 1}"
            self.writer.meta(
                "loader",
                id=number,
                name=shown,
                where=where,
                kind=kind,
                config=config if length is None else config | {"dataset_len": length},
                **origin.told(kind, applied="applied" in config),
                dataset=dataset_facts(getattr(loader, "dataset", None), describe_more),
            )
            self.page.tell_loader(number, name=shown, where=where, workers=config.get("num_workers"))
            return number

    def next_epoch(self, number: int) -> int:
        """Number of the epoch that begins now, counted from 0."""
        with self._lock:
            epoch = self._epochs.get(number, -1) + 1
            self._epochs[number] = epoch
            return epoch

    def thread_number(self, ident: int | None = None) -> int:
        """0 for the thread that trains, a small number for every other; of the calling one by default."""
        ident = threading.get_ident() if ident is None else ident
        if ident == training_thread():
            return 0
        return self._threads.setdefault(ident, len(self._threads) + 1)

    def row(self, kind: int, now_ns: int, row: tuple[int | bytes, ...]) -> None:
        """Record one row."""
        if self.active:
            ledger = self.writer.ledger
            ledger.append(kind, f.ROW_KINDS[kind].pack(*row))
            if now_ns >= ledger.next_flush_ns:
                self.flush(now_ns)
            self._keep_sampling()

    def flush(self, now_ns: int) -> None:
        """Write out what was recorded so far."""
        if self.active:
            begin_ns = time.thread_time_ns()
            self.writer.flush(now_ns)
            self.own_cost.written_ns += time.thread_time_ns() - begin_ns
            self._keep_sampling()

    def _keep_sampling(self) -> None:
        """Resume the stack sampler after a fork, which stops it."""
        if self.sampler is not None and self.sampler.paused:
            self.sampler.resume()

    def count_step(self, number: int) -> None:
        """A loader has delivered a top-level batch. Loaders that are iterated side by side share a step."""
        self._delivered[number] += 1
        delivered = self._delivered[number]
        if delivered == _DEVICE_AFTER_STEPS:
            self._write_device()
            self._device_memory = device_memory()
            self._see_every_batch()
        if delivered >= self._limit:
            self.limit_reached = True

    def before_batch(self, number: int) -> None:
        """A loader is asked for a top-level batch while the profiler's window is not over."""
        if self.window is None:
            return
        try:
            self.window.before_batch(number)
        except Exception as error:  # training goes on without the profile
            self.lose(f"profiling failed: {error!r}")
            self.window.give_up()
        if self.window.done:
            self.window = None
            self._see_every_batch()

    def _see_every_batch(self) -> None:
        """Let batches pass through Python if something has to be decided at each of them."""
        deciding = (self.substitute, self.window, self.perf, self.digests)
        self.writer.ledger.special = self._limit < sys.maxsize or any(x is not None for x in deciding)

    def is_settled(self, number: int) -> bool:
        """Whether the loader's first steps, which are recorded differently, are over."""
        return self._delivered[number] >= _DEVICE_AFTER_STEPS

    def ends_at(self, number: int) -> bool:
        """Whether the recording ends when this loader is next asked: its last step is complete then."""
        return self.substitute is not None or self._delivered[number] >= self._limit

    def lose(self, message: str) -> None:
        """Note in the report that something could not be recorded."""
        with self._lock:
            self._losses += 1
            if self._losses <= _MOST_LOSSES:
                self.writer.meta("lost", message=message)
            elif self._losses == _MOST_LOSSES + 1:
                self.writer.meta("lost", message="further problems of this process are not listed")

    def stop(self, reason: str) -> None:
        """End the recording because a limit was reached."""
        self._stopped = reason
        self.close()

    def watch_stack(self) -> None:
        """Sample the stack of the calling thread from now on; one thread per process."""
        with self._lock:
            if self._watching:
                return
            self._watching = True
            loop_sampler.end()
            try:
                self.sampler = StackSampler(
                    self._write_sampled, self.lose, self._on_sample, self.memory.longest_s
                )
            except (OSError, RuntimeError) as error:
                self.lose(f"the stack sampler did not start, so the report names no functions: {error}")

    def _on_sample(self, now_ns: int, place: str | None, cpu_ns: int, queued_ns: int) -> float:
        """Called by the stack sampler's thread: work that training need not do itself.

        Returns the CPU seconds of looking at memory, which has its own pace.
        """
        paced_s = 0.0
        if self.active:
            self.waits.look(now_ns)
            self.samples.count()
            if self._pulse.due(now_ns):
                row = self._pulse.row(now_ns, place, cpu_ns, queued_ns)
                self.writer.row(f.PULSE, now_ns, row)
            paced_s = self.memory.look_if_due(now_ns)
            for reference in list(self.taps.values()):
                if (tap := reference()) is not None:
                    tap.measure_next()
            if self.device is not None:
                self.device.look_on(now_ns)
            # torch ends persistent workers with a signal: what is not written by then is lost.
            if now_ns >= self.writer.ledger.next_flush_ns:
                self.writer.flush(now_ns)
        return paced_s

    def _write_sampled(self, found: list[tuple[Any, ...]], cpu_s: float) -> None:
        with self._lock:
            if self.active:
                self.writer.meta("sampled", found=found, cpu_s=cpu_s)
                self.own_cost.sampler_s = cpu_s
                self.writer.meta("own", **self.own_cost.fields())
                self._write_perf()
                if self._reports % _SYSTEM_EVERY == 0:
                    self._write_system()
                self._reports += 1
                if transforms.spent:
                    spent = [(name, *amounts) for name, amounts in list(transforms.spent.items())]
                    self.writer.meta("transforms", spent=spent)

    def _write_perf(self) -> None:
        if self.perf is not None:
            self.writer.meta("perf", **self.perf.counts())

    def _write_system(self) -> None:
        self.writer.meta("system", **describe_system(opens.folders), device_memory=self._device_memory)

    def close(self) -> None:
        """Write the end of the record. Safe to call twice; does nothing in a forked child."""
        if self.active and os.getpid() == self.pid:
            loop_sampler.tell(self.writer.meta)
        if self.sampler is not None and os.getpid() == self.pid:
            self.sampler.close()  # not under the lock: its thread may be waiting for it
        with self._lock:
            if not self.active or os.getpid() != self.pid:
                return
            if self.window is not None:
                self.window.close()
            if self.device is not None:
                self.device.close()
            self.memory.close()
            self._write_device()
            self._write_perf()
            self.samples.close()
            if self._reports:
                self._write_system()
            if (failed := failed_images() - self._failed_before) > 0:
                self.writer.meta("lost", message=f"{failed} image{'s' * (failed > 1)} could not be decoded")
            self.writer.meta("own", **self.own_cost.fields())
            self.writer.meta("end", end_ns=time.perf_counter_ns(), stopped=self._stopped)
            self.writer.ledger.active = False
            self.writer.close()
            self.page.remove()

    def retire(self) -> None:
        """End the recording of a process that goes on: leave nothing behind for a later recording."""
        self.close()
        atexit.unregister(self.close)
        self._at_exit.cancel()
        transforms.spent.clear()
        opens.folders.clear()

    def abandon(self) -> None:
        """Stop in a forked child: the file belongs to its parent."""
        self.writer.ledger.active = False
        self.writer.abandon()
        self.page.abandon()
        atexit.unregister(self.close)

    def _write_device(self) -> None:
        self.writer.meta("device", rank=group_rank(), **describe_device(self.lose))


_lock = threading.Lock()
_recorder: Recorder | None = None
_failed = False


def recorder(worker_id: int | None = None) -> Recorder | None:
    """The recorder of this process, created on first use; None if this process is not recorded."""
    global _recorder, _failed
    if _recorder is not None or _failed:
        return _recorder
    with _lock:
        settings = LaunchSettings.from_environment()
        if _recorder is not None or settings is None or settings.only_ranges:
            return _recorder
        try:
            _recorder = Recorder(settings, worker_id)
        except OSError as error:
            _failed = True
            print(f"unstarve: not recording process {os.getpid()}: {error}", file=sys.stderr)
        return _recorder


def end_recording() -> None:
    """End the recording of this process, which goes on; a later recording starts afresh."""
    global _recorder, _failed
    with _lock:
        owner, _recorder, _failed = _recorder, None, False
    if owner is not None:
        owner.retire()


def _forget_in_child() -> None:
    global _recorder, _lock
    _lock = threading.Lock()
    if _recorder is not None:
        _recorder.abandon()
        _recorder = None


os.register_at_fork(after_in_child=_forget_in_child)
