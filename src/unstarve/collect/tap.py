"""The training process's side of loading: when a batch was asked for, and when it came.

A `Tap` sits on one iteration over one loader. ``tap.next_batch(tap, advance, source)`` is called instead of
the iterator's own ``__next__``; it reads the thread's counters before and after and adds one packed row.
Whatever fails in here is noted in the report and never reaches training.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch.utils.data import Sampler

from unstarve.collect.counters import own_counters
from unstarve.collect.describe import Scale, count_tensors
from unstarve.collect.device.wait_marks import Mark
from unstarve.collect.end_training import end_training
from unstarve.collect.fetching import FetchProbe
from unstarve.collect.gradients import first_passes, watch_backward
from unstarve.collect.meetings import meetings
from unstarve.collect.receiving import PythonReceiving
from unstarve.collect.recorder import Recorder
from unstarve.collect.substitute import Substitute
from unstarve.collect.wait_rows import Wait
from unstarve.record import format as f
from unstarve.stack_levels import uncounted

S = TypeVar("S")
T = TypeVar("T")

_clock = time.perf_counter_ns


class Tap:
    """One epoch of one loader: `begin` when ``iter()`` has returned, then `next_batch` for every batch."""

    __slots__ = (
        "__weakref__",
        "_counted",
        "_gradients",
        "_nested",
        "_recorder",
        "_scale",
        "_substitute",
        "_unmeasured",
        "next_batch",
        "probe",
        "put_aside",
        "receiving",
        "wait",
    )

    def __init__(
        self, owner: Recorder, number: int, batch_size: int | None, *, collated: bool, is_parted: bool = False
    ) -> None:
        self._recorder = owner
        self._scale = Scale(batch_size, collated=collated, is_parted=is_parted)
        self._nested = False
        self._counted = False
        self._gradients = True
        self._substitute: Substitute | None = None
        self.probe: FetchProbe | None = None
        """Times the fetches of this loader when the training process makes its batches itself."""
        self.receiving: PythonReceiving | None = None
        """Times what comes out of the workers' queue; `begin` tells it the epoch."""
        self.put_aside: Callable[[Any], None] | None = None
        """Takes what the sampler gives out, to be counted later; None where there are no indices."""
        self.wait = Wait(owner.writer.ledger, f.BATCH, f.letters(f.BATCH))
        """Its waits, one after the other."""
        self.wait.number = number
        self.wait.tensor_type = torch.Tensor
        self.next_batch: Callable[[Tap, Callable[[Any], Any], Any], Any]
        """`take` as a plain function of the tap. The compiled wait brings its own, which records ordinary
        batches without any Python and calls `take` for the others. Now and then what it costs is measured."""
        self._unmeasured = getattr(self.wait, "take", Tap.take)
        self.next_batch = Tap._take_measured

    def is_of(self, owner: Recorder) -> bool:
        """Whether it writes to this recording, rather than to an earlier one."""
        return self._recorder is owner

    @property
    def number(self) -> int:
        """Of the loader."""
        return self.wait.number

    def begin(
        self,
        loader: Any,
        begin_ns: int,
        ready_ns: int,
        *,
        sampler_ns: int = 0,
        inside: bool = False,
        mark: Mark | None = None,
    ) -> None:
        """``iter(loader)`` has returned: an epoch begins.

        `inside` says that the ``iter()`` of another loader called it; `sampler_ns` is the time it spent in
        the sampler. The loader is not kept: it owns the iterator that owns this tap, and must be freed when
        its user lets go of it.
        """
        owner, wait = self._recorder, self.wait
        self._nested = inside or own_counters().depth > 0
        wait.epoch = owner.next_epoch(self.number)
        wait.index = 0
        owner.waits.follow(self.number, self)
        self._gradients = True
        watch_backward()
        if not self._nested:
            owner.taps[self.number] = weakref.ref(self)
            self._waited(mark, f.BEGIN_WAIT, begin_ns, ready_ns)
        if owner.substitute is not None and not self._nested:
            owner.substitute.begin_epoch(self.number, loader)
            self._substitute = owner.substitute
        if self.receiving is not None:
            self.receiving.epoch = wait.epoch
        if self.probe is not None:
            self.probe.work.iteration = wait.epoch
        flags = f.NESTED if self._nested else 0
        thread = owner.thread_number()
        if thread == 0 and not self._nested:
            owner.watch_stack()
        begun = f.EpochBeginRow(self.number, flags, wait.epoch, thread, begin_ns=begin_ns, ready_ns=ready_ns)
        owner.row(f.EPOCH_BEGIN, ready_ns, begun)
        if sampler_ns:
            sampled = f.EpochSamplerRow(self.number, flags, wait.epoch, sampler_ns=sampler_ns)
            owner.row(f.EPOCH_SAMPLER, ready_ns, sampled)

    def tell_crew(self, pids: list[int]) -> None:
        """Record the worker processes of this epoch."""
        if pids:
            self._recorder.writer.meta("crew", loader=self.number, epoch=self.wait.epoch, pids=pids)
            self._recorder.page.tell_loader(self.number, pids=pids)

    def follow_samples(self, loader: Any, indices: Iterable[Any]) -> None:
        """Count what the loader's sampler gives out in this epoch; `indices` were given out already."""
        self.put_aside = None
        is_counted = self._recorder.sampler is not None and not self._nested  # else nobody would count them
        if is_counted and isinstance(getattr(loader, "sampler", None), Sampler):
            aside = self._recorder.samples.begin(self.number, self.wait.epoch, loader).aside
            aside.extend(indices)
            self.put_aside = aside.append

    def note_gradients(self) -> None:
        """A batch is asked for: record the backward pass since the last one, and that gradients are off."""
        passes, met = first_passes(), meetings.take() if meetings.watching else None
        turned_off = self._gradients and not torch.is_grad_enabled()
        if not passes and not turned_off and met is None:
            return
        owner, now = self._recorder, _clock()
        try:
            for ident, at in passes.items():
                owner.row(f.BACKWARD, now, f.BackwardRow(owner.thread_number(ident), at))
            if met is not None:
                owner.row(f.MEETING, now, f.MeetingRow(at_ns=now, **met._asdict()))
            if turned_off:
                self._gradients = False
                flags = f.NESTED if self._nested else 0
                owner.row(f.EPOCH_NO_GRAD, now, f.EpochNoGradRow(self.number, flags, self.wait.epoch))
            owner.writer.ledger.own_ns += _clock() - now
        except Exception as error:  # a defect of ours must not cost the user the training
            self.not_recorded(error)

    @uncounted
    def take(self, advance: Callable[[S], T], source: S) -> T:
        """The next batch, as ``advance(source)`` gives it."""
        owner, substitute = self._recorder, self._substitute
        if self.wait.busy or not owner.active:
            # A subclass calling its parent's __next__, a forked child, or a limit that was reached.
            return advance(source)
        if (substitute is not None or owner.limit_reached) and self._is_over():
            return advance(source)
        if owner.window is not None and not self._nested:
            owner.before_batch(self.number)
        perf = None if self._nested else owner.perf
        if perf is not None:
            perf.step_ends()
        # A signal handler may raise anywhere in here: the next wait must begin anew all the same.
        wait = self.wait
        mark = ask = None
        try:
            mark = self._begin_wait(source)
            if not wait.busy:
                return advance(source)
            ask = wait.ask()
            batch = (
                advance(source) if substitute is None else substitute.deliver(self.number, advance, source)
            )
            got = wait.got()
        except BaseException as error:
            if wait.busy:
                end = wait.leave()
                if ask is not None:
                    self.ended(mark, ask, end, error)
            raise
        try:
            if mark is not None:
                self.got_device(mark, ask, got)
            self._record(batch, source, got)
        except Exception as error:  # a defect of ours must not cost the user the training
            self.not_recorded(error)
        finally:
            wait.done()
        if perf is not None:
            perf.step_begins()
        return batch

    # --- also called by the compiled wait -------------------------------------------------------------------

    def weigh(self, batch: Any) -> tuple[int, int]:
        """Samples and bytes of a batch; −1 for what is not known."""
        extent = self._scale.weigh(batch)
        self.wait.usual = self._scale.usual
        if not self._counted and self.probe is None:  # a probe counts by itself
            self._counted = True
            self._recorder.writer.meta("batch", loader=self.number, tensors=count_tensors(batch))
        return extent

    def ask_device(self) -> Mark | None:
        """A wait begins: mark it on the device; None without a device."""
        device = self._recorder.device
        return None if device is None else device.ask()

    def got_device(self, mark: Mark, ask: int, got: int) -> None:
        """A wait has ended with a batch: mark its end on the device."""
        self._waited(mark, f.BATCH_WAIT, ask, got)

    def ended(self, mark: Mark | None, ask: int, end: int, error: BaseException) -> None:
        """A wait has ended with an exception: the epoch is over."""
        try:
            self._waited(mark, f.END_WAIT, ask, end)
        except Exception as failure:  # a defect of ours must not hide the user's own exception
            self.not_recorded(failure)
        self._end(ask, end, "" if isinstance(error, StopIteration) else type(error).__name__)

    def not_recorded(self, error: Exception) -> None:
        """Note that recording this batch has failed."""
        self._recorder.lose(f"batch {self.wait.index} of epoch {self.wait.epoch} was not recorded: {error!r}")

    def flush(self, now: int) -> None:
        """Write out what was recorded so far; measure what recording the next batch costs."""
        self._recorder.flush(now)
        self.measure_next()
        if self.probe is not None:
            self.probe.measures_next = True

    def measure_next(self) -> None:
        """Measure what recording the next batch costs, and see later whether it is kept. From any thread."""
        self.next_batch = Tap._take_measured

    # --- the rest -----------------------------------------------------------------------------------------

    @uncounted
    def _take_measured(self, advance: Callable[[Any], Any], source: Any) -> Any:
        """Do as `take` does, and measure what it costs; not in the first steps, which are special."""
        take, own = self._unmeasured, self._recorder.own_cost
        settled = self._recorder.is_settled(self.number)
        if settled or self._nested:
            self.next_batch = take
        if not settled:
            return take(self, advance, source)
        batch, spent_ns = own.apart(uncounted(lambda timed: take(self, timed, source)), advance)
        own.steps, own.step_ns = own.steps + 1, own.step_ns + spent_ns
        if not self._nested:
            self._note_kept(batch)
        return batch

    def _note_kept(self, batch: Any) -> None:
        """See later whether this batch, one of a few, is still in memory."""
        try:
            self._recorder.memory.note_batch(self.number, batch)
        except Exception as error:  # a defect of ours must not cost the user the training
            self._recorder.lose(f"whether batches are kept was not recorded: {error!r}")

    def _is_over(self) -> bool:
        """Whether a limit was reached with the last step: the recording ends, and possibly training, too."""
        owner, substitute = self._recorder, self._substitute
        if substitute is not None:
            substitute.before(self.number)
            owner.limit_reached |= substitute.done
        if not owner.limit_reached or self._nested or not owner.ends_at(self.number):
            return False
        now = _clock()
        self._end(now, now, "")
        ends_training = owner.settings.steps is None
        owner.stop("stop-after" if ends_training else "steps")
        if ends_training:
            end_training()
        return True

    def _begin_wait(self, source: Any) -> Mark | None:
        wait = self.wait
        try:
            ident = threading.get_ident()
            if ident != wait.ident:
                wait.use(own_counters(), ident, self._recorder.thread_number())
            wait.begin(source)
            return None if wait.nested else self.ask_device()
        except Exception as error:  # a defect of ours must not cost the user the training
            self.not_recorded(error)
            return None

    def _record(self, batch: Any, source: Any, got: int) -> None:
        wait, owner = self.wait, self._recorder
        size, nbytes = self.weigh(batch)
        flags, block = f.NESTED if wait.nested else 0, 0
        if not wait.nested:
            owner.count_step(self.number)
            if self._substitute is not None:
                flags, block = self._substitute.label(self.number, batch)
        task = wait.task(source)
        wait.record(task, size, nbytes, flags, block)
        if owner.digests is not None and not wait.nested:
            owner.digests.add(self.number, wait.epoch, task, batch, size)
        if got >= owner.writer.ledger.next_flush_ns:
            self.flush(got)

    def _waited(self, mark: Mark | None, kind: int, ask: int, got: int) -> None:
        """A wait is over: let the device's clock time it, too."""
        owner, wait = self._recorder, self.wait
        if mark is not None and owner.device is not None:
            owner.device.got(mark, (self.number, kind, wait.epoch, wait.index), ask, got)
            owner.own_cost.hook_ns += owner.device.take_own_ns()

    def _end(self, ask: int, end: int, error: str) -> None:
        epoch, name = self.wait.epoch, error.encode()[:32]
        try:
            row = f.EpochEndRow(self.number, 0, epoch, ask_ns=ask, end_ns=end, error=name)
            self._recorder.row(f.EPOCH_END, end, row)
            self._recorder.samples.end(self.number)
        except Exception as failure:  # a defect of ours must not hide the user's own exception
            self._recorder.lose(f"the end of epoch {epoch} was not recorded: {failure!r}")
