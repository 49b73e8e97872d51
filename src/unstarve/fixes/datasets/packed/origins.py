"""What `unstarve pack` packs: files, or any dataset that a module or a script makes."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch.utils.data import DataLoader

from unstarve.errors import UnstarveError, UsageError
from unstarve.fixes.datasets.packed.loading import load_bytes, load_file
from unstarve.fixes.datasets.packed.source_files import SourceFiles, find_files


class Origin(Protocol):
    """Samples to pack, by number."""

    about: dict[str, Any]
    """Kept in the packed file."""

    def __len__(self) -> int: ...

    def load(self, number: int) -> Any:
        """The sample."""
        ...

    def name(self, number: int) -> str | None:
        """What it is called; None where samples have no names."""
        ...


class Files:
    """One sample for each file, in the order of their names."""

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
        """The file's content, with its label where those are wanted."""
        content = self._load(self._base / self._names[number])
        return content if self._labels is None else (content, self._labels[number])

    def name(self, number: int) -> str:
        """The file's path below the source."""
        return self._names[number]


class Indexed:
    """A dataset with a length."""

    def __init__(self, dataset: Any, source: str) -> None:
        self._dataset = dataset
        self.about: dict[str, Any] = {"source": source}
        classes = getattr(dataset, "classes", None)
        if isinstance(classes, list) and all(type(name) is str for name in classes):
            self.about["classes"] = classes

    def __len__(self) -> int:
        return len(self._dataset)

    def load(self, number: int) -> Any:
        """The dataset's sample."""
        return self._dataset[number]

    def name(self, number: int) -> None:
        """Samples of a dataset have no names."""
        return


class Streamed:
    """A dataset that can only be gone through from its beginning."""

    def __init__(self, dataset: Iterable[Any], source: str) -> None:
        self._dataset = dataset
        self.about: dict[str, Any] = {"source": source}

    def __iter__(self) -> Iterator[Any]:
        return iter(self._dataset)


def find_origin(words: Sequence[str], *, labels: bool, raw: bool, leave_out: Path) -> Origin | Streamed:
    """What the words of the command line name; UsageError where there is nothing to pack.

    `leave_out` is the file being written, which may lie in the folder that is packed.
    """
    source = words[0] if len(words) == 1 else f"{words[0]} … {words[-1]}"
    if len(words) == 1 and ":" in source and not Path(source).exists():
        if labels or raw:
            raise UsageError("--labels and --raw are for files: a dataset gives its samples as they are")
        return _dataset(source)
    return Files(find_files(words, leave_out), labels=labels, raw=raw, source=source)


def _class_of(name: str, base: Path) -> str:
    folder, slash, _ = name.partition("/")
    if not slash:
        raise UsageError(f"{base / name} is in no subfolder, which --labels takes labels from")
    return folder


def _dataset(source: str) -> Indexed | Streamed:
    place, _, attribute = source.rpartition(":")
    found: Any = _import(place)
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise UsageError(
                f"{place} has no {part!r}: {source} must name a dataset or what makes one"
            ) from None
    if callable(found) and not (hasattr(found, "__getitem__") and not isinstance(found, type)):
        found = _run(found, f"{source} failed")
    if isinstance(found, DataLoader):
        raise UsageError(f"{source} is a DataLoader, which gives batches: pack {source}.dataset")
    if hasattr(found, "__getitem__") and hasattr(found, "__len__"):
        return Indexed(found, source)
    if isinstance(found, Iterable):
        return Streamed(found, source)
    raise UsageError(
        f"{source} is a {type(found).__name__}, not a dataset: it has no __getitem__ and __len__"
    )


def _import(place: str) -> Any:
    if not place.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        return _run(lambda: importlib.import_module(place), f"module {place} cannot be imported")
    path = Path(place).absolute()
    if not path.is_file():
        raise UsageError(f"there is no file {place}")
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
    """``ValueError: no such split (data.py, line 12)``."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    message = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {message[0]}" if message else type(error).__name__
    if trace is None:
        return text
    return f"{text} ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})"
