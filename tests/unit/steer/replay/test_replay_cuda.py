"""Replay with a CUDA device: pinned memory stays pinned, and batches can live on the device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, TensorDataset

from unstarve.evaluate.evaluator.loader_evaluator import LoaderEvaluator
from unstarve.evaluate.handbook.measure_loader import measure_loading_overhead
from unstarve.steer.replay.replayed_batches import BatchCache

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

LARGE = (8, 64, 64)


def cache_of(batch: Any, **options: Any) -> BatchCache:
    cache = BatchCache(1, **options)
    cache.offer(batch)
    return cache


@pytest.mark.parametrize("shape", [LARGE, (3,)], ids=["large", "small"])
def test_pinned_memory_stays_pinned_also_after_a_change(shape: tuple[int, ...]) -> None:
    cache = cache_of(torch.zeros(shape).pin_memory())
    cache.hand_out().add_(1)
    again = cache.hand_out()
    assert again.is_pinned()
    assert again.sum() == 0


def test_a_pinned_batch_in_channels_last_keeps_its_layout() -> None:
    x = torch.zeros(2, 3, 32, 32).to(memory_format=torch.channels_last).pin_memory()
    assert cache_of(x).hand_out().stride() == x.stride()


@pytest.mark.parametrize("shape", [LARGE, (3,)], ids=["large", "small"])
def test_batches_on_the_device_survive_changes_in_place(shape: tuple[int, ...]) -> None:
    cache = cache_of({"x": torch.zeros(shape)}, replay_on="device")
    for _ in range(3):
        x = cache.hand_out()["x"].to("cuda")
        assert x.device.type == "cuda"
        assert x.sum() == 0
        x.add_(1)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")  # torch calls it a prototype
def test_handing_out_from_the_device_does_not_wait_for_it() -> None:
    cache = cache_of([torch.zeros(LARGE), torch.zeros(3)], replay_on="device")
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            cache.hand_out()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_packed_sequence_on_the_device_can_be_used() -> None:
    packed = cache_of(pack_sequence([torch.ones(3, 2), torch.ones(2, 2)]), replay_on="device").hand_out()
    assert packed.data.is_cuda
    torch.nn.LSTM(2, 4).cuda()(packed)


def test_batches_that_a_loader_puts_on_the_device_stay_there() -> None:
    cache = cache_of(torch.zeros(LARGE, device="cuda"))
    cache.hand_out().add_(1)
    assert cache.hand_out().is_cuda
    assert cache.hand_out().sum() == 0


def test_the_devices_random_stream_is_left_alone() -> None:
    loader = DataLoader(range(8), batch_size=2, collate_fn=lambda items: torch.rand(4, device="cuda"))  # type: ignore[arg-type]  # a range is a dataset
    torch.rand(1, device="cuda")
    before = torch.cuda.get_rng_state()
    LoaderEvaluator(loader, mode="replay", num_cached_batches=2)
    assert torch.equal(torch.cuda.get_rng_state(), before)


def test_a_pinning_loader_with_workers_can_be_replayed_and_says_where_it_ran() -> None:
    torch.zeros(1, device="cuda")
    loader = DataLoader(TensorDataset(torch.zeros(32, 2048)), batch_size=4, num_workers=2, pin_memory=True)
    evaluator = LoaderEvaluator(loader, mode="replay", num_cached_batches=3)
    assert [batch[0].is_pinned() for batch in evaluator] == [True] * 8
    assert evaluator.get_metrics()["device"] == torch.cuda.get_device_name()
    assert "device may have been at work" in evaluator.get_metrics()["batch_time_is"]


def test_work_on_the_device_is_billed_to_computing() -> None:
    x = torch.rand(4096, 4096, device="cuda")

    def compute(_: Any) -> None:
        for _step in range(20):
            x @ x

    loader = [x] * 5
    compute(None)
    assert (measure_loading_overhead(loader, compute=compute).load_ratio or 0) < 0.1
