"""Handles that are open when workers are forked."""

from __future__ import annotations

import io
import os
import socket
import sqlite3
import sys
import tarfile
import types
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec.asyn
import numpy as np
import pytest
from tests.helpers.checked import findings, ids
from torch.utils.data import DataLoader, Dataset, Subset


class Holder(Dataset[Any]):
    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return self.handle.read(index)


class Positional(Holder):
    def __getitem__(self, index: int) -> Any:
        return os.pread(self.handle.fileno(), 8, index)


class ByProcess(Holder):
    """Opens the file again when it finds itself in another process."""

    def __getitem__(self, index: int) -> Any:
        if os.getpid() != 1:
            self.handle = None
        return self.handle


class Idle(Holder):
    def __getitem__(self, index: int) -> Any:
        return index


class Loader:
    """Makes loaders and closes what they hold."""

    def __init__(self) -> None:
        self.opened: list[Any] = []

    def __call__(self, handle: Any, kind: type[Holder] = Holder, **settings: Any) -> DataLoader[Any]:
        self.opened.append(handle)
        return DataLoader(kind(handle), **{"num_workers": 2, **settings})


@pytest.fixture
def loader() -> Iterator[Loader]:
    made = Loader()
    yield made
    for handle in made.opened:
        if hasattr(handle, "close"):
            handle.close()


def _file(folder: Path) -> Any:
    (folder / "data.bin").write_bytes(bytes(64))
    return (folder / "data.bin").open("rb")


def _text(folder: Path) -> Any:
    (folder / "data.txt").write_text("text")
    return (folder / "data.txt").open()


def _zip(folder: Path) -> Any:
    with zipfile.ZipFile(folder / "data.zip", "w") as archive:
        archive.writestr("a", "b")
    return zipfile.ZipFile(folder / "data.zip")


def _tar(folder: Path) -> Any:
    with tarfile.open(folder / "data.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("a"))
    return tarfile.open(folder / "data.tar")


def _npz(folder: Path) -> Any:
    np.savez(folder / "data.npz", a=np.zeros(3))
    return np.load(folder / "data.npz")


def _sqlite(folder: Path) -> Any:
    return sqlite3.connect(folder / "data.db")


def _socket(folder: Path) -> Any:
    return socket.socket()


def _file_system(folder: Path) -> Any:
    return fsspec.asyn.AsyncFileSystem(skip_instance_cache=True)


@pytest.mark.parametrize(
    ("open_it", "kind"),
    [
        (_file, "an open file"),
        (_text, "an open file"),
        (_zip, "an open zip file"),
        (_tar, "an open tar file"),
        (_npz, "an open .npz file"),
        (_sqlite, "an open SQLite database"),
        (_socket, "an open socket"),
        (_file_system, "an asynchronous file system"),
    ],
)
def test_open_handles_are_found(
    loader: Loader, tmp_path: Path, open_it: Callable[[Path], Any], kind: str
) -> None:
    made = loader(open_it(tmp_path))
    (found,) = findings(made)
    assert found.id == "handle-before-fork"
    assert found.message == f"train_set.handle is {kind} that 2 workers will share."
    assert "def handle(self)" in found.fix


@pytest.mark.parametrize(
    ("module", "name", "kind"),
    [
        ("h5py", "File", "HDF5"),
        ("lmdb", "Environment", "LMDB"),
        ("torchcodec.decoders", "VideoDecoder", "video"),
    ],
)
def test_handles_of_libraries_are_known_by_their_class(
    monkeypatch: pytest.MonkeyPatch, loader: Loader, module: str, name: str, kind: str
) -> None:
    opened = type(name, (), {"is_open": True, "__bool__": lambda self: self.is_open})()
    assert ids(loader(opened)) == []
    library = types.ModuleType(module)
    setattr(library, name, type(opened))
    monkeypatch.setitem(sys.modules, module, library)
    (found,) = findings(loader(opened))
    assert found.id == "handle-before-fork"
    assert kind in found.message


def test_handles_inside_wrappers_are_named(loader: Loader, tmp_path: Path) -> None:
    inner = loader(_file(tmp_path)).dataset
    (found,) = findings(DataLoader(Subset(inner, range(4)), num_workers=2))
    assert found.message.startswith("train_set.dataset.handle is")


def test_what_a_fork_does_not_harm_is_left_alone(loader: Loader, tmp_path: Path) -> None:
    assert ids(loader(_file(tmp_path), num_workers=0)) == []
    assert ids(loader(_file(tmp_path), Positional)) == []
    assert ids(loader(_file(tmp_path), ByProcess)) == []
    assert ids(loader(_file(tmp_path), Idle)) == []
    assert ids(loader(io.BytesIO(b"data"))) == []
    assert ids(loader(sys.__stdin__)) == []
    assert ids(loader((tmp_path / "log.txt").open("w"))) == []
    assert ids(loader(np.memmap(tmp_path / "data.bin", mode="r"))) == []
    assert ids(loader(sqlite3.connect(":memory:"))) == []
    assert ids(loader(None)) == []


def test_closed_handles_are_left_alone(loader: Loader, tmp_path: Path) -> None:
    for open_it in (_file, _zip, _sqlite, _npz, _socket):
        handle = open_it(tmp_path)
        handle.close()
        assert ids(loader(handle)) == []
