"""Real and replayed batches take turns by whole steps, in epochs of the length they have anyway."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from unstarve.model.launch_settings import IdealSettings
from unstarve.record import format as f
from unstarve.steer.replay.ideal_blocks import Ideal

STEPS = 7


class Clock:
    """Time that passes only where a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Loader:
    """`STEPS` batches an epoch, each of which takes up to `load_s`."""

    def __init__(self, number: int, ideal: Ideal, clock: Clock, load_s: float) -> None:
        self.number, self.ideal, self.clock, self.load_s = number, ideal, clock, load_s
        self.uneven = random.Random(number)
        self.kinds: list[tuple[int, bool]] = []
        """Block, and whether the batch was replayed, of every batch."""

    def __len__(self) -> int:
        return STEPS

    def real(self, batches: Iterator[int]) -> torch.Tensor:
        self.clock.now_s += self.load_s * self.uneven.random()
        return torch.full((2,), next(batches))

    def __iter__(self) -> Iterator[Any]:
        self.ideal.begin_epoch(self.number, self)
        batches = iter(range(STEPS))
        while True:
            self.ideal.before(self.number)
            try:
                batch = self.ideal.deliver(self.number, self.real, batches)
            except StopIteration:
                return
            flags, block = self.ideal.label(self.number, batch)
            self.kinds.append((block, bool(flags & f.REPLAY)))
            yield batch


def ideal(block_steps: int) -> Ideal:
    return Ideal(IdealSettings(pairs=4, block_steps=block_steps, block_s=0.1, cached_batches=3))


@pytest.mark.parametrize("block_steps", range(1, 2 * STEPS))
def test_an_epoch_keeps_its_length_wherever_a_block_ends(clock: Clock, block_steps: int) -> None:
    measuring = ideal(block_steps)
    loader = Loader(0, measuring, clock, load_s=0.2)
    for _ in range(40):
        length = 0
        for _ in loader:
            clock.now_s += 0.1
            length += 1
        assert length == STEPS
    assert measuring.done


@pytest.mark.parametrize("fast_s", [0.002, 0.02, 0.2])
@pytest.mark.parametrize("block_steps", [1, 2, 5])
def test_loaders_side_by_side_get_batches_of_one_kind(clock: Clock, fast_s: float, block_steps: int) -> None:
    measuring = ideal(block_steps)
    fast, slow = Loader(0, measuring, clock, fast_s), Loader(1, measuring, clock, load_s=0.02)
    for _ in range(60):
        length = 0
        for _ in zip(fast, slow, strict=False):
            clock.now_s += 0.007
            length += 1
        assert length == STEPS
    assert measuring.done
    assert fast.kinds[: len(slow.kinds)] == slow.kinds
    assert {replayed for _, replayed in slow.kinds} == {True, False}


def test_a_loader_that_comes_after_another_goes_on_with_the_blocks(clock: Clock) -> None:
    measuring = ideal(3)
    training, validating = Loader(0, measuring, clock, load_s=0.2), Loader(1, measuring, clock, load_s=0.2)
    for loader in (training, *[validating] * 40):
        for _ in loader:
            clock.now_s += 0.1
    assert measuring.done
