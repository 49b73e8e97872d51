"""Sources of `unstarve pack` that are no files of one sample each: HDF5, WebDataset's tar, Hugging Face."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unstarve.errors import MissingExtraError, UsageError

_HDF5 = (".h5", ".hdf5", ".hdf", ".he5")
_COMPRESSED = (".tgz", ".gz", ".bz2", ".xz", ".zst")

_Member = tuple[Path, str, dict[str, tuple[int, int]]]
"""A sample of a tar file: its key, and where its members lie, by suffix."""


class Hdf5Samples:
    """Row i of all arrays of the usual length; a dict of them, or the row itself if there is one array."""

    kind = "HDF5"

    def __init__(self, path: Path, source: str) -> None:
        self._path = path
        self.about: dict[str, Any] = {"source": source}
        lengths: dict[str, int] = {}
        with _hdf5(path) as file:
            file.visititems(lambda name, node: lengths.update({name: _rows(node)} if _rows(node) else {}))
        if not lengths:
            raise UsageError(f"{path} has no arrays to pack")
        usual = max(lengths.values())
        self._names = [name for name, length in lengths.items() if length == usual]
        self._length = usual
        other = sorted(set(lengths) - set(self._names))
        if other:
            raise UsageError(
                f"{path} has arrays of different lengths ({self._names[0]}: {usual}, {other[0]}: "
                f"{lengths[other[0]]}), so what is a sample is not clear: pack a dataset that reads it"
            )
        self._file: tuple[int, Any] | None = None

    def __len__(self) -> int:
        return self._length

    def load(self, number: int) -> Any:
        """Read the row from every array."""
        if self._file is None or self._file[0] != os.getpid():  # a handle must not be shared with a fork
            self._file = os.getpid(), _hdf5(self._path)
        rows = {name: _row(self._file[1][name][number]) for name in self._names}
        return rows if len(rows) > 1 else rows[self._names[0]]

    def name(self, number: int) -> None:
        """Rows have no names."""
        return

    def file(self, number: int) -> Path:
        """Return the file, which holds all rows."""
        return self._path

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_file": None}


class TarSamples:
    """The samples of WebDataset's tar files: members that share a name up to its first dot, as a dict.

    ``__key__`` is that name. Members whose names end in cls, id, txt, npy, pt or pth are decoded, all others
    are bytes; with `raw` every one is.
    """

    kind = "Tar"

    def __init__(
        self, paths: Sequence[Path], *, raw: bool, source: str, read: Callable[..., Iterable[Any]] = map
    ) -> None:
        """`read` calls a function on each path."""
        self.about: dict[str, Any] = {"source": source}
        self._raw = raw
        self._samples: list[_Member] = [sample for found in read(_members, paths) for sample in found]
        if not self._samples:
            raise UsageError(f"{paths[0]} has no files in it")

    def __len__(self) -> int:
        return len(self._samples)

    def load(self, number: int) -> dict[str, Any]:
        """Read the sample's members."""
        path, key, members = self._samples[number]
        sample: dict[str, Any] = {"__key__": key}
        with path.open("rb") as file:
            for suffix, (start, size) in members.items():
                data = os.pread(file.fileno(), size, start)
                sample[suffix] = data if self._raw else _decoded(suffix, data)
        return sample

    def name(self, number: int) -> str:
        """Return its key."""
        return self._samples[number][1]

    def file(self, number: int) -> Path:
        """Return its tar file."""
        return self._samples[number][0]


def hub_dataset(paths: Sequence[Path]) -> Any:
    """The Hugging Face dataset that was saved in a folder, or that Parquet files hold; rows hold tensors."""
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError(f"{paths[0]} is a Hugging Face dataset: pip install datasets") from error
    if (paths[0] / "dataset_dict.json").exists():
        splits = sorted(one.name for one in paths[0].iterdir() if one.is_dir())
        raise UsageError(f"{paths[0]} has several splits: pack {paths[0] / splits[0]}")
    try:
        if paths[0].is_dir():
            found = datasets.load_from_disk(str(paths[0]))
        else:
            found = datasets.Dataset.from_parquet([str(path) for path in paths])
    except Exception as error:  # of datasets, pyarrow or fsspec, for a damaged file
        raise UsageError(f"{paths[0]} cannot be read as a Hugging Face dataset: {error}") from error
    return found if found.format["type"] is not None else found.with_format("torch")


def is_hub_dataset(path: Path) -> bool:
    """Whether `Dataset.save_to_disk` or `DatasetDict.save_to_disk` has written this folder."""
    return path.is_dir() and any((path / name).exists() for name in ("state.json", "dataset_dict.json"))


def suffix_of(paths: Sequence[Path]) -> str:
    """``hdf5``, ``tar`` or ``parquet`` if all files are of that kind; empty otherwise."""
    kinds = {_kind(path) for path in paths}
    return kinds.pop() if len(kinds) == 1 else ""


def _kind(path: Path) -> str:
    if path.suffix in _HDF5:
        return "hdf5"
    if path.suffix in _COMPRESSED and ".tar" in (*path.suffixes, path.suffix.replace("tgz", "tar")):
        raise UsageError(f"{path} is compressed, and its samples cannot be read one by one: unpack it first")
    return {".tar": "tar", ".parquet": "parquet"}.get(path.suffix, "")


def _members(path: Path) -> list[_Member]:
    found: dict[str, dict[str, tuple[int, int]]] = {}
    try:
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                folder, slash, file = member.name.rpartition("/")
                stem, dot, suffix = file.partition(".")
                if member.isfile() and dot and stem:
                    place = (member.offset_data, member.size)
                    found.setdefault(f"{folder}{slash}{stem}", {})[suffix.lower()] = place
            _check_end(path, tar.offset)
    except (tarfile.TarError, OSError) as error:
        raise UsageError(f"{path} cannot be read as a tar file: {error}") from error
    return [(path, key, members) for key, members in found.items()]


def _check_end(path: Path, at: int) -> None:
    """Raise unless zeros follow the last member: at a damaged header, tarfile stops without a word."""
    with path.open("rb") as file:
        if any(os.pread(file.fileno(), tarfile.BLOCKSIZE, at)):
            raise tarfile.ReadError(f"it is damaged or cut off at byte {at:,}")


def _decoded(suffix: str, data: bytes) -> Any:
    match suffix.rpartition(".")[2]:
        case "cls" | "id":
            return int(data)
        case "txt":
            return data.decode()
        case "npy":
            return np.load(io.BytesIO(data), allow_pickle=False)
        case "pt" | "pth":
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return data


def _hdf5(path: Path) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError(f"{path} is an HDF5 file: pip install h5py") from error
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise UsageError(f"{path} cannot be read as HDF5: {error}") from error


def _rows(node: Any) -> int:
    """Of an array; 0 for a group and for a single value."""
    shape = getattr(node, "shape", None)
    return int(shape[0]) if shape else 0


def _row(value: Any) -> Any:
    """Numbers as Python's own, as most datasets return labels; text as text."""
    if isinstance(value, np.generic):
        value = value.item()
    return value
