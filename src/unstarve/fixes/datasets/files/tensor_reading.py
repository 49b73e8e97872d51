"""Read the tensors of many files straight into the memory of a batch."""

from __future__ import annotations

import functools
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from unstarve.errors import DataFileError
from unstarve.fixes.datasets.files.layout_table import COLUMNS, MTIME, SIZE, Entry, LayoutTable, Rows
from unstarve.fixes.datasets.files.library_loading import load_file
from unstarve.fixes.io import reading
from unstarve.fixes.io.page_cache import residency
from unstarve.fixes.io.reading import Failure, Outcome, Plan, blank_plan, read_plan
from unstarve.fixes.samples.file_structure import FileStructure, number, numbers
from unstarve.machine import available_bytes

Allocate: TypeAlias = Callable[[Sequence[int], torch.dtype], torch.Tensor]

# Direct reads in flight.
DEFAULT_DEPTH = 32
_DEPTHS = (32, 16, 64)
_TRIALS = 4  # per depth
_WORTH_CHANGING = 1.1  # another depth must be this much faster than the default

_PROBED = 2  # files per batch whose residency is checked
_FITS = 0.8  # a dataset fits if it takes less than this share of the available memory


@dataclass(frozen=True)
class ReadOptions:
    """How to read files.

    With `direct="auto"`, files that are not in the page cache are read past it if the dataset is too large
    for it.
    """

    direct: bool | Literal["auto"]
    depth: int | None
    """Direct reads in flight; None measures which number is fastest."""
    threads: int | None
    """Threads that read; None takes a few for files in memory and more for files on storage."""


class TensorFiles:
    """Reads the files of a table, by index. Threads may share it."""

    def __init__(self, table: LayoutTable, options: ReadOptions) -> None:
        self.table = table
        self._options = options
        self._fits: bool | None = None
        self.last: Outcome | None = None
        """The outcome of the last read."""

    def batch(self, indices: NDArray[np.int64], allocate: Allocate) -> list[torch.Tensor] | None:
        """Return one tensor per leaf of the common structure, as default_collate would make it.

        None if a file has another structure or none that was found. Raises OSError or DataFileError for a
        file that cannot be read.
        """
        table, structure = self.table, self.table.structure
        if structure is None or table.files is None:
            return None
        count = len(structure.tensors)
        looks = self._options.direct is False and not table.is_given and count > 0
        read = functools.partial(table.files.read, indices, looks=looks)
        for is_last in (False, True):
            if table.has_others(indices) if looks else table.rows(indices) is None:
                return None
            outs = [allocate((len(indices), *shape), dtype) for dtype, shape in structure.tensors]
            rows = None if count == len(structure.leaves) else table.blank_rows(len(indices))
            failures = self._read(indices, len(indices) * count, functools.partial(read, outs, taken=rows))
            if not failures:
                return outs if rows is None else _batch_values(structure, outs, rows)
            if any(failure.trouble == reading.OTHER for failure in failures):
                return None
            lengths = np.tile(structure.tensor_bytes, len(indices))
            self._forget_or_raise(failures, np.repeat(indices, count), lengths, is_last)
        raise AssertionError("the last time is done, or raises")

    def samples(self, indices: NDArray[np.int64]) -> list[Any]:
        """Return the sample in each file, whatever its structure. Raises like `batch`."""
        if not len(indices):
            return []
        for is_last in (False, True):
            entries = self.table.entries(indices)
            outs: list[torch.Tensor] = []
            parts = [
                self._sample_plan(entry, index, outs) for index, entry in zip(indices, entries, strict=True)
            ]
            plan = np.concatenate(parts)
            files = np.repeat(indices, [len(part) for part in parts])
            read = functools.partial(read_plan, plan, self.table.names, outs)
            failures = self._read(files, len(plan), read)
            if not failures:
                break
            self._forget_or_raise(failures, files, plan[:, reading.LENGTH], is_last)
        tensors = iter(outs)
        return [
            self._built(entry, int(index), tensors) for index, entry in zip(indices, entries, strict=True)
        ]

    def explain(self) -> str:
        """Describe how the last files were read."""
        if self.last is None:
            return "nothing has been read yet"
        if self.last.direct_bytes:
            return f"past the page cache, {'by io_uring' if self.last.used_uring else 'by blocking threads'}"
        refused = ": the file system has no direct reads" if self.last.direct_refused else ""
        return f"through the page cache{refused}"

    def _sample_plan(self, entry: Entry, index: int, outs: list[torch.Tensor]) -> Plan:
        """Plan the read of one file into new tensors, which are added to `outs`."""
        leaves = () if entry.structure is None else entry.structure.leaves
        tensors = [
            (leaf, column) for leaf, column in zip(leaves, entry.row[COLUMNS:], strict=False) if leaf.dtype
        ]
        plan = blank_plan(len(tensors))
        plan[:, reading.PATH] = self.table.names.starts[index]
        plan[:, reading.SIZE] = entry.row[SIZE]
        plan[:, reading.MTIME] = entry.row[MTIME]
        for row, (leaf, column) in zip(plan, tensors, strict=True):
            row[reading.OFFSET] = column
            row[reading.LENGTH] = leaf.row_bytes
            row[reading.OUT] = len(outs)
            outs.append(torch.empty(leaf.shape, dtype=leaf.dtype))
        return plan

    def _built(self, entry: Entry, index: int, tensors: Any) -> Any:
        if entry.structure is None:
            assert entry.answer is not None, "a file without a structure has an answer with the reason"
            return load_file(self.table.path(index), self.table.format(index), entry.answer)
        columns = zip(entry.structure.leaves, entry.row[COLUMNS:].tolist(), strict=True)
        return entry.structure.sample(
            [next(tensors) if leaf.dtype else number(leaf, column) for leaf, column in columns]
        )

    def _read(self, files: NDArray[np.int64], count: int, read: Callable[..., Outcome]) -> Sequence[Failure]:
        """Have `read` read `count` ranges of these files; return what failed."""
        direct = self._is_direct(files)
        trials = trials_of(self._device) if direct and self._options.depth is None else None
        depth = trials.depth_for(count) if trials else self._options.depth or 0
        start_s = time.perf_counter()
        outcome = read(direct=direct, depth=depth, threads=self._options.threads or 0)
        if trials:
            trials.record(depth, count, outcome.direct_bytes, time.perf_counter() - start_s)
        self.last = outcome
        return outcome.failures

    def _forget_or_raise(
        self,
        failures: Sequence[Failure],
        files: NDArray[np.int64],
        lengths: NDArray[np.int64],
        is_last: bool,
    ) -> None:
        """Forget files that have changed, so that they are inspected again; raise for what else failed.

        Read i was to give `lengths[i]` bytes of file `files[i]`.
        """
        changed = [failure.row for failure in failures if failure.trouble == reading.CHANGED]
        if not changed or is_last or self.table.is_given:
            reading.raise_first(
                [self._error_of(one, int(files[one.row]), int(lengths[one.row])) for one in failures]
            )
        self.table.forget(np.unique(files[changed]))

    def _error_of(self, failure: Failure, file: int, length: int) -> Exception:
        path = self.table.path(file)
        if failure.trouble == reading.CHANGED and self.table.is_given:
            actual = Path(path).stat().st_size
            return DataFileError(f"{path} has {actual} bytes, but the given dtype and shape need {length}")
        return reading.error_of(failure, path, length)

    def _is_direct(self, files: NDArray[np.int64]) -> bool:
        if self._options.direct != "auto":
            return self._options.direct
        if not len(files):
            return False
        if self._fits is None:
            self._fits = self.table.size_bytes() < _FITS * available_bytes()
        if self._fits:
            return False
        shares = [residency(self.table.path(int(index))) for index in files[:: -(-len(files) // _PROBED)]]
        return all(share is not None and share < 0.5 for share in shares)

    @functools.cached_property
    def _device(self) -> int:
        try:
            return Path(self.table.path(0)).stat().st_dev
        except OSError:
            return 0


def _batch_values(structure: FileStructure, outs: Iterable[torch.Tensor], rows: Rows) -> list[torch.Tensor]:
    """Return a batch's tensors, and its numbers from the table."""
    tensors = iter(outs)
    return [
        next(tensors) if leaf.dtype else numbers(leaf, rows[:, COLUMNS + at])
        for at, leaf in enumerate(structure.leaves)
    ]


class DepthTrials:
    """Finds how many direct reads in flight suit a device, on its first real batches. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rates: dict[int, list[float]] = {depth: [] for depth in _DEPTHS}
        self._chosen: int | None = None

    def depth_for(self, reads: int) -> int:
        """Return the depth for a batch of `reads` reads: one on trial, or the chosen one."""
        if self._chosen is not None:
            return self._chosen
        if reads < max(_DEPTHS):
            return DEFAULT_DEPTH  # too few to tell the candidates apart
        with self._lock:
            return min(_DEPTHS, key=lambda depth: len(self._rates[depth]))

    def record(self, depth: int, reads: int, size_bytes: int, wall_s: float) -> None:
        """Record how long a batch took at a depth that `depth_for` returned."""
        if self._chosen is not None or reads < max(_DEPTHS) or wall_s <= 0:
            return
        with self._lock:
            self._rates[depth].append(size_bytes / wall_s)
            if min(map(len, self._rates.values())) >= _TRIALS:
                medians = {depth: statistics.median(rates) for depth, rates in self._rates.items()}
                best = max(medians, key=lambda depth: medians[depth])
                self._chosen = (
                    best if medians[best] > _WORTH_CHANGING * medians[DEFAULT_DEPTH] else DEFAULT_DEPTH
                )


_devices: dict[int, DepthTrials] = {}


def trials_of(device: int) -> DepthTrials:
    """Return the trials of a device (`st_dev`), which last as long as the process."""
    return _devices.setdefault(device, DepthTrials())
