"""A monitored loader sees kept batches and what runs out, without a recording."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import unstarve
from unstarve.evaluate.monitor import memory_health
from unstarve.evaluate.monitor.memory_health import MemoryHealth

S = 1_000_000_000
STEPS = 300

Use = Callable[[int], int]


class Machine:
    """Says how many descriptors are open and how full /dev/shm is, by the number of batches."""

    def __init__(self, patch: pytest.MonkeyPatch, descriptors: Use, shm: Use = lambda _: 10**6) -> None:
        self.batches = 0
        patch.setattr(memory_health, "open_descriptors", lambda: descriptors(self.batches))
        patch.setattr(memory_health, "descriptor_limit", lambda: 1024)
        patch.setattr(memory_health, "shared_memory", lambda: (shm(self.batches), 10**8))

    def train(self, keep: Callable[[list[Any]], Any]) -> MemoryHealth:
        """Ten batches a second."""
        health, kept = MemoryHealth("loader", from_workers=True), []
        for self.batches in range(1, STEPS):
            batch = [torch.zeros(4), torch.tensor([self.batches])]
            health.note(batch, self.batches, self.batches * S // 10)
            kept.append(keep(batch))
        return health


def test_a_healthy_loop_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, lambda batches: 20 + batches % 7)
    assert machine.train(lambda batch: batch[0].sum().item()).found == {}


def test_kept_batches_and_descriptors_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, lambda batches: 20 + batches)
    found = machine.train(lambda batch: batch[1]).found
    assert set(found) == {"kept-batches", "descriptors"}
    assert found["kept-batches"].message.startswith("batch[1] of loader stays in memory")
    assert "will run out in about" in found["descriptors"].message


def test_shared_memory_that_fills_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, lambda _: 20, lambda batches: 10**6 + 10**5 * batches)
    health = machine.train(lambda batch: None)
    assert set(health.found) == {"shm-full"}
    assert health.note([torch.zeros(1)], STEPS, STEPS * S) == []


def test_looks_of_a_long_training_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    Machine(monkeypatch, lambda _: 20)
    health = MemoryHealth("loader", from_workers=True)
    for batches in range(1, 2000):
        health.note(torch.zeros(1), batches, batches * S)
    assert 32 <= len(health._looks) <= 128


def test_the_loader_warns_and_delivers_the_same_batches(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Machine(monkeypatch, lambda _: 1000)
    loader = unstarve.MonitoredDataLoader(DataLoader(range(6), batch_size=2), name="train")  # type: ignore[arg-type]
    assert loader.health() == ()
    with caplog.at_level(logging.WARNING, "unstarve.monitor"):
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]
    assert [one.id for one in loader.health()] == ["descriptors"]
    (warning,) = caplog.messages
    assert warning.startswith(
        "train: The training process has 1,000 of 1,024 file descriptors open. (descriptors)"
    )
