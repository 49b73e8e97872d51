"""Large samples are written to the cache through its file, and come back as they were."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from unstarve import CachedDataset
from unstarve.fixes.memory.region import LARGE_BYTES, anonymous

COUNT = LARGE_BYTES // 4


class Made(Dataset[Any]):
    def __init__(self, make: Any) -> None:
        self.make = make

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class Batching(Made):
    """Counts how it is asked."""

    def __init__(self, make: Any, *, fails: bool = False) -> None:
        super().__init__(make)
        self.fails = fails
        self.batches = 0

    def __getitems__(self, indices: list[int]) -> list[Any]:
        self.batches += 1
        if self.fails:
            raise RuntimeError("no batches today")
        return [self.make(index) for index in indices]


def of_floats(index: int) -> torch.Tensor:
    return torch.arange(COUNT, dtype=torch.float32) + index


MAKERS = {
    "floats": of_floats,
    "transposed": lambda index: of_floats(index).view(64, -1).t(),
    "half": lambda index: of_floats(index).repeat(2).to(torch.bfloat16),
    "complex": lambda index: torch.complex(of_floats(index), of_floats(index)),
    "conjugate": lambda index: torch.complex(of_floats(index), of_floats(index)).conj(),
    "array": lambda index: np.arange(COUNT, dtype=np.float32) + index,
    "strided": lambda index: (np.arange(2 * COUNT, dtype=np.float32) + index)[::2],
    "big endian": lambda index: (np.arange(COUNT) + index).astype(">f4"),
    "bools": lambda index: torch.arange(LARGE_BYTES) % (index + 2) == 0,
}


@pytest.mark.parametrize("fill", ["now", "lazy"])
@pytest.mark.parametrize("name", MAKERS)
def test_a_large_sample_comes_back_as_it_was(name: str, fill: Literal["now", "lazy"]) -> None:
    make = MAKERS[name]
    cached = CachedDataset(Made(make), fill=fill, progress=False)
    for index in (3, 0, 4, 1, 2, 3):
        ours, theirs = cached[index], make(index)
        assert type(ours) is type(theirs)
        assert ours.dtype == theirs.dtype
        assert np.array_equal(plain(ours), plain(theirs))


def plain(sample: Any) -> Any:
    if isinstance(sample, np.ndarray):
        return sample
    return (
        sample.detach().resolve_conj().to(torch.complex64 if sample.is_complex() else torch.float32).numpy()
    )


def test_a_region_takes_more_than_one_write_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, data[:5000], at))
    region = anonymous(4 * LARGE_BYTES)
    data = bytes(range(256)) * (LARGE_BYTES // 128)
    region.write(100, data)
    assert region.read(100, len(data)) == data


@pytest.mark.parametrize("fails", [False, True])
def test_missing_samples_of_a_batch_are_read_together_where_the_dataset_can(*, fails: bool) -> None:
    source = Batching(of_floats, fails=fails)
    cached = CachedDataset(source, fill="lazy", progress=False)
    batch = list(cached.__getitems__([1, 3, 1]))
    assert [sample[0].item() for sample in batch] == [1.0, 3.0, 1.0]
    assert source.batches == 1
    assert list(cached.__getitems__([3, 1]))[1][0].item() == 1.0
    assert source.batches == 1


def test_a_sample_that_cannot_be_read_raises_its_own_error_in_a_batch() -> None:
    def make(index: int) -> torch.Tensor:
        if index == 3:
            raise LookupError("3 is missing")
        return of_floats(index)

    cached = CachedDataset(Batching(make), fill="lazy", progress=False)
    with pytest.raises(LookupError, match="3 is missing"):
        cached.__getitems__([1, 3])
