"""A cache folder that others write to: their files are neither believed nor written through."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from unstarve import CachedDataset
from unstarve.fixes.io.private_files import NotOursError
from unstarve.fixes.memory.store import cache_files as disk
from unstarve.fixes.memory.store import process_locks
from unstarve.fixes.memory.store.cache_key import key_from
from unstarve.fixes.memory.store.sample_store import _HEADER

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="users and links as on Unix")


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> tuple[torch.Tensor, str]:
        return torch.tensor([index]), f"text {index}"


def on_disk(folder: Path, **arguments: Any) -> CachedDataset:
    return CachedDataset(
        Numbers(), budget=0, over_budget="disk", cache_dir=folder, key="numbers", **arguments
    )


def assert_right(cached: CachedDataset) -> None:
    assert [cached[index] for index in range(30)] == [Numbers()[index] for index in range(30)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "cache"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def place(folder: Path) -> disk.CachePaths:
    return disk.CachePaths(folder, key_from("numbers", 30))


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("precious")
    return path


@pytest.mark.parametrize("name", ["partial", "finished"])
@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to], ids=["link", "hard link"])
def test_a_planted_link_is_replaced_and_never_written_through(
    place: disk.CachePaths, victim: Path, name: str, plant: Callable[[Path, Path], None]
) -> None:
    plant(getattr(place, name), victim)
    for _ in range(2):
        assert_right(on_disk(place.folder))
    assert victim.read_text() == "precious"
    assert list(place.folder.iterdir()) == [place.finished]
    assert not place.finished.is_symlink()


LOCKS: dict[str, Callable[[Path, Path], object]] = {
    "a symbolic link": Path.symlink_to,
    "a hard link": Path.hardlink_to,
    "not a regular file": lambda path, _: os.mkfifo(path),
}


@pytest.mark.parametrize("kind", LOCKS)
def test_a_planted_lock_is_left_alone_and_the_training_goes_on(
    place: disk.CachePaths, victim: Path, kind: str
) -> None:
    LOCKS[kind](place.lock, victim)
    with pytest.warns(UserWarning, match=rf"temporary file that the next run cannot reuse: .*lock is {kind}"):
        assert_right(on_disk(place.folder))
    assert victim.read_text() == "precious"
    assert list(place.folder.iterdir()) == [place.lock]


class Bomb:
    """Goes off when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


@pytest.mark.parametrize("name", ["partial", "finished"])
def test_what_another_user_has_pickled_is_not_unpickled(
    place: disk.CachePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert_right(on_disk(place.folder))
    data = bytearray(place.finished.read_bytes())
    bomb = pickle.dumps(Bomb(tmp_path / "gone off"))
    data[_HEADER.size : _HEADER.size + len(bomb)] = bomb
    place.finished.unlink()
    getattr(place, name).write_bytes(data)
    stranger = os.geteuid() + 1
    with monkeypatch.context() as theirs:
        theirs.setattr(os, "geteuid", lambda: stranger)
        assert disk.open_finished(place, 30) is None
        assert disk.filled_samples(place) == 0
        theirs.setattr(disk, "own_folder", lambda folder: folder)
        assert_right(on_disk(place.folder))
    assert not (tmp_path / "gone off").exists()


def test_a_pickled_dataset_does_not_open_another_users_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pickle.dumps(on_disk(folder))
    stranger = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: stranger)
    with pytest.raises(NotOursError, match="belongs to another user"):
        pickle.loads(data)


def test_in_a_shared_folder_each_user_has_a_folder(folder: Path) -> None:
    folder.chmod(0o1777)
    for _ in range(2):
        assert_right(on_disk(folder))
    (own,) = folder.iterdir()
    assert own.name == f"user-{os.geteuid()}"
    assert own.stat().st_mode & 0o777 == 0o700
    assert [path.suffix for path in own.iterdir()] == [".cache"]


def test_a_users_folder_that_is_a_link_is_not_used(folder: Path, tmp_path: Path) -> None:
    folder.chmod(0o1777)
    (tmp_path / "elsewhere").mkdir()
    (folder / f"user-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.warns(UserWarning, match="temporary file .* is a symbolic link"):
        assert_right(on_disk(folder))
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_who_fills_and_gets_on_no_more_is_not_waited_for(
    place: disk.CachePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    lazy = on_disk(place.folder, fill="lazy")  # holds the lock
    lazy[3]
    os.truncate(place.lock, 0)  # as one that fills at once would hold it
    monkeypatch.setattr(process_locks, "STALLED_S", 0.2)
    with pytest.warns(UserWarning, match="temporary file that the next run cannot reuse: .* has stopped"):
        cached = on_disk(place.folder)
    assert_right(cached)
    assert "a temporary file" in repr(cached)
    assert_right(lazy)


def test_who_fills_and_gets_on_is_waited_for(place: disk.CachePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    lazy = on_disk(place.folder, fill="lazy")
    os.truncate(place.lock, 0)
    seen: list[int] = []
    look = disk.filled_samples

    def one_more(place: disk.CachePaths) -> int:
        filled = look(place)
        while look(place) == filled:
            lazy[len(seen)]
            seen.append(len(seen))
        if len(seen) == 29:  # the last was among the first that were looked at
            lazy._held.all_rows()  # type: ignore[union-attr] # gives the file its name
        return look(place)

    monkeypatch.setattr(disk, "filled_samples", one_more)
    monkeypatch.setattr(process_locks, "STALLED_S", 1e-9)  # over as soon as nothing changes
    monkeypatch.setattr("unstarve.fixes.memory.store.cache_placement._POLL_S", 0)
    assert_right(on_disk(place.folder))
    assert len(seen) == 29
