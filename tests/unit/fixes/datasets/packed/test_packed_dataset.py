"""A packed file as a dataset: batches as torch would make them, in any process, by any way of reading."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, default_collate

from packed_samples import images, mixed, ragged
from same_batches import same
from unstarve import PackedDataset, PackedWriter
from unstarve.errors import DataFileError, UsageError
from unstarve.fixes.datasets.packed import packed_access as access_module
from unstarve.fixes.datasets.packed import packed_file as file_module
from unstarve.fixes.datasets.packed.packed_file import PackedFile
from unstarve.fixes.io import reading as reading_module
from unstarve.fixes.io.page_cache import evict, residency
from unstarve.fixes.samples import gather as gather_module
from unstarve.fixes.samples.built_batch import Batched
from unstarve.native import native, why_not_native

needs_native = pytest.mark.skipif(native() is None, reason=f"native reader: {why_not_native()}")
READS = ["view", "pread", "direct", "auto"]


@pytest.fixture(params=[pytest.param("native", marks=needs_native), "twin"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "twin":
        monkeypatch.setattr(gather_module, "native", lambda: None)
        monkeypatch.setattr(reading_module, "native", lambda: None)


def write(path: Path, samples: list[Any]) -> Path:
    with PackedWriter(path, overwrite=True) as writer:
        for sample in samples:
            writer.append(sample)
    return path


LARGE = images(40, 3, 50, 50)  # 30 KB: a row is a read of its own


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("packed") / "large", LARGE)


def opened(path: Path, read: str, **more: Any) -> PackedDataset:
    if read == "direct" and PackedFile(str(path)).direct_fd is None:
        pytest.skip("a file system without O_DIRECT")
    return PackedDataset(path, read=read, **more)


def resident(path: Path) -> float:
    share = residency(path)
    if share is None:
        pytest.skip("the kernel does not say what it caches")
    return share


@pytest.fixture
def cold(large: Path, tmp_path: Path) -> Path:
    """A file that nobody else has open and that the page cache does not hold."""
    path = Path(shutil.copy(large, tmp_path / "cold"))
    evict(path)
    if resident(path) > 0.1:
        pytest.skip("this file system keeps its files in memory")
    return path


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("verify", [False, True])
def test_a_batch_is_what_torch_would_collate(large: Path, read: str, verify: bool) -> None:
    dataset = opened(large, read, verify=verify)
    for indices in ([3], [0, 1, 2, 3], list(range(40)), [39, -1, 5, 5, 0]):
        expected = default_collate([LARGE[i] for i in indices])
        assert same(dataset.read_batch(indices), expected)
        batch = dataset.__getitems__(indices)
        assert isinstance(batch, Batched)
        assert same(default_collate(batch), expected)
        assert all(same(sample, LARGE[i]) for sample, i in zip(batch, indices, strict=True))


STRUCTURES: dict[str, Any] = {
    "tensor": lambda i: torch.full((3,), i),
    "array": lambda i: np.full((2, 2), i, np.float32),
    "int": lambda i: i,
    "float": lambda i: i / 3,
    "bool": lambda i: i % 2 == 0,
    "numpy scalar": np.float32,
    "dict": lambda i: {"x": torch.full((2, 1), float(i)), "y": (i, [np.uint8(i), True])},
    "text": lambda i: {"x": torch.full((2,), i), "name": f"sample {i}"},
    "text in a tuple": lambda i: (f"sample {i}", b"raw", i),
    "bfloat16": lambda i: torch.full((3,), i, dtype=torch.bfloat16),
    "nothing inside": lambda i: (torch.empty(2, 0), i),
    "empty": lambda i: ((), [], {}),
}


@pytest.mark.parametrize("kind", STRUCTURES)
def test_every_structure_collates_as_torch_does(tmp_path: Path, kind: str) -> None:
    samples = [STRUCTURES[kind](i) for i in range(6)]
    dataset = PackedDataset(write(tmp_path / "a", samples), read="view")
    expected = default_collate([samples[i] for i in (4, 0, 5)])
    assert same(dataset.read_batch([4, 0, 5]), expected)
    assert same(default_collate(dataset.__getitems__([4, 0, 5])), expected)
    rows = dataset.rows()
    if rows is not None:
        assert same(rows, default_collate(samples))


@pytest.mark.parametrize("value", [None, 1j, np.datetime64("2026-01-31"), np.array([1.0], ">f4")], ids=str)
def test_what_torch_cannot_collate_fails_as_it_does_there(tmp_path: Path, value: Any) -> None:
    dataset = PackedDataset(write(tmp_path / "a", [value] * 3))
    with pytest.raises((TypeError, ValueError)) as ours:
        dataset.read_batch([0, 1])
    with pytest.raises((TypeError, ValueError)) as theirs:
        default_collate([value] * 2)
    assert str(ours.value) == str(theirs.value)
    assert same(list(dataset.__getitems__([0, 1])), [value] * 2)
    assert dataset.rows() is None


@pytest.mark.parametrize(("workers", "context"), [(0, None), (2, "fork"), (1, "spawn")])
def test_the_stock_loader_gives_the_same_batches(large: Path, workers: int, context: str | None) -> None:
    how = {"num_workers": workers, "multiprocessing_context": context}
    loader = DataLoader(PackedDataset(large), batch_size=16, **how)  # type: ignore[arg-type] # a plain dict
    for batch, expected in zip(loader, DataLoader(LARGE, batch_size=16), strict=True):  # type: ignore[arg-type, var-annotated] # a list will do
        assert same(batch, expected)
        assert workers == 0 or batch[0].is_shared()


def test_a_transform_is_given_each_sample(large: Path) -> None:
    dataset = PackedDataset(large, transform=lambda sample: (sample[0].sum(), sample[1] + 1))
    expected = [(image.sum(), label + 1) for image, label in LARGE[:3]]
    assert same(dataset[2], expected[2])
    assert same(list(dataset.__getitems__([0, 1, 2])), expected)
    assert same(dataset.read_batch([0, 1, 2]), default_collate(expected))
    assert dataset.rows() is None
    assert not dataset.releases_gil
    assert PackedDataset(large).releases_gil


def test_it_can_be_cut_subset_and_joined(large: Path) -> None:
    dataset = PackedDataset(large)
    part = dataset[10:30:5]
    assert isinstance(part, Subset)
    assert [label for _, label in part] == [LARGE[i][1] for i in (10, 15, 20, 25)]  # type: ignore[attr-defined] # old protocol
    joined: Dataset[Any] = ConcatDataset([dataset, Subset(dataset, [7])])
    assert same(joined[40], LARGE[7])
    assert same(dataset[np.int64(3)], LARGE[3])
    assert same(dataset[torch.tensor(3)], LARGE[3])


@pytest.mark.parametrize("index", [40, -41, 1 << 40])
def test_an_index_outside_is_an_index_error(large: Path, index: int) -> None:
    dataset = PackedDataset(large)
    with pytest.raises(IndexError, match=f"sample {index} is out of range: .*large holds 40"):
        dataset[index]
    with pytest.raises(IndexError):
        dataset.read_batch([0, index])
    with pytest.raises(TypeError):
        dataset["0"]


def test_a_file_in_the_page_cache_is_given_as_rows(large: Path) -> None:
    large.read_bytes()
    assert resident(large) == 1
    dataset = PackedDataset(large)
    rows = dataset.rows()
    assert same(rows, default_collate(LARGE))
    assert all(part.is_contiguous() for part in rows)
    rows[0].zero_()  # stays in this process
    assert same(PackedDataset(large)[0], LARGE[0])
    assert PackedDataset(large, read="pread").rows() is None
    assert PackedDataset(large, verify=True).rows() is None
    assert PackedDataset(large, read="view").rows() is not None


def test_a_cold_file_is_read_into_the_page_cache_if_it_fits(cold: Path) -> None:
    dataset = PackedDataset(cold)
    assert dataset.rows() is None
    dataset.read_batch(range(40))
    assert resident(cold) > 0.9


def test_rows_are_given_of_a_warm_file_that_is_small(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows_at(dataset: PackedDataset, share: float | None) -> Any:
        monkeypatch.setattr(access_module, "residency", lambda fd: share)
        dataset._access._probe_at = 0.0
        return dataset.rows()

    dataset = PackedDataset(large)
    assert [rows_at(dataset, share) for share in (0.9, None)] == [None, None]
    rows = rows_at(dataset, 0.96)
    assert same(rows, default_collate(LARGE))
    assert rows_at(dataset, 0.1)[0].data_ptr() == rows[0].data_ptr()  # read once, and kept
    for limit in ({"_WHOLE_BYTES": 1 << 20}, {"available_bytes": lambda: 1 << 20}):
        with monkeypatch.context() as patch:
            for name, value in limit.items():
                patch.setattr(access_module, name, value)
            assert rows_at(PackedDataset(large), 1.0) is None


def test_a_file_that_memory_cannot_hold_is_read_directly(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(large, "direct")
    monkeypatch.setattr(access_module, "residency", lambda fd: 0.1)
    monkeypatch.setattr(access_module, "available_bytes", lambda: 1_000_000)
    dataset = PackedDataset(large)
    assert dataset._access.way() == "direct"
    assert same(dataset.read_batch([3, 1]), default_collate([LARGE[3], LARGE[1]]))
    assert dataset.rows() is None


def test_a_cold_file_is_brought_in_faster_than_it_is_wanted(cold: Path) -> None:
    dataset = PackedDataset(cold, read="auto")
    dataset.read_batch([30, 11, 20, 39])  # a tenth of it
    assert dataset._access.warming is not None
    step = dataset._access.warming._step
    assert step is not None
    step.result()
    assert resident(cold) > 0.25


def test_a_file_that_is_read_piece_by_piece_is_not_brought_in(cold: Path) -> None:
    assert PackedDataset(cold, read="pread")._access.warming is None


def test_a_forked_process_brings_it_in_by_itself(cold: Path) -> None:
    dataset = PackedDataset(cold)
    dataset.read_batch([0])  # the thread that brings it in is running, here
    loader = DataLoader(dataset, 10, num_workers=1, multiprocessing_context="fork")
    for start, batch in zip(range(0, 40, 10), loader, strict=True):
        assert same(batch, default_collate(LARGE[start : start + 10]))
    assert resident(cold) > 0.9


def test_direct_reads_leave_the_page_cache_as_it_was(cold: Path) -> None:
    dataset = opened(cold, "direct")
    for start in range(0, 40, 8):
        dataset.read_batch(range(start, start + 8))
    assert resident(cold) < 0.5  # labels, header, index, and what the kernel reads with them


def test_ragged_samples_are_read_directly_too(tmp_path: Path) -> None:
    samples = [b"%d" % i * 50_000 for i in range(12)]
    dataset = opened(write(tmp_path / "a", samples), "direct", verify=True)
    assert list(dataset.__getitems__(range(12))) == samples
    assert list(dataset.__getitems__([7, 3, 3])) == [samples[7], samples[3], samples[3]]


def test_threads_may_share_it(large: Path) -> None:
    dataset = PackedDataset(large, read="pread")
    wrong: list[int] = []

    def work(seed: int) -> None:
        for _ in range(20):
            indices = [(seed * 7 + i) % 40 for i in range(8)]
            if not same(dataset.read_batch(indices), default_collate([LARGE[i] for i in indices])):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_copy_in_another_process_opens_the_file_anew(large: Path) -> None:
    dataset = PackedDataset(large, read="pread", verify=True)
    copy = pickle.loads(pickle.dumps(dataset))
    assert same(copy[5], LARGE[5])
    assert (copy.read, copy.verify, copy.path) == ("pread", True, dataset.path)
    assert len(pickle.dumps(dataset)) < 1000


def test_it_is_found_from_another_folder(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(large.parent)
    stored = pickle.dumps(PackedDataset("large"))
    monkeypatch.chdir("/")
    assert same(pickle.loads(stored)[1], LARGE[1])


def test_a_file_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a", images(5))
    dataset = PackedDataset(path)
    stored = pickle.dumps(dataset)
    write(path, [*images(4), (torch.zeros(3, 5, 7), 1)])
    with pytest.raises(DataFileError, match="was replaced"):
        pickle.loads(stored)
    assert same(dataset[4], images(5)[4])  # whoever has it open keeps reading the old one


@pytest.mark.parametrize("read", ["view", "pread", "direct"])
def test_a_file_cut_short_while_open_is_an_error(tmp_path: Path, read: str) -> None:
    dataset = opened(write(tmp_path / "a", LARGE), read)
    os.truncate(tmp_path / "a", 100_000)
    with pytest.raises(DataFileError, match="was truncated"):
        dataset.read_batch([39])


@pytest.mark.parametrize("make", [images, ragged, mixed])
def test_forked_processes_read_what_the_parent_opened(tmp_path: Path, make: Any) -> None:
    samples = make(20)
    dataset = PackedDataset(write(tmp_path / "a", samples))
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert same(pool.apply(dataset.__getitem__, (7,)), samples[7])
    assert same(dataset[7], samples[7])


def test_a_way_that_does_not_exist_is_refused(large: Path) -> None:
    with pytest.raises(UsageError, match="read must be one of auto, view, pread, direct, got 'mmap'"):
        PackedDataset(large, read="mmap")


def test_a_file_larger_than_memory_is_mapped_too(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        try:
            file.truncate(8 * psutil.virtual_memory().total)
        except OSError:
            pytest.skip("this file system has no sparse files of that size")
    with (tmp_path / "huge").open("rb") as file:
        whole, is_writable = file_module._mapped(file.fileno())
        assert is_writable
        whole.close()


def test_a_map_that_cannot_be_written_to_reads_as_well(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **how: Any) -> Any:
        if "flags" in how:
            raise OSError("no memory to promise")
        return real(*args, **how)

    real = file_module.mmap.mmap
    monkeypatch.setattr(file_module.mmap, "mmap", refuse)
    dataset = PackedDataset(large, read="view")
    assert same(dataset.read_batch([1, 2]), default_collate([LARGE[1], LARGE[2]]))
    assert same(dataset[3], LARGE[3])
    assert dataset.rows() is None
