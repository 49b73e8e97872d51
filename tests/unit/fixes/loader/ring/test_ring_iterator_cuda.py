"""The ring engine with a CUDA device: batches arrive pinned, and no slot is written while it is copied."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from unstarve import DataLoader

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

LARGE = 1 << 20  # float32 elements


class FilledSlot(Dataset[Any]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.full((LARGE,), float(index)), "y": torch.tensor([index]), "name": str(index)}


def ring(count: int, **options: Any) -> DataLoader[Any]:
    # Not forked: the tests before may have used CUDA.
    options = {"batch_size": None, "num_workers": 1, "pin_memory": True, **options}
    return DataLoader(FilledSlot(count), engine="ring", multiprocessing_context="forkserver", **options)


def test_everything_arrives_pinned() -> None:
    for index, batch in enumerate(ring(12)):
        assert batch["x"].is_pinned()
        assert batch["y"].is_pinned()
        assert (batch["x"] == index).all()
        assert batch["name"] == str(index)


@pytest.mark.parametrize("side_stream", [False, True])
def test_a_copy_that_goes_on_after_the_batch_is_gone_reads_that_batch(side_stream: bool) -> None:
    stream = torch.cuda.Stream() if side_stream else torch.cuda.current_stream()
    copies = []
    for batch in ring(60):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)  # the copy has to wait its turn, while the batch is dropped
            copies.append(batch["x"].to("cuda", non_blocking=True))
        del batch
    torch.cuda.synchronize()
    assert [int(copy[0]) for copy in copies] == list(range(60))
    assert all((copy == index).all() for index, copy in enumerate(copies))


def test_slots_are_used_again() -> None:
    iterator: Any = iter(ring(200))
    for index, batch in enumerate(iterator):
        batch["x"].to("cuda", non_blocking=True)
        if index == 150:
            assert 1 <= iterator._inbox.slot_count <= 2 + 2 + 4


def test_memory_without_pinning_is_not_pinned() -> None:
    assert not any(batch["x"].is_pinned() for batch in ring(5, pin_memory=False))
