"""What `unstarve pack` packs: files, or any dataset that a module or a script makes. No file is executed."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import pickle
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader

from unstarve.errors import DataFileError, UnstarveError, UsageError
from unstarve.fixes.datasets.packed.packing_formats import (
    Hdf5Samples,
    TarSamples,
    hub_dataset,
    is_hub_dataset,
    suffix_of,
)
from unstarve.fixes.datasets.packed.packing_nodes import HeldFiles
from unstarve.fixes.datasets.packed.source_files import SourceFiles, find_files
from unstarve.fixes.samples.dtypes import ELEMENT_TYPES


class Origin(Protocol):
    """Samples to pack, by number."""

    kind: str
    """Saved in the journal, to recognize the work when it is resumed."""
    about: dict[str, Any]
    """Notes to store in the packed file."""

    def __len__(self) -> int: ...

    def load(self, number: int) -> Any:
        """Return the sample."""
        ...

    def name(self, number: int) -> str | None:
        """Return the sample's name; None if samples have no names."""
        ...

    def file(self, number: int) -> Path | None:
        """Return the file that holds the sample; None if that is not known."""
        ...


class FileSamples:
    """One sample for each file, in the order of their names."""

    kind = "Files"

    def __init__(self, found: SourceFiles, *, labels: bool, raw: bool, source: str) -> None:
        self._base = base = found.base
        self._names = names = found.names
        self.links = found.links
        self._load: Callable[[Path], Any] = load_bytes if raw else load_file
        self.about: dict[str, Any] = {"source": source}
        self._labels: list[int] | None = None
        if labels:
            folders = [_class_of(name, base) for name in names]
            self.about["classes"] = sorted(set(folders))
            numbers = {folder: number for number, folder in enumerate(self.about["classes"])}
            self._labels = [numbers[folder] for folder in folders]

    def __len__(self) -> int:
        return len(self._names)

    def load(self, number: int) -> Any:
        """Return the file's content, with its label if labels are packed."""
        content = self._load(self.file(number))
        return content if self._labels is None else (content, self._labels[number])

    def name(self, number: int) -> str:
        """Return the file's path below the source."""
        return self._names[number]

    def file(self, number: int) -> Path:
        """Return the file's path."""
        return self._base / self._names[number]


class IndexedSamples:
    """A dataset with a length."""

    kind = "Indexed"

    def __init__(self, dataset: Any, source: str) -> None:
        self._dataset = dataset
        self.about: dict[str, Any] = {"source": source}
        classes = getattr(dataset, "classes", None)
        if isinstance(classes, list) and all(type(name) is str for name in classes):
            self.about["classes"] = classes

    def __len__(self) -> int:
        return len(self._dataset)

    def load(self, number: int) -> Any:
        """Return the dataset's sample."""
        return self._dataset[number]

    def name(self, number: int) -> None:
        """Samples of a dataset have no names."""
        return

    def file(self, number: int) -> None:
        """A dataset does not say."""
        return


class StreamedSamples:
    """A dataset that can only be iterated from its beginning."""

    kind = "Streamed"

    def __init__(self, dataset: Iterable[Any], source: str) -> None:
        self._dataset = dataset
        self.about: dict[str, Any] = {"source": source}

    def __iter__(self) -> Iterator[Any]:
        return iter(self._dataset)


def find_origin(
    words: Sequence[str], *, labels: bool, raw: bool, leave_out: Path, elsewhere: HeldFiles | None = None
) -> Origin | StreamedSamples:
    """Return the samples that the command line's words name. Raises UsageError if there are none.

    `leave_out` is the file being written, which may be in the packed folder. `elsewhere` has the files of
    other machines.
    """
    source = words[0] if len(words) == 1 else f"{words[0]} … {words[-1]}"
    if len(words) == 1 and ":" in source and not Path(source).exists():
        if labels or raw:
            raise UsageError("--labels and --raw are for files, not for datasets")
        return _dataset(source)
    if len(words) == 1 and is_hub_dataset(Path(source)):
        return IndexedSamples(hub_dataset([Path(source)]), source)
    found = find_files(words, leave_out) if elsewhere is None else elsewhere.find(words, leave_out)
    paths = [found.base / name for name in found.names]
    kind = "" if labels else suffix_of(paths)
    if kind == "tar":
        members = None if elsewhere is None else elsewhere.read
        return TarSamples(paths, raw=raw, source=source, read=members or map)
    if kind and not raw:
        if kind == "parquet":
            return IndexedSamples(hub_dataset(paths), source)
        if len(paths) > 1:
            raise UsageError(f"pack one HDF5 file at a time: {paths[0]}")
        return Hdf5Samples(paths[0], source)
    return FileSamples(found, labels=labels, raw=raw, source=source)


def _class_of(name: str, base: Path) -> str:
    folder, slash, _ = name.partition("/")
    if not slash:
        raise UsageError(f"{base / name} is in no subfolder: --labels uses subfolders as labels")
    return folder


def _dataset(source: str) -> IndexedSamples | StreamedSamples:
    place, _, attribute = source.rpartition(":")
    found: Any = _import(place)
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise UsageError(
                f"{place} has no {part!r}: {source} must name a dataset or a function that makes one"
            ) from None
    if callable(found) and not (hasattr(found, "__getitem__") and not isinstance(found, type)):
        found = _run(found, f"{source} failed")
    if isinstance(found, DataLoader):
        raise UsageError(f"{source} is a DataLoader, which returns batches: pack {source}.dataset")
    if hasattr(found, "__getitem__") and hasattr(found, "__len__"):
        return IndexedSamples(found, source)
    if isinstance(found, Iterable):
        return StreamedSamples(found, source)
    raise UsageError(
        f"{source} is a {type(found).__name__}, not a dataset: it has no __getitem__ and __len__"
    )


def _import(place: str) -> Any:
    if not place.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        return _run(lambda: importlib.import_module(place), f"module {place} cannot be imported")
    path = Path(place).absolute()
    if not path.is_file():
        raise UsageError(f"no such file: {place}")
    sys.path.insert(0, str(path.parent))
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_to_pack"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    loader = spec.loader
    assert loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # for pickling, and for dataclasses
    _run(lambda: loader.exec_module(module), f"{place} cannot be imported")
    return module


def _run(code: Callable[[], Any], what: str) -> Any:
    try:
        return code()
    except UnstarveError:
        raise
    except Exception as error:  # whatever a user's code raises
        raise UsageError(f"{what}: {in_words(error)}") from error


def in_words(error: BaseException) -> str:
    """Return an error as text: ``ValueError: no such split (data.py, line 12)``."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    message = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {message[0]}" if message else type(error).__name__
    if trace is None:
        return text
    return f"{text} ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})"


_SAFETENSORS_TYPES = {row.safetensors: row.name for row in ELEMENT_TYPES.values() if row.safetensors}

_KINDS = ((stat.S_ISDIR, "folder"), (stat.S_ISFIFO, "FIFO"), (stat.S_ISSOCK, "socket"))


def load_file(path: Path) -> Any:
    """Load a file: .pt and .pth as torch saved it, .npy as an array, .safetensors as a dict of tensors.

    Any other file is its bytes. Raises DataFileError, which names the file, if that fails.
    """
    _check_is_file(path)
    return _LOADERS.get(path.suffix.lower(), Path.read_bytes)(path)


def load_bytes(path: Path) -> bytes:
    """Return the bytes of a file. Raises DataFileError, which names it, if it is not a regular file."""
    _check_is_file(path)
    return path.read_bytes()


def _check_is_file(path: Path) -> None:
    """Raise DataFileError unless it is a regular file: opening a FIFO would wait for a writer."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        what = "is a broken link" if path.is_symlink() else "cannot be read"
        raise DataFileError(f"{path} {what} ({error.strerror})") from error
    if not stat.S_ISREG(mode):
        kind = next((kind for is_kind, kind in _KINDS if is_kind(mode)), "device")
        raise DataFileError(f"{path} is a {kind}, not a file")


def _load_torch(path: Path) -> Any:
    try:
        return torch.load(str(path), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        reason = "it is damaged, or holds objects that need their own code to load"
    except (RuntimeError, EOFError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    raise DataFileError(f"{path} cannot be loaded ({reason}); pack a dataset that loads it, or use --raw")


def _load_numpy(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError, SyntaxError) as error:
        reason = str(error).splitlines()[0]
    raise DataFileError(f"{path} cannot be loaded as a numpy array ({reason}); use --raw to pack its bytes")


def _load_safetensors(path: Path) -> Any:
    data = bytearray(path.read_bytes())
    try:
        length = int.from_bytes(data[:8], "little")
        names = json.loads(data[8 : 8 + length])
        names.pop("__metadata__", None)
        return {name: _safetensor(data, 8 + length, entry) for name, entry in names.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise DataFileError(
            f"{path} is not a valid safetensors file ({error}); use --raw to pack its bytes"
        ) from error


def _safetensor(data: bytearray, start: int, entry: dict[str, Any]) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, _SAFETENSORS_TYPES[entry["dtype"]])
    shape: list[int] = entry["shape"]
    first, end = entry["data_offsets"]
    if math.prod(shape) * dtype.itemsize != end - first or start + end > len(data) or first < 0:
        raise ValueError("a tensor does not match its offsets")
    if end == first:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(data, dtype=torch.uint8, count=end - first, offset=start + first).clone() \
        .view(dtype).view(shape)  # fmt: skip


_LOADERS: dict[str, Callable[[Path], Any]] = {
    ".pt": _load_torch,
    ".pth": _load_torch,
    ".npy": _load_numpy,
    ".safetensors": _load_safetensors,
}
