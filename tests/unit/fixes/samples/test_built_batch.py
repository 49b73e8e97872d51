"""A finished batch passes through torch's own loader as it is, and is still a list of samples to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from unstarve.fixes.memory.buffers import empty_batch
from unstarve.fixes.samples.built_batch import Batched

SAMPLES: dict[str, Callable[[int], Any]] = {
    "tensor": lambda i: torch.full((3,), i),
    "array": lambda i: np.full(3, i),
    "tuple": lambda i: (torch.full((3,), i), i),
    "list": lambda i: [torch.full((3,), i), i],
    "dict": lambda i: {"x": torch.full((3,), i), "y": i},
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_default_collate_takes_the_finished_batch(kind: str) -> None:
    batch = Batched("finished", 4, SAMPLES[kind])
    assert default_collate(batch) == "finished"


@pytest.mark.parametrize("kind", SAMPLES)
def test_to_everyone_else_it_is_a_sequence_of_samples(kind: str) -> None:
    batch = Batched(None, 4, SAMPLES[kind])
    plain = [SAMPLES[kind](i) for i in range(4)]
    assert len(batch) == 4
    torch.testing.assert_close(list(batch), plain)
    torch.testing.assert_close(batch[1:3], plain[1:3])
    torch.testing.assert_close([batch[-4], batch[-1]], [plain[0], plain[3]], check_dtype=True)
    torch.testing.assert_close(default_collate([batch[0], batch[0]]), default_collate([plain[0], plain[0]]))
    with pytest.raises(IndexError):
        batch[4]


def test_an_operation_on_the_first_sample_gives_an_ordinary_tensor() -> None:
    first = Batched(None, 2, SAMPLES["tensor"])[0]
    assert isinstance(first, torch.Tensor)
    assert type(first + 1) is torch.Tensor
    assert type(torch.stack([first, first])) is torch.Tensor


def test_an_operation_on_the_first_sample_gives_an_ordinary_array() -> None:
    first = Batched(None, 2, SAMPLES["array"])[0]
    assert isinstance(first, np.ndarray)
    assert type(first + 1) is np.ndarray
    assert type(np.stack([first, first])) is np.ndarray
    assert type(first.sum()) is np.int64


class Doubles(Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, 2 * index])

    def __getitems__(self, indices: list[int]) -> Batched:
        whole = empty_batch((len(indices), 2), torch.int64)
        for row, index in enumerate(indices):
            whole[row] = self[index]
        return Batched(whole, len(indices), lambda i: whole[i])


@pytest.mark.parametrize("workers", [0, 1])
def test_the_stock_loader_gives_the_same_batches_with_it(workers: int) -> None:
    batches = list(DataLoader(Doubles(), batch_size=3, num_workers=workers))
    assert torch.equal(torch.cat(batches), torch.tensor([[i, 2 * i] for i in range(8)]))
    if workers:
        assert all(batch.is_shared() for batch in batches)
