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
from typing import Any

from torch.utils.data._utils import fetch as stock

from unstarve.collect import file_opens as opens
from unstarve.collect.counters import own_counters
from unstarve.collect.describe import count_tensors
from unstarve.collect.helper_threads import TrainingHelpers, WorkerHelpers
from unstarve.collect.recorder import Recorder
from unstarve.collect.wait_rows import Work
from unstarve.record import format as f

PROBE = "_unstarve_probe"
"""Attribute of a fetcher: the probe that times it."""
_STAND_IN = "_unstarve_stand_in"

_clock = time.perf_counter_ns
_UNKNOWN = -1
_MOST_INDEX = 2**63
_FIRST_BATCHES = 4


class FetchProbe:
    """Times the fetches of one worker process, or of one loader in the training process."""

    __slots__ = (
        "_batches",
        "_helpers",
        "_slowest_index",
        "_weighed",
        "owner",
        "slow_ns",
        "work",
        "wrap_transforms",
    )

    def __init__(self, owner: Recorder, loader: int, helpers: WorkerHelpers | None = None) -> None:
        self.owner = owner
        self.work = Work(owner.writer.ledger, f.WORK, f.letters(f.WORK))
        """The batch that is being made, and what it has cost so far."""
        self.work.loader = loader
        self.slow_ns = 0
        """Time of the slowest sample of this batch so far; set by `note_sample`."""
        self._slowest_index: Any = _UNKNOWN
        self._batches = 0
        self.wrap_transforms: Callable[[], None] | None = None
        """Called in the first fetches: patches the transform containers that were imported meanwhile."""
        # A batch from a worker need not be weighed: its hand-off is measured.
        self._weighed = loader == f.NO_LOADER
        # In a training process, other threads may be training rather than fetching.
        self._helpers = TrainingHelpers() if helpers is None else helpers

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
            try:
                done_ns = work.done(counters)
                self._record(done_ns, failed, index)
                self._note_help(helpers.end(done_ns), done_ns)
            except Exception as error:  # a defect of ours must not hide the user's own exception
                self.owner.lose(f"the work on batch {work.task} was not recorded: {error!r}")

    def _note_help(self, cpu_ns: int, done_ns: int) -> None:
        if cpu_ns:
            work = self.work
            row = f.HelpedRow(work.task, work.iteration, cpu_ns=cpu_ns, loader=work.loader)
            self.owner.row(f.HELPED, done_ns, row)

    def _collate(self, collate: Callable[[Any], Any], data: Any) -> Any:
        self.work.collate(own_counters())
        return collate(data)

    def note_sample(self, index: Any, taken_ns: int) -> None:
        """Note that ``dataset[index]`` was the slowest sample of this batch so far."""
        self.slow_ns = taken_ns
        self._slowest_index = index

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
        if done_ns >= self.owner.writer.ledger.next_flush_ns:
            self.owner.flush(done_ns)


class _StandIn:
    """What replaces a fetcher's dataset and collate function during a fetch."""

    __slots__ = ("collate", "dataset", "timed_collate", "timed_dataset")

    def __init__(self, fetcher: Any, probe: FetchProbe) -> None:
        self.dataset = self.timed_dataset = fetcher.dataset
        self.collate = fetcher.collate_fn
        self.timed_collate = functools.partial(probe._collate, self.collate)
        if isinstance(fetcher, stock._MapDatasetFetcher):
            self.timed_dataset = _TimedDataset(self.dataset, probe)


class _TimedDataset:
    """Replaces a map-style dataset inside a fetcher, to time single samples."""

    def __init__(self, dataset: Any, probe: FetchProbe) -> None:
        self.dataset = dataset
        self._probe = probe
        # torch looks for it in every fetch, and takes None for absent.
        self.__getitems__ = getattr(dataset, "__getitems__", None)

    def __getitem__(self, index: Any) -> Any:
        begin = _clock()
        sample = self.dataset[index]
        taken = _clock() - begin
        if taken > self._probe.slow_ns:
            self._probe.note_sample(index, taken)
        return sample

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dataset, name)


worker_probe: FetchProbe | None = None
"""The probe of this process, if it is a worker."""


def timed_fetch(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Wrap ``fetch`` of torch's fetchers: the probe of their loader or of this worker times it."""

    def fetch(self: Any, possibly_batched_index: Any) -> Any:
        probe: FetchProbe | None = self.__dict__.get(PROBE, worker_probe)
        if probe is None or not probe.owner.active:
            return original(self, possibly_batched_index)
        return probe.fetch(original, self, possibly_batched_index)

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
