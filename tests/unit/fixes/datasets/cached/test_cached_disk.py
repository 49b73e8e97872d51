"""A cache in a file: found again by the next run, never half of one, and only for the same dataset."""

from __future__ import annotations

import os
import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from unstarve import CachedDataset
from unstarve.errors import CacheError, CacheTooLargeError
from unstarve.fixes.memory.store import cache_files as disk
from unstarve.fixes.memory.store.cache_key import key_of


class Folder(Dataset[Any]):
    """Has parameters, as datasets do, and remembers what was read."""

    def __init__(self, root: str = "/data", scale: float = 1.0, count: int = 30) -> None:
        self.root = root
        self.scale = scale
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        READ.append(index)
        return torch.full((50,), index * self.scale), index, f"{self.root}/{index}.png"


READ: list[int] = []


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    READ.clear()
    monkeypatch.setenv("UNSTARVE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def on_disk(dataset: Any, **arguments: Any) -> CachedDataset:
    return CachedDataset(dataset, budget=0, over_budget="disk", **arguments)


def suffixes(folder: Path) -> list[str]:
    return sorted(path.suffix for path in folder.iterdir())


def assert_right(cached: CachedDataset, dataset: Folder) -> None:
    rows, labels, names = zip(*DataLoader(cached, batch_size=8), strict=True)
    assert torch.equal(torch.cat(rows)[:, 7], torch.arange(30) * dataset.scale)
    assert torch.cat(labels).tolist() == list(range(30))
    assert names[0][3] == f"{dataset.root}/3.png"


def test_the_next_run_finds_it_and_reads_nothing_but_a_few_samples(folder: Path) -> None:
    assert_right(on_disk(Folder()), Folder())
    assert suffixes(folder) == [".cache"]
    assert sorted(READ) == list(range(30))
    READ.clear()
    again = on_disk(Folder())
    assert_right(again, Folder())
    assert len(READ) == 3
    assert f"in {folder}" in repr(again)


def test_what_fits_in_memory_makes_no_file(folder: Path) -> None:
    CachedDataset(Folder(), over_budget="disk")
    assert not folder.exists()


def test_the_folder_is_the_users_own(folder: Path, tmp_path: Path) -> None:
    on_disk(Folder(), cache_dir=tmp_path / "mine")
    assert suffixes(tmp_path / "mine") == [".cache"]
    assert not folder.exists()
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o700


def test_without_a_wish_it_is_the_users_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSTARVE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert disk.cache_folder(None) == tmp_path / "xdg" / "unstarve"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert disk.cache_folder(None) == tmp_path / ".cache" / "unstarve"


@pytest.mark.parametrize("other", [Folder("/elsewhere"), Folder(scale=2.0), Folder(count=29)], ids=vars)
def test_another_dataset_has_another_file(folder: Path, other: Folder) -> None:
    on_disk(Folder())
    other_cached = on_disk(other)
    assert suffixes(folder) == [".cache", ".cache"]
    assert float(other_cached[5][0][0]) == 5 * other.scale


def test_a_key_of_ones_own_decides_alone(folder: Path) -> None:
    first = on_disk(Folder(scale=1.0), key="my data/v1")
    assert float(on_disk(Folder(scale=2.0), key="my data/v1")[5][0][0]) == 5.0
    assert float(on_disk(Folder(scale=2.0), key="my data/v2")[5][0][0]) == 10.0
    assert [path.name.split("-")[0] for path in folder.iterdir()] == ["my", "my"]
    assert first[5][1] == 5


@pytest.mark.parametrize("size", [0, 50, 200, 5000])
def test_a_file_that_was_cut_short_is_made_anew(folder: Path, size: int) -> None:
    on_disk(Folder())
    (file,) = folder.iterdir()
    os.truncate(file, size)
    assert_right(on_disk(Folder()), Folder())


def test_a_file_of_another_version_is_made_anew(folder: Path) -> None:
    on_disk(Folder())
    (file,) = folder.iterdir()
    with file.open("r+b") as opened:
        opened.seek(8)
        opened.write(b"\xff")
    assert_right(on_disk(Folder()), Folder())


def test_what_was_begun_before_the_machine_restarted_is_not_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lazy = on_disk(Folder(), fill="lazy")
    for index in range(20):
        lazy[index]
    del lazy
    assert suffixes(folder) == [".partial"]
    READ.clear()
    monkeypatch.setattr(disk, "boot_id", lambda: b"another")
    on_disk(Folder())
    assert sorted(READ) == list(range(30))


def test_a_lazily_filled_file_is_finished_when_all_is_there_and_continued_when_not(folder: Path) -> None:
    lazy = on_disk(Folder(), fill="lazy")
    for index in range(20):
        lazy[index]
    assert suffixes(folder) == [".lock", ".partial"]
    del lazy
    assert suffixes(folder) == [".partial"]
    READ.clear()
    lazy = on_disk(Folder(), fill="lazy")
    assert_right(lazy, Folder())
    assert len(READ) == 10 - 1 + 3  # what is missing, one of which is among the three it looks at
    del lazy
    assert suffixes(folder) == [".cache"]


def test_who_comes_while_another_fills_lazily_has_a_file_of_its_own(folder: Path) -> None:
    first = on_disk(Folder(), fill="lazy")
    for fill in ("now", "lazy"):
        second = on_disk(Folder(), fill=fill)
        assert_right(second, Folder())
        assert "a temporary file" in repr(second)
    assert suffixes(folder) == [".lock", ".partial"]
    assert_right(first, Folder())


def test_who_comes_while_another_fills_waits_for_it(folder: Path) -> None:
    begun = threading.Event()
    go_on = threading.Event()

    class Slow(Folder):
        def __getitem__(self, index: int) -> Any:
            if index == 10:
                begun.set()
                go_on.wait(180)
            return super().__getitem__(index)

    found: list[CachedDataset] = []
    threads = [threading.Thread(target=lambda: found.append(on_disk(Slow(), key="same"))) for _ in range(2)]
    threads[0].start()
    assert begun.wait(180)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(180)
    assert_right(found[0], Folder())
    assert_right(found[1], Folder())
    assert len(READ) <= 30 + 3


def test_an_error_leaves_nothing_behind(folder: Path) -> None:
    class Broken(Folder):
        def __getitem__(self, index: int) -> Any:
            if index == 17:
                raise OSError("unreadable")
            return super().__getitem__(index)

    with pytest.raises(CacheError, match="sample 17 could not be read"):
        on_disk(Broken())
    assert suffixes(folder) == []


def test_a_full_disk_is_an_error_that_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(CacheTooLargeError, match=r"No space left .* cache_dir= or UNSTARVE_CACHE"):
        on_disk(Folder())
    assert suffixes(folder) == []


def test_a_folder_that_cannot_be_made_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="cache_dir= or UNSTARVE_CACHE"):
        on_disk(Folder(), cache_dir=tmp_path / "file" / "folder")


def test_a_folder_that_vanishes_while_it_is_filled_costs_the_file_only(folder: Path) -> None:
    lazy = on_disk(Numbers(), fill="lazy")
    shutil.rmtree(folder)
    list(DataLoader(lazy))
    with pytest.warns(UserWarning, match="the next run will build the cache again"):
        lazy.rows()
    assert lazy.rows().sum() == 435


def test_a_dataset_that_grows_past_its_budget_while_it_is_filled_moves_to_a_file(folder: Path) -> None:
    class Growing(Folder):
        def __getitem__(self, index: int) -> Any:
            READ.append(index)
            return np.zeros(10 if index in (0, 15, 29) else 10_000), index

    cached = CachedDataset(Growing(), budget="100KB", over_budget="disk")
    assert [len(cached[index][0]) for index in (0, 1, 15, 28)] == [10, 10_000, 10, 10_000]
    assert suffixes(folder) == [".cache"]
    assert sorted(READ)[-1] == 29
    assert len(READ) <= 31


def test_what_is_written_into_rows_does_not_reach_the_file() -> None:
    for _ in range(2):
        rows = CachedDataset(Numbers(), budget=0, over_budget="disk").rows()
        assert rows.sum() == 435
        rows.zero_()


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index])


def test_a_pickle_names_the_file_and_holds_no_copy() -> None:
    cached = on_disk(Folder())
    data = pickle.dumps(cached)
    assert len(data) < 2000
    assert_right(pickle.loads(data), Folder())


# Which dataset is it?


def key(dataset: Any) -> str:
    return key_of(dataset, 3, [])


class Holder:
    def __init__(self, value: Any) -> None:
        self.value = value


def closure(number: int) -> Callable[[int], int]:
    return lambda value: value + number


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2), (1, 1.0), ("1", 1), (None, False), ([1, 2], [2, 1]), ([1], (1,)), ([[1], 2], [[1, 2]]),
        ({"a": 1}, {"a": 2}), ({"a": 1}, {"b": 1}), ({1, 2}, {1, 3}),
        (np.zeros(3), np.zeros(4)), (np.zeros(3), np.zeros(3, np.float32)), (torch.zeros(2), torch.ones(2)),
        (torch.zeros(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16)),
        (np.array(["a", None], object), np.array(["b", None], object)), (Path("/a"), Path("/b")),
        (closure(1), closure(2)), (closure(1), len), (Holder(1), Holder(2)), (int, float),
        (Holder([Holder(1)]), Holder([Holder(2)])), (Folder.__len__, Folder.__getitem__),
        (Folder(count=1).__len__, Folder(count=2).__len__),
    ],
)  # fmt: skip
def test_what_differs_has_another_key(one: Any, other: Any) -> None:
    assert key(Holder(one)) == key(Holder(one))
    assert key(Holder(one)) != key(Holder(other))


def test_what_has_no_content_does_not_matter() -> None:
    one, other = Holder(threading.Lock()), Holder(threading.Lock())
    assert key(one) == key(other)


def test_a_dataset_that_is_nested_without_end_needs_a_key() -> None:
    chain = Holder(None)
    for _ in range(5000):
        chain = Holder(chain)
    with pytest.raises(CacheError, match="pass key="):
        key(chain)


def test_a_dataset_may_refer_to_itself() -> None:
    one = Holder(None)
    one.value = [one, {"self": one}]
    assert key(one) == key(one)


def test_probes_tell_datasets_apart_that_look_the_same() -> None:
    assert key_of(Holder(1), 3, [torch.zeros(2)]) != key_of(Holder(1), 3, [torch.ones(2)])


def test_a_fingerprint_of_its_own_is_believed() -> None:
    one, other = Holder(1), Holder(2)
    one._fingerprint = other._fingerprint = "same"  # type: ignore[attr-defined] # as in Hugging Face datasets
    assert key(one) == key(other)
