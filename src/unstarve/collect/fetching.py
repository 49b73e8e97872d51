"""Around every fetch: what getting the samples cost and what collating them cost, by the kernel's counters.

Works the same in a worker process and, for ``num_workers=0``, in the training process. The fetcher object
is torch's own and lives only where it fetches, so that wrapping its dataset and its collate function
changes nothing that the user holds.
"""

from __future__ import annotations

import functools
import operator
import time
from collections.abc import Callable
from typing import Any

from torch.utils.data._utils import fetch as stock

from unstarve.collect import opens
from unstarve.collect.counters import Reading, own_counters
from unstarve.collect.recorder import Recorder
from unstarve.collect.tensors import count_tensors
from unstarve.collect.transforms import wrap_transforms
from unstarve.record import format as f

PROBE = "_unstarve_probe"
"""Attribute of a fetcher: the probe that times it."""
_TIMED = "_unstarve_timed"

_clock = time.perf_counter_ns
_UNKNOWN = -1
_MOST_INDEX = 2**63
_FIRST_BATCHES = 4


class Probe:
    """Times the fetches of one worker process, or of one loader in the training process."""

    def __init__(self, owner: Recorder, loader: int) -> None:
        self.owner = owner
        self.iteration = 0
        """How often the loader has started over, as this process saw it."""
        self.task = 0
        """torch's number of the batch being made."""
        self.received_ns = 0
        """When the indices of this batch arrived here."""
        self._loader = loader
        self._at_begin: Reading
        self._at_end: Reading | None = None
        self._at_collate: Reading | None = None
        self._batches = 0
        self._weighed = False
        self._slowest_ns = 0
        self._slowest_index: Any = _UNKNOWN

    def fetch(self, original: Callable[[Any, Any], Any], fetcher: Any, index: Any) -> Any:
        """Run torch's own fetch and record what it cost.

        Dataset and collate function are stood in for during the fetch alone: whoever looks at the fetcher at
        any other time (torchdata saves the dataset's state from there) finds what torch has put there.
        """
        dataset, collate = fetcher.dataset, fetcher.collate_fn
        begin = self._begin()
        fetcher.collate_fn = functools.partial(self._collate, collate)
        if isinstance(fetcher, stock._MapDatasetFetcher):
            timed = fetcher.__dict__.get(_TIMED)  # kept there: the probe must not keep a dataset alive
            if timed is None or timed.dataset is not dataset:
                timed = fetcher.__dict__[_TIMED] = _TimedDataset(dataset, self)
            fetcher.dataset = timed
        failed = True
        try:
            batch = original(fetcher, index)
            failed = False
            self._weigh(batch)
            return batch
        finally:
            fetcher.dataset, fetcher.collate_fn = dataset, collate
            opens.counting = False
            try:
                self._at_end = own_counters().read()
                self._record(begin, self._at_end, _count(index), failed)
            except Exception as error:  # a defect of ours must not hide the user's own exception
                self.owner.lose(f"the work on batch {self.task}: {error!r}")

    def _weigh(self, batch: Any) -> None:
        """Count a batch's tensors, once: handing it over from a worker would cost so many messages.

        Where a worker made it, what that costs is measured.
        """
        if self._weighed or self._loader == f.NO_LOADER:
            return
        self._weighed = True
        try:
            self.owner.writer.meta("batch", loader=self._loader, tensors=count_tensors(batch))
        except Exception as error:  # a defect of ours must not cost the user the batch
            self.owner.lose(f"the tensors of a batch: {error!r}")

    @property
    def last(self) -> tuple[Reading, Reading] | None:
        """The readings around the fetch before; None before the first."""
        return None if self._at_end is None else (self._at_begin, self._at_end)

    def _begin(self) -> Reading:
        if self._batches < _FIRST_BATCHES:  # by then a dataset has imported what it uses
            self._batches += 1
            opens.install()
            wrap_transforms()
        self._at_collate = None
        self._slowest_ns, self._slowest_index = 0, _UNKNOWN
        opens.count, opens.counting = 0, True
        # Between two batches a worker reads no files; a training process may.
        last = self._at_end if self._loader == f.NO_LOADER else None
        self._at_begin = own_counters().read() if last is None else own_counters().light(last)
        return self._at_begin

    def _collate(self, collate: Callable[[Any], Any], data: Any) -> Any:
        self._at_collate = own_counters().light(self._at_begin)
        return collate(data)

    def note_sample(self, index: Any, taken_ns: int) -> None:
        """One ``dataset[index]`` took so long."""
        if taken_ns > self._slowest_ns:
            self._slowest_ns = taken_ns
            self._slowest_index = index

    def _record(self, begin: Reading, end: Reading, samples: int, failed: bool) -> None:
        collate = self._at_collate or end
        self.owner.row(
            f.WORK,
            end.wall_ns,
            (
                self._loader,
                f.FAILED if failed else 0,
                self.iteration,
                self.task,
                samples,
                self.received_ns or begin.wall_ns,
                begin.wall_ns,
                collate.wall_ns,
                end.wall_ns,
                collate.cpu_ns - begin.cpu_ns,
                collate.system_ns - begin.system_ns,
                _difference(collate.queued_ns, begin.queued_ns),
                # Collating reads no files, as a rule: what both have read was read by fetching.
                _difference(end.asked_bytes, begin.asked_bytes),
                _difference(end.storage_bytes, begin.storage_bytes),
                _difference(end.delay_ns, begin.delay_ns),
                end.major_faults - begin.major_faults,
                end.switches - begin.switches,
                end.cpu_ns - collate.cpu_ns,
                end.system_ns - collate.system_ns,
                _difference(end.queued_ns, collate.queued_ns),
                _number(self._slowest_index),
                self._slowest_ns,
                opens.count,
            ),
        )


class _TimedDataset:
    """Stands in for a map-style dataset inside a fetcher, to see which samples are slow."""

    def __init__(self, dataset: Any, probe: Probe) -> None:
        self.dataset = dataset
        self._note = probe.note_sample
        # What torch asks for in every fetch; a None counts as none.
        self.__getitems__ = getattr(dataset, "__getitems__", None)

    def __getitem__(self, index: Any) -> Any:
        begin = _clock()
        sample = self.dataset[index]
        self._note(index, _clock() - begin)
        return sample

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dataset, name)


worker_probe: Probe | None = None
"""The probe of this process, if it is a worker."""


def wrap_fetchers() -> None:
    """Put a probe around torch's fetchers: a loader's own in the training process, a worker's in a worker."""
    for cls in (stock._MapDatasetFetcher, stock._IterableDatasetFetcher):
        if not hasattr(cls.fetch, "__wrapped__"):
            _wrap(cls)


def _wrap(cls: Any) -> None:
    original = cls.fetch

    @functools.wraps(original)
    def fetch(self: Any, possibly_batched_index: Any) -> Any:
        probe: Probe | None = self.__dict__.get(PROBE, worker_probe)
        if probe is None or not probe.owner.active:
            return original(self, possibly_batched_index)
        return probe.fetch(original, self, possibly_batched_index)

    cls.fetch = fetch


def _difference(later: int | None, earlier: int | None) -> int:
    return _UNKNOWN if later is None or earlier is None else later - earlier


def _count(index: Any) -> int:
    try:
        return len(index)
    except TypeError:
        return 1


def _number(index: Any) -> int:
    """A sampler may give numpy's or torch's numbers; a key of any other kind is not told."""
    try:
        number = operator.index(index)
    except TypeError:
        return _UNKNOWN
    return number if abs(number) < _MOST_INDEX else _UNKNOWN
