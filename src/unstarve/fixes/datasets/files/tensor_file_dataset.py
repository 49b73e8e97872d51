"""A dataset of files that hold tensors, read without torch.load: each batch is one native call.

    dataset = unstarve.TensorFileDataset("data/train", labels=labels)
    loader = unstarve.DataLoader(dataset, batch_size=64, shuffle=True)

torch.load costs about 250 µs of Python per file and holds the GIL. Here the position of each tensor in its
file is found once; from then on its bytes are read straight into the batch.
"""

from __future__ import annotations

import copy
import glob
import math
import operator
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, SupportsIndex, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, default_collate

from unstarve.errors import DataFileError, UsageError
from unstarve.fixes.datasets.files.layout_table import LayoutTable
from unstarve.fixes.datasets.files.tensor_reading import ReadOptions, TensorFiles
from unstarve.fixes.io.formats import MAX_TENSOR_BYTES, format_of
from unstarve.fixes.io.reading import Names
from unstarve.fixes.io.regular_files import open_regular
from unstarve.fixes.memory.buffers import empty_batch
from unstarve.fixes.samples.built_batch import Batched
from unstarve.fixes.samples.file_structure import FileStructure, tensor_structure
from unstarve.fixes.samples.labels import Labels
from unstarve.native import native

Paths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"


class TensorFileDataset(Dataset[Any]):
    """One sample per file: a tensor, or tensors and numbers in dicts, lists and tuples.

    `paths` is a list of files, a glob pattern, or a folder, which is searched recursively. The suffix tells
    the format: `.pt` and `.pth` as written by torch.save, `.npy`, `.safetensors` (a dict of tensors). With
    `dtype` and `shape`, every file is the raw bytes of one such tensor.

    With `labels`, one per file, samples are `(sample, label)`. `transform` is called with each sample
    (without its label); it runs in Python and holds the GIL, so worker processes are faster with it.

    `direct=True` reads past the page cache, for datasets larger than memory: nothing is evicted from the
    cache, and reading takes a third of the CPU time; but files that are in the cache are read several times
    slower. "auto" (or None) does so only if the dataset does not fit into memory, and only for files that are
    not cached. `depth` is the number of direct reads in flight, `threads` the number of threads that read;
    None chooses by measurement.

    A missing, truncated or damaged file raises an error that names it, in its own batch only. A file that is
    rewritten is noticed and inspected again. Files that the native part does not understand (compressed
    archives, transposed tensors, strings …) are loaded by torch.load(weights_only=True) or numpy.load; where
    the native part is missing, all files are loaded by these and by safetensors. Nothing in a file is ever
    executed.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        transform: Callable[[Any], Any] | None = None,
        labels: Any = None,
        dtype: torch.dtype | None = None,
        shape: Sequence[int] | None = None,
        direct: bool | Literal["auto"] | None = False,
        depth: int | None = None,
        threads: int | None = None,
    ) -> None:
        given = _given_structure(dtype, shape)
        options = _checked_options(direct, depth, threads)
        files = _files_of(paths, any_suffix=given is not None)
        formats = _formats_of(files, given)
        names = Names(files)
        self._labels = None if labels is None else Labels(labels, len(files))
        self._files = TensorFiles(LayoutTable(names, formats, given, direct=options.direct is True), options)
        self._order: NDArray[np.int64] | None = None
        self.transform = transform
        if options.direct is True:
            _warn_where_not_direct(files[0], given)

    def __len__(self) -> int:
        return len(self._files.table) if self._order is None else len(self._order)

    @property
    def paths(self) -> list[str]:
        """The files, in the order of the samples; a new list on every call."""
        return [self._files.table.path(int(i)) for i in self._positions(range(len(self)))]

    splits_batches = True
    """`read_batch` has all threads copy what is in memory: several batches at once are no faster."""

    @property
    def releases_gil(self) -> bool:
        """Whether `read_batch` releases the GIL: not with a transform."""
        return self.transform is None

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        """Return a sample; for a slice, a dataset of those files."""
        positions = self._positions(np.arange(len(self))[index] if isinstance(index, slice) else [index])
        if isinstance(index, slice):
            part = copy.copy(self)
            part._order = positions
            return part
        return self._samples(positions)[0]

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        """Return the samples as a batch that torch's own collate passes through."""
        positions = self._positions(indices)
        whole = self._read_whole(positions)
        if whole is None:
            return self._samples(positions)
        values, structure = whole

        def sample(at: int) -> Any:
            leaves = zip(structure.leaves, values, strict=True)
            made = structure.sample([value[at] if leaf.dtype else value[at].item() for leaf, value in leaves])
            return made if self._labels is None else (made, self._labels.one(int(positions[at])))

        return Batched(self._with_labels(structure.batch(values), positions), len(positions), sample)

    def read_batch(self, indices: Sequence[int]) -> Any:
        """Return what default_collate would make of the samples. Safe to call from several threads."""
        positions = self._positions(indices)
        whole = self._read_whole(positions)
        if whole is None:
            return default_collate(self._samples(positions))
        values, structure = whole
        return self._with_labels(structure.batch(values), positions)

    def explain(self) -> str:
        """Describe how the last files were read."""
        return self._files.explain()

    def _read_whole(self, positions: NDArray[np.int64]) -> tuple[list[torch.Tensor], FileStructure] | None:
        """Read a batch into one buffer per leaf; None if samples have to be read one by one."""
        structure = self._files.table.structure
        if self.transform is not None or structure is None or not len(positions):
            return None
        values = self._files.batch(positions, empty_batch)
        return None if values is None else (values, structure)

    def _with_labels(self, batch: Any, positions: NDArray[np.int64]) -> Any:
        return batch if self._labels is None else [batch, self._labels.many(positions)]

    def _samples(self, positions: NDArray[np.int64]) -> list[Any]:
        samples = self._files.samples(positions)
        if self.transform is not None:
            samples = [self.transform(sample) for sample in samples]
        if self._labels is None:
            return samples
        return [(sample, self._labels.one(int(at))) for sample, at in zip(samples, positions, strict=True)]

    def _positions(self, indices: Any) -> NDArray[np.int64]:
        """Return indices into the files; raises IndexError for one that is out of range."""
        given = np.asarray(indices)
        if given.dtype.kind not in "iu" and len(given):
            given = np.array([operator.index(index) for index in indices])
        positions = given.astype(np.int64).reshape(-1)
        if len(positions) and positions.view(np.uint64).max() < len(self):  # the usual case
            return positions if self._order is None else self._order[positions]
        bad = (positions < -len(self)) | (positions >= len(self))
        if bad.any():
            raise IndexError(f"index {positions[bad][0]} is out of range for {len(self)} files")
        positions[positions < 0] += len(self)
        return positions if self._order is None else self._order[positions]


def _given_structure(dtype: torch.dtype | None, shape: Sequence[int] | None) -> FileStructure | None:
    if (dtype is None) != (shape is None):
        raise UsageError("dtype and shape go together: give both for raw files, or neither")
    if dtype is None or shape is None:
        return None
    sizes = tuple(operator.index(size) for size in shape)
    if any(size < 0 for size in sizes):
        raise UsageError(f"shape must hold sizes >= 0, got {sizes}")
    if math.prod(filter(None, sizes)) * dtype.itemsize > MAX_TENSOR_BYTES:
        raise UsageError(f"shape must describe a tensor that fits into a file, got {sizes}")
    return tensor_structure(dtype, sizes)


def _checked_options(
    direct: bool | Literal["auto"] | None, depth: int | None, threads: int | None
) -> ReadOptions:
    if direct not in (True, False, None, "auto"):
        raise UsageError(f'direct must be True, False or "auto", got {direct!r}')
    for name, value in (("depth", depth), ("threads", threads)):
        if value is not None and value < 1:
            raise UsageError(f"{name} must be >= 1, or None to choose, got {value}")
    return ReadOptions("auto" if direct is None else direct, depth, threads)


def _formats_of(files: Sequence[str], given: FileStructure | None) -> NDArray[np.uint8]:
    if given is not None:
        return np.zeros(len(files), np.uint8)
    suffixes = [path[path.rfind(".") :] for path in files]
    formats = {suffix: format_of(suffix) for suffix in set(suffixes)}
    for path, suffix in zip(files, suffixes, strict=True):
        if formats[suffix] is None:
            raise UsageError(f"{path} is not .pt, .npy or .safetensors: give dtype and shape for raw files")
    return np.array([formats[suffix] for suffix in suffixes], np.uint8)


def _warn_where_not_direct(path: str, given: FileStructure | None) -> None:
    if given is None and native() is None:
        reason = "without the native part only raw files are read directly"
    elif not Path(path).is_file() or _opens_directly(path):
        return  # a file that is missing is reported when it is read
    else:
        reason = f"the file system of {path} has no direct reads"
    warnings.warn(f"{reason}: files are read through the page cache", RuntimeWarning, stacklevel=3)


def _opens_directly(path: str) -> bool:
    try:
        os.close(open_regular(path, getattr(os, "O_DIRECT", -1)))
    except (OSError, DataFileError, OverflowError):
        return False
    return True


def _files_of(paths: Paths, *, any_suffix: bool = False) -> list[str]:
    """Return absolute paths: a list in its own order, a pattern or a folder sorted by name.

    A folder is searched recursively for files with a known suffix, or for all files with `any_suffix`. Raises
    UsageError if there are none, FileNotFoundError for a path that does not exist.
    """
    if isinstance(paths, str | os.PathLike):
        found = _files_at(os.fspath(paths), any_suffix)
        if not found:
            kind = "files" if any_suffix else ".pt, .npy or .safetensors files"
            raise UsageError(f"{paths} has no {kind}: give a folder, a pattern or a list of files")
    else:
        found = [os.fspath(path) for path in paths]
        if not found:
            raise UsageError("paths must name at least one file, got none")
    return _absolute(found)


def _absolute(paths: list[str]) -> list[str]:
    """Return what `os.path.abspath` returns for each path; it takes a second per million, this a tenth."""
    absolute = [path for path in paths if path.startswith("/")]
    if len(absolute) < len(paths):
        here = os.getcwd()  # noqa: PTH109  # pathlib would take several seconds per million
        absolute = [path if path.startswith("/") else f"{here}/{path}" for path in paths]
    block = "\0".join([*absolute, ""])
    if os.sep == "/" and not any(part in block for part in ("//", "/.", "/\0")):
        return absolute
    return [os.path.abspath(path) for path in paths]  # noqa: PTH100  # as above


def _files_at(place: str, any_suffix: bool) -> list[str]:
    if Path(place).is_dir():
        below = (os.path.join(at, name) for at, _, names in os.walk(place) for name in names)  # noqa: PTH118  # as above
        return sorted(path for path in below if any_suffix or format_of(path) is not None)
    if Path(place).exists():
        return [place]
    if glob.has_magic(place):
        return sorted(path for path in glob.glob(place, recursive=True) if Path(path).is_file())  # noqa: PTH207  # the pattern may be absolute
    raise FileNotFoundError(f"no such file or folder: {place}")
