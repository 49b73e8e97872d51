"""Chunked shuffling: every sample once, in an order that storage likes, read ahead."""

from __future__ import annotations

import itertools
import os
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, default_collate

from packed_samples import images, mixed, ragged
from same_batches import same
from unstarve import ChunkShuffleSampler, PackedDataset, PackedWriter
from unstarve.errors import DataFileError, UsageError
from unstarve.fixes.datasets.packed import packed_chunks as packed_chunks
from unstarve.fixes.datasets.packed.packed_file import PackedFile
from unstarve.fixes.io.page_cache import evict, residency


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("count", [0, 1, 7, 64, 100])
@pytest.mark.parametrize(("chunk", "window"), [(1, 1), (8, 1), (8, 3), (5, 100), (1000, 2)])
def test_every_index_comes_once(count: int, chunk: int, window: int) -> None:
    sampler = ChunkShuffleSampler(range(count), chunk, window)
    assert len(sampler) == count
    assert sorted(sampler) == list(range(count))


def test_a_window_holds_whole_chunks_in_random_order() -> None:
    order = list(ChunkShuffleSampler(range(100), chunk=10, window=2, generator=seeded()))
    windows = [order[at : at + 20] for at in range(0, 100, 20)]
    chunks = [sorted({index // 10 for index in window}) for window in windows]
    assert all(len(some) == 2 for some in chunks)
    assert sorted(itertools.chain(*chunks)) == list(range(10))
    assert chunks != sorted(chunks)
    assert all(window != sorted(window) for window in windows)


def test_the_generator_decides_the_order_and_each_epoch_draws_once() -> None:
    sampler = ChunkShuffleSampler(range(50), 4, 3, seeded(5))
    epochs = [list(sampler), list(sampler)]
    assert epochs[0] != epochs[1]
    again = ChunkShuffleSampler(range(50), 4, 3, seeded(5))
    assert [list(again), list(again)] == epochs
    generator = seeded(5)
    next(iter(ChunkShuffleSampler(range(50), 4, 3, generator)))  # an epoch that is given up draws as much
    assert list(ChunkShuffleSampler(range(50), 4, 3, generator)) == epochs[1]


def test_without_a_generator_torchs_own_decides() -> None:
    sampler = ChunkShuffleSampler(range(50), 4)
    torch.manual_seed(3)
    first = list(sampler)
    torch.manual_seed(3)
    assert list(sampler) == first != list(sampler)


@pytest.mark.parametrize(("chunk", "window"), [(0, 1), (1, 0), (-1, 2)])
def test_sizes_that_make_no_sense_are_refused(chunk: int, window: int) -> None:
    with pytest.raises(UsageError, match="must be >= 1"):
        ChunkShuffleSampler(range(5), chunk, window)


def opened(path: Path, read: str, **more: Any) -> PackedDataset:
    if read == "direct" and PackedFile(str(path)).direct_fd is None:
        pytest.skip("a file system without O_DIRECT")
    return PackedDataset(path, read=read, **more)


MAKERS: dict[str, Any] = {"alike": lambda n: images(n, 1500), "ragged": ragged, "mixed": mixed}


@pytest.fixture(scope="module", params=MAKERS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    samples = MAKERS[request.param](101)
    path = tmp_path_factory.mktemp("packed") / request.param
    with PackedWriter(path) as writer:
        for sample in samples:
            writer.append(sample)
    return path, samples


def loader(dataset: PackedDataset, **how: Any) -> DataLoader[Any]:
    sampler = dataset.chunk_sampler(chunk=8, window=2, generator=seeded())
    return DataLoader(dataset, batch_size=10, sampler=sampler, collate_fn=list, **how)


def expected_epochs(samples: list[Any], count: int) -> list[list[Any]]:
    sampler = ChunkShuffleSampler(samples, 8, 2, seeded())
    return [[samples[i] for i in sampler] for _ in range(count)]


@pytest.mark.parametrize(("read", "workers"), [("pread", 0), ("direct", 0), ("view", 0), ("pread", 2)])
def test_samples_read_ahead_are_those_of_the_file(case: Any, read: str, workers: int) -> None:
    path, samples = case
    dataset = opened(path, read, verify=True)
    batches = loader(dataset, num_workers=workers)
    for expected in expected_epochs(samples, 2):
        assert same(list(itertools.chain(*batches)), expected)


@pytest.mark.parametrize("read", ["pread", "direct"])
def test_an_epoch_that_is_given_up_does_not_disturb_the_next(case: Any, read: str) -> None:
    path, samples = case
    batches = loader(opened(path, read))
    first, second = expected_epochs(samples, 2)
    begun = iter(batches)
    assert same(next(begun), first[:10])
    assert same(list(itertools.chain(*batches)), second)
    assert same(next(begun), first[10:20])  # and the first goes on, read for itself


@pytest.mark.parametrize("read", ["pread", "direct"])
def test_what_the_order_did_not_promise_is_read_all_the_same(case: Any, read: str) -> None:
    path, samples = case
    dataset = opened(path, read)
    order = list(dataset.chunk_sampler(chunk=8, window=2, generator=seeded()))
    for some in (order[:10], order[:10], order[90:], list(range(0, 101, 9)), [order[0]] * 30):
        assert same(list(dataset.__getitems__(some)), [samples[i] for i in some])


def test_chunks_are_read_whole_and_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = images(64, 2000)
    with PackedWriter(tmp_path / "a") as writer:
        for sample in samples:
            writer.append(sample)
    dataset = opened(tmp_path / "a", "direct")
    reads: list[int] = []
    fetch = dataset._access.fetch

    def noted(offsets: Any, sizes: Any, *rest: Any) -> None:
        labels_bytes = 64 * 8  # their column is read once, as a whole
        reads.append(sum(size > labels_bytes for size in sizes.tolist()))
        fetch(offsets, sizes, *rest)

    monkeypatch.setattr(dataset._access, "fetch", noted)
    batches = DataLoader(dataset, batch_size=4, sampler=dataset.chunk_sampler(chunk=8, window=2))
    assert sum(len(labels) for _, labels in batches) == 64
    assert sum(reads) <= 8  # two chunks in each of four windows, and nothing twice or sample by sample


def test_a_window_is_read_in_parts(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path, samples = case
    monkeypatch.setattr(packed_chunks, "_PART_BYTES", 4096)
    dataset = opened(path, "direct")
    order = list(dataset.chunk_sampler(chunk=8, window=3))
    assert same(list(dataset.__getitems__(order)), [samples[i] for i in order])


def test_memory_of_used_chunks_is_used_again(tmp_path: Path) -> None:
    with PackedWriter(tmp_path / "a") as writer:
        for sample in images(256, 2000):
            writer.append(sample)
    dataset = opened(tmp_path / "a", "direct")
    seen: set[int] = set()
    for _ in DataLoader(dataset, batch_size=4, sampler=dataset.chunk_sampler(chunk=8, window=2)):
        assert dataset._ahead is not None
        assert len(dataset._ahead._loads) <= 3
        seen.update(id(loaded.memory) for loaded in list(dataset._ahead._loads.values()))
    assert len(seen) <= 4


def test_the_default_chunk_goes_by_the_size_of_samples(tmp_path: Path) -> None:
    for name, shape in (("small", (10,)), ("large", (300_000,))):
        with PackedWriter(tmp_path / name) as writer:
            for sample in images(20, *shape):
                writer.append(sample)
    assert PackedDataset(tmp_path / "small").chunk_sampler().chunk > 20
    assert PackedDataset(tmp_path / "large").chunk_sampler().chunk == 3  # 1.2 MB each


@pytest.mark.parametrize("read", ["pread", "direct"])
def test_trouble_ahead_is_told_where_the_sample_is_wanted(case: Any, read: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(case[0].read_bytes())
    dataset = opened(copy, read)
    batches = iter(loader(dataset))
    os.truncate(copy, 5000)
    with pytest.raises(DataFileError, match="was truncated"):
        list(batches)


def test_a_sampler_can_be_sent_to_another_process(case: Any) -> None:
    sampler = PackedDataset(case[0]).chunk_sampler(chunk=8, generator=seeded())
    assert sorted(pickle.loads(pickle.dumps(sampler))) == list(range(101))


def test_batches_ahead_are_what_torch_would_collate(tmp_path: Path) -> None:
    samples = images(50, 1500)
    with PackedWriter(tmp_path / "a") as writer:
        for sample in samples:
            writer.append(sample)
    dataset = opened(tmp_path / "a", "direct")
    order = list(ChunkShuffleSampler(dataset, 8, 2, seeded()))
    batches = DataLoader(dataset, 7, sampler=dataset.chunk_sampler(chunk=8, window=2, generator=seeded()))
    for at, batch in enumerate(batches):
        assert same(batch, default_collate([samples[i] for i in order[7 * at : 7 * at + 7]]))


@pytest.mark.parametrize("workers", [0, 1])
def test_chunks_are_brought_into_the_page_cache_before_they_are_wanted(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "a"
    with PackedWriter(path) as writer:
        for sample in images(64, 25_000):
            writer.append(sample)
    evict(path)
    before = residency(path)
    if before is None or before > 0.1:
        pytest.skip("what the page cache holds cannot be seen or changed here")
    dataset = PackedDataset(path)
    batches = DataLoader(
        dataset,
        2,
        sampler=dataset.chunk_sampler(chunk=16, window=1),
        num_workers=workers,
        prefetch_factor=None,
    )
    next(iter(batches))
    assert wait_for(lambda: (residency(path) or 0) > 0.2)  # a quarter of the file for two samples


def wait_for(claim: Any) -> bool:
    end = time.monotonic() + 180
    while not claim() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(claim())


def test_one_sample_wanted_more_often_than_promised_spoils_nothing(tmp_path: Path) -> None:
    samples = images(64, 2000)
    with PackedWriter(tmp_path / "a") as writer:
        for sample in samples:
            writer.append(sample)
    dataset = opened(tmp_path / "a", "direct")
    order = list(dataset.chunk_sampler(chunk=4, window=2))
    for some in ([order[0]] * 8, order[:8], order[8:20], order[4:12], order[20:]):
        assert same(dataset.read_batch(some), default_collate([samples[i] for i in some]))
