"""What fetching and collating a batch cost, by the kernel's counters.

It works the same in a worker process and, for ``num_workers=0``, in the training process. The fetcher is
torch's own object and lives only in the process that fetches, so that replacing its dataset and its collate
function during a fetch changes nothing that the user holds.
"""

from __future__ import annotations

import functools
import operator
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from torch.utils.data import Subset
from torch.utils.data._utils import fetch as stock

from unstarve.collect import file_opens as opens
from unstarve.collect.call_site import short
from unstarve.collect.counters import own_counters
from unstarve.collect.describe import batch_extent, count_tensors
from unstarve.collect.helper_threads import NamedThreads, TrainingHelpers, WorkerHelpers
from unstarve.collect.random_draws import Streams
from unstarve.collect.recorder import Recorder
from unstarve.collect.sample_files import SlowestSamples, sample_file
from unstarve.collect.stuck.state_page import COLLATE, IDLE, NO_SAMPLE, SAMPLE, STAGE, StatePage
from unstarve.collect.wait_rows import Work
from unstarve.record import format as f
from unstarve.stack_levels import uncounted

PROBE = "_unstarve_probe"
"""Attribute of a fetcher: the probe that times it."""
_STAND_IN = "_unstarve_stand_in"

_clock = time.perf_counter_ns
_UNKNOWN = -1
_MOST_INDEX = 2**63
_FIRST_BATCHES = 4
_CALIBRATED = 64
"""Samples that are timed to learn what timing costs."""


class FetchProbe:
    """Times the fetches of one worker process, or of one loader in the training process."""

    __slots__ = (
        "_batches",
        "_helpers",
        "_inside_ns",
        "_measuring",
        "_opened",
        "_slowest",
        "_slowest_index",
        "_streams",
        "_weighed",
        "measures_next",
        "owner",
        "page",
        "slow_ns",
        "work",
        "wrap_transforms",
    )

    def __init__(
        self, owner: Recorder, loader: int, helpers: WorkerHelpers | NamedThreads | None = None
    ) -> None:
        self.owner = owner
        self.page = owner.page
        self.work = Work(owner.writer.ledger, f.WORK, f.letters(f.WORK))
        """The batch that is being made, and what it has cost so far."""
        self.work.loader = loader
        self.slow_ns = 0
        """Time of the slowest sample of this batch so far; set by `note_sample`."""
        self._slowest_index: Any = _UNKNOWN
        self._opened: str | None = None
        """The file opened last for that sample."""
        self._slowest = SlowestSamples()
        self._batches = 0
        self.measures_next = True
        """The next fetch is to be measured: what recording it costs."""
        self._measuring = False
        self._inside_ns = 0
        """CPU time that a measured fetch has spent on its recording while torch was fetching."""
        self._streams: Streams | None = None
        """Random state before a fetch that is watched for draws; None for any other fetch."""
        self.wrap_transforms: Callable[[], None] | None = None
        """Called in the first fetches: patches the transform containers that were imported meanwhile."""
        # A batch from a worker need not be weighed: its hand-off is measured.
        self._weighed = loader == f.NO_LOADER
        # In a training process, other threads may be training rather than fetching.
        self._helpers = TrainingHelpers() if helpers is None else helpers

    @uncounted
    def fetch(self, original: Callable[[Any, Any], Any], fetcher: Any, index: Any) -> Any:
        """Run torch's own fetch and record what it cost.

        Dataset and collate function are replaced during the fetch only: at any other time the fetcher holds
        what torch has put there (torchdata saves the dataset's state from it).
        """
        dataset, collate = fetcher.dataset, fetcher.collate_fn
        counters, work, helpers = own_counters(), self.work, self._helpers
        stand_in = fetcher.__dict__.get(_STAND_IN)  # there: a probe must not keep a dataset alive
        if stand_in is None or stand_in.dataset is not dataset or stand_in.collate is not collate:
            stand_in = fetcher.__dict__[_STAND_IN] = _StandIn(fetcher, self)
        if self._batches < _FIRST_BATCHES:  # by then a dataset has imported what it uses
            self._batches += 1
            opens.install()
            if self.wrap_transforms is not None:
                self.wrap_transforms()
            self._streams = self.owner.draws.before(work.loader)
            self.owner.memory.containers.watch(dataset)
        self.page.makes(work.task, index)
        self.slow_ns = opens.count = 0
        opens.counting = True
        # Between two batches a worker reads no files; a training process may.
        work.begin(counters, work.loader == f.NO_LOADER)
        helpers.begin()
        fetcher.dataset, fetcher.collate_fn = stand_in.timed_dataset, stand_in.timed_collate
        failed, perf = f.FAILED, self.owner.perf
        perf_began = None if perf is None else perf.read()
        try:
            batch = original(fetcher, index)
            failed = 0
            if not self._weighed:
                self._weigh(batch)
            return batch
        finally:
            if perf is not None:
                perf.fetched(perf_began)
            fetcher.dataset, fetcher.collate_fn = dataset, collate
            opens.counting = False
            self.page.words[STAGE] = IDLE
            try:
                done_ns = work.done(counters)
                self._record(done_ns, failed, index)
                if self.slow_ns and self._slowest.is_one(self.slow_ns):
                    self._name_slowest(dataset)
                self._note_help(helpers.end(done_ns), done_ns)
            except Exception as error:  # a defect of ours must not hide the user's own exception
                self.owner.lose(f"the work on batch {work.task} was not recorded: {error!r}")

    @uncounted
    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function that returns a batch and record what that cost, as a fetch without a collate."""
        counters, work, helpers = own_counters(), self.work, self._helpers
        if self._batches < _FIRST_BATCHES:
            self._batches += 1
            opens.install()
        self.slow_ns = opens.count = 0
        opens.counting = True
        work.begin(counters, False)
        helpers.begin()
        batch, failed = None, f.FAILED
        try:
            batch = function(*args, **kwargs)
            failed = 0
            if not self._weighed:
                self._weigh(batch)
            return batch
        finally:
            opens.counting = False
            try:
                done_ns = work.done(counters)
                self.work.record(failed, max(batch_extent(batch)[0], 0), _UNKNOWN, opens.count)
                self._note_help(helpers.end(done_ns), done_ns)
            except Exception as error:  # a defect of ours must not hide the user's own exception
                self.owner.lose(f"the work on batch {work.task} was not recorded: {error!r}")

    @uncounted
    def fetch_measured(self, original: Callable[[Any, Any], Any], fetcher: Any, index: Any) -> Any:
        """Fetch as `fetch` does, and measure what recording it costs."""
        if self._batches < _FIRST_BATCHES:
            return self.fetch(original, fetcher, index)
        own = self.owner.own_cost
        self.measures_next, self._measuring, self._inside_ns = False, True, 0
        try:
            batch, spent_ns = own.apart(uncounted(lambda timed: self.fetch(timed, fetcher, index)), original)
        finally:
            self._measuring = False
        timed_samples = _count(index) if fetcher.__dict__[_STAND_IN].times_samples else 0
        own.fetches += 1
        own.fetch_ns += spent_ns + self._inside_ns + round(timed_samples * _timing_ns())
        return batch

    def _note_help(self, cpu_ns: int, done_ns: int) -> None:
        if cpu_ns:
            work = self.work
            row = f.HelpedRow(work.task, work.iteration, cpu_ns=cpu_ns, loader=work.loader)
            self.owner.row(f.HELPED, done_ns, row)

    @uncounted
    def _collate(self, collate: Callable[[Any], Any], data: Any) -> Any:
        self.page.words[STAGE] = COLLATE
        if self._measuring:
            begin_ns = time.thread_time_ns()
            self.work.collate(own_counters())
            self._inside_ns += time.thread_time_ns() - begin_ns
        else:
            self.work.collate(own_counters())
        if self._streams is not None:
            self._note_draws(self._streams)
        return collate(data)

    def _note_draws(self, before: Streams) -> None:
        self._streams = None
        try:
            self.owner.draws.after(self.work.loader, before)
        except Exception as error:  # a defect of ours must not cost the user the batch
            self.owner.lose(f"whether samples are random was not recorded: {error!r}")

    def note_sample(self, index: Any, taken_ns: int) -> None:
        """Note that ``dataset[index]`` was the slowest sample of this batch so far."""
        self.slow_ns = taken_ns
        self._slowest_index = index
        self._opened = opens.last

    def _name_slowest(self, dataset: Any) -> None:
        """Record the file of the slowest sample of this batch."""
        file = sample_file(dataset, self._slowest_index, self._opened)
        if file is not None:
            work = self.work
            loader = None if work.loader == f.NO_LOADER else work.loader
            said = {"loader": loader, "iteration": work.iteration, "task": work.task, "file": short(file)}
            self.owner.writer.meta("slow", **said)

    def _weigh(self, batch: Any) -> None:
        """Count the tensors of one batch: a worker would send each of them as a message."""
        self._weighed = True
        try:
            self.owner.writer.meta("batch", loader=self.work.loader, tensors=count_tensors(batch))
        except Exception as error:  # a defect of ours must not cost the user the batch
            self.owner.lose(f"the tensors of a batch were not counted: {error!r}")

    def _record(self, done_ns: int, failed: int, index: Any) -> None:
        self.work.slow_ns = self.slow_ns
        slow_index = _number(self._slowest_index) if self.slow_ns else _UNKNOWN
        self.work.record(failed, _count(index), slow_index, opens.count)
        # A training process writes when the wait is over.
        if self.work.loader == f.NO_LOADER and done_ns >= self.owner.writer.ledger.next_flush_ns:
            self.owner.flush(done_ns)
            self.measures_next = True


class _StandIn:
    """What replaces a fetcher's dataset and collate function during a fetch."""

    __slots__ = ("collate", "dataset", "timed_collate", "timed_dataset", "times_samples")

    def __init__(self, fetcher: Any, probe: FetchProbe) -> None:
        self.dataset = self.timed_dataset = fetcher.dataset
        self.collate = fetcher.collate_fn
        self.timed_collate = functools.partial(probe._collate, self.collate)
        self.times_samples = False
        if isinstance(fetcher, stock._MapDatasetFetcher):
            self.timed_dataset = _TimedDataset(self.dataset, probe)
            self.times_samples = self.timed_dataset.__getitems__ is None


class _TimedDataset:
    """Replaces a map-style dataset inside a fetcher, to time single samples."""

    def __init__(self, dataset: Any, probe: Any) -> None:
        self.dataset = dataset
        self._probe = probe
        self._words = probe.page.words
        # torch looks for it in every fetch, and takes None for absent.
        self.__getitems__ = getattr(_inside_subsets(dataset), "__getitems__", None) and dataset.__getitems__

    @uncounted
    def __getitem__(self, index: Any) -> Any:
        opens.last = None
        try:
            self._words[SAMPLE] = index
        except (TypeError, ValueError, OverflowError):  # not a number
            self._words[SAMPLE] = NO_SAMPLE
        begin = _clock()
        sample = self.dataset[index]
        taken = _clock() - begin
        if taken > self._probe.slow_ns:
            self._probe.note_sample(index, taken)
        return sample

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dataset, name)


def _inside_subsets(dataset: Any) -> Any:
    """The dataset that torch's own subsets choose from: their ``__getitems__`` asks it for single samples."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return dataset


@functools.cache
def _timing_ns() -> float:
    """What timing one sample costs here: too little to be measured in a fetch."""
    samples = range(_CALIBRATED)
    timed = _TimedDataset(samples, SimpleNamespace(slow_ns=_MOST_INDEX, page=StatePage(None)))

    def nanoseconds(dataset: Any) -> int:
        begin_ns = _clock()
        for index in samples:
            dataset[index]
        return _clock() - begin_ns

    return max(min(nanoseconds(timed) - nanoseconds(samples) for _ in range(3)), 0) / _CALIBRATED


worker_probe: FetchProbe | None = None
"""The probe of this process, if it is a worker."""


def timed_fetch(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Wrap ``fetch`` of torch's fetchers: the probe of their loader or of this worker times it."""

    @uncounted
    def fetch(self: Any, possibly_batched_index: Any) -> Any:
        probe: FetchProbe | None = self.__dict__.get(PROBE, worker_probe)
        if probe is None or not probe.owner.active:
            return original(self, possibly_batched_index)
        fetch = probe.fetch_measured if probe.measures_next else probe.fetch
        return fetch(original, self, possibly_batched_index)

    return fetch


def _count(index: Any) -> int:
    try:
        return len(index)
    except TypeError:
        return 1


def _number(index: Any) -> int:
    """The index as an int, also if it is numpy's or torch's; −1 for any other kind of key."""
    try:
        number = operator.index(index)
    except TypeError:
        return _UNKNOWN
    return number if abs(number) < _MOST_INDEX else _UNKNOWN
