"""to_device on a GPU: batches are whole when training reads them, and nothing it holds is overwritten."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, Dataset

import unstarve

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

LARGE = 1 << 22


class Filled(Dataset[Any]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.full((LARGE,), float(index)), "name": str(index)}


def busy() -> None:
    """Keep the device busy for milliseconds, so that copies and training overlap."""
    a = torch.ones(4096, 4096, device="cuda")
    for _ in range(8):
        a = a @ a


@pytest.mark.parametrize("pin_memory", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_every_batch_is_the_loaders(workers: int, pin_memory: bool) -> None:
    loader = DataLoader(
        Filled(), batch_size=None, num_workers=workers, pin_memory=pin_memory,
        multiprocessing_context="forkserver" if workers else None,
    )  # fmt: skip
    kept = []
    for index, batch in enumerate(unstarve.to_device(loader, "cuda")):
        busy()
        assert batch["name"] == str(index)
        kept.append(batch["x"].min() + batch["x"].max())
    assert [float(total) for total in kept] == [2.0 * index for index in range(24)]


def test_what_training_holds_stays_as_it_was() -> None:
    held = []
    for batch in unstarve.to_device(DataLoader(Filled(), batch_size=None), "cuda", ahead=2):
        busy()
        held.append(batch["x"])
    assert all(bool((x == index).all()) for index, x in enumerate(held))


def test_what_moves_itself_is_whole_and_stays_as_it_was() -> None:
    def batches() -> Iterator[Any]:
        for index in range(24):
            whole = torch.full((LARGE,), float(index))
            yield pack_sequence([whole]), whole[:9].to_sparse(), whole.clone()

    for index, (packed, sparse, whole) in enumerate(unstarve.to_device(batches(), "cuda", ahead=1)):
        busy()
        assert bool((packed.data == index).all())
        assert bool((sparse.to_dense() == index).all())
        assert bool((whole == index).all())


def test_training_on_a_stream_of_its_own_waits_for_the_copy() -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        for index, batch in enumerate(unstarve.to_device(DataLoader(Filled(), batch_size=None), "cuda")):
            busy()
            assert bool((batch["x"] == index).all())
