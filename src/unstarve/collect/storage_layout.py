"""How a dataset's samples lie in storage: the shards of a stream, the chunks of an HDF5 file, a mapped file.

A library is looked for only where the script has imported it.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

_DEEPEST = 4
"""Streams are nested: a shuffled stream of a mapped stream of shards."""
_MOST_FILES = 3
_STREAMS = {"datasets", "litdata", "streaming", "webdataset"}
_MAPS = ("np.memmap", "numpy.memmap")
_HDF5 = (".h5", ".hdf5", ".hdf", ".he5")


@dataclass(frozen=True, slots=True)
class Chunk:
    """The chunks of the HDF5 array that holds a dataset's samples, one row each."""

    file: str
    array: str
    """Its name in the file: ``images``."""
    shape: tuple[int, ...]
    """Of a chunk, in elements; the first dimension counts samples."""
    nbytes: int
    """Of a chunk, once it is decompressed."""
    compressed: bool

    @property
    def rows(self) -> int:
        """Samples in a chunk."""
        return self.shape[0]


def shard_count(stream: Any) -> int | None:
    """The shards of a stream of `datasets` or webdataset, which is what its workers share out; else None."""
    module = type(stream).__module__
    if module.startswith("datasets."):  # older versions call it n_shards
        count = getattr(stream, "num_shards", getattr(stream, "n_shards", None))
        return count if isinstance(count, int) else None
    if module.startswith("webdataset.") and type(stream).__name__ == "SimpleShardList":
        return len(vars(stream).get("urls", ()))
    return None


def stream_library(stream: Any) -> str | None:
    """The package of a stream whose workers each read shards of their own: ``litdata``."""
    packages = [one.__module__.partition(".")[0] for one in type(stream).__mro__]
    return next((one for one in packages if one in _STREAMS), None)


def shards_inside(stream: Any, depth: int = 0) -> int | None:
    """The shards of a stream, or of the source that it reads."""
    count = shard_count(stream)
    if count is not None or depth == _DEEPEST:
        return count
    fields = getattr(stream, "__dict__", {})
    inner = [*fields.get("pipeline", ()), *(fields.get(name) for name in ("dataset", "source"))]
    found = (shards_inside(one, depth + 1) for one in inner if one is not None)
    return next((one for one in found if one is not None), None)


def sample_chunk(dataset: Any) -> Chunk | None:
    """The chunks that samples lie in; the largest, if several arrays make a sample.

    None without HDF5, and for arrays that are not chunked or have another length than the dataset.
    """
    h5py = sys.modules.get("h5py")
    if h5py is None or not hasattr(dataset, "__len__"):
        return None
    chunks = [one for file in _files(dataset, h5py) for one in _chunks(file, len(dataset), h5py)]
    return max(chunks, key=lambda one: one.nbytes, default=None)


def _files(dataset: Any, h5py: Any) -> Iterator[Any]:
    """The HDF5 files that a dataset has opened or names; what is opened here is closed again."""
    values = list(getattr(dataset, "__dict__", {}).values())
    handles = [value for value in values if isinstance(value, (h5py.File, h5py.Dataset)) and value]
    yield from (handle.file for handle in handles)
    named = [value for value in values if isinstance(value, (str, Path)) and Path(value).suffix in _HDF5]
    for name in [] if handles else named[:_MOST_FILES]:
        try:
            with h5py.File(name, "r") as file:
                yield file
        except OSError:  # it is being written, or is no such file
            continue


def _chunks(file: Any, length: int, h5py: Any) -> list[Chunk]:
    found: list[Chunk] = []

    def note(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset) and node.chunks and node.shape[0] == length:
            size = prod(node.chunks) * node.dtype.itemsize
            found.append(Chunk(str(file.filename), name, tuple(node.chunks), size, bool(node.compression)))

    file.visititems(note)
    return found


def mapped_file(dataset: Any) -> Path | None:
    """The file that a dataset maps, or is about to, with ``np.memmap(self.path)`` in one of its methods."""
    fields = getattr(dataset, "__dict__", {})
    numpy = sys.modules.get("numpy")
    mapped = [one.filename for one in fields.values() if numpy and isinstance(one, numpy.memmap)]
    if not mapped:
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(type(dataset))))
        except (OSError, TypeError, SyntaxError, ValueError):
            return None
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
        given = [ast.unparse(one.args[0]) for one in calls if ast.unparse(one.func) in _MAPS]
        mapped = [fields.get(one.removeprefix("self.")) for one in given if one.startswith("self.")]
    found = (Path(one) for one in mapped if isinstance(one, (str, Path)))
    return next((one for one in found if one.is_file()), None)
