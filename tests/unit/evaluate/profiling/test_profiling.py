"""Profiling from a user's own code: a window of steps, callables against each other, memory."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import unstarve
from unstarve.errors import UsageError


def train(profiled: unstarve.profile, steps: int) -> None:
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for (x,) in DataLoader(TensorDataset(torch.randn(steps * 4, 8)), batch_size=4):
        model(x).sum().backward()
        optimizer.step()
        profiled.step()


def test_a_window_is_profiled_and_its_trace_kept(tmp_path: Path) -> None:
    kept = tmp_path / "t.json.gz"
    with unstarve.profile(wait=1, warmup=1, active=2, trace=kept) as profiled:
        train(profiled, 8)
    assert profiled.result.steps == 2
    assert {phase.name for phase in profiled.result.phases if phase.seconds} >= {
        "forward",
        "backward",
        "optimizer",
    }
    assert "aten::addmm" in str(profiled)
    with gzip.open(kept) as file:
        assert json.load(file)["traceEvents"]


def test_too_few_steps_and_wrong_windows_are_errors() -> None:
    with unstarve.profile() as profiled:
        train(profiled, 2)
    with pytest.raises(UsageError, match=r"needs 9 calls of step\(\), there were 2"):
        _ = profiled.result
    with pytest.raises(UsageError, match="active must be >= 1"):
        unstarve.profile(active=0)


def test_the_faster_callable_is_found() -> None:
    compared = unstarve.compare_implementations(
        {"slow": lambda x: time.sleep(0.02), "fast": lambda x: x + 1}, torch.ones(1 << 20), rounds=3
    )
    assert compared.fastest == "fast"
    slow, fast = compared.results
    assert slow.ratio == 1
    assert fast.ratio_low <= fast.ratio <= fast.ratio_high
    assert fast.operators[0][0] == "aten::add"
    assert fast.device_s is None or fast.device_s >= 0
    assert str(compared).startswith("slow: ")


def test_callables_and_rounds_are_checked() -> None:
    with pytest.raises(UsageError, match="at least one callable"):
        unstarve.compare_implementations({})
    with pytest.raises(UsageError, match="rounds must be >= 2"):
        unstarve.compare_implementations({"a": abs}, 1, rounds=1)


def test_memory_that_is_freed_again_counts_for_the_peak(capsys: pytest.CaptureFixture[str]) -> None:
    @unstarve.memory_profile
    def allocate(count: int) -> torch.Tensor:
        _ = torch.ones(count)
        return torch.ones(count // 10)

    kept = allocate(50_000_000)
    assert len(kept) == 5_000_000
    use: unstarve.MemoryUse = allocate.memory  # type: ignore[attr-defined]
    assert use.host_added >= 180_000_000
    assert use.host_after - use.host_before < 100_000_000
    assert "allocate: " in capsys.readouterr().err


def test_the_largest_batch_follows_from_the_slope() -> None:
    model = torch.nn.Linear(1 << 18, 1)  # a sample is 1 MB

    def fits(limit: int) -> int:
        return unstarve.largest_batch(
            model,
            lambda n: torch.ones(n, 1 << 18),
            step=lambda model, x: model(x * 2).sum().backward(),
            limit=limit,
            sizes=(64, 128, 192),
        )

    one, two = fits(1 << 30), fits(2 << 30)
    assert 400 <= one <= 1100
    assert one < two
    with pytest.raises(UsageError, match="growing batch sizes"):
        unstarve.largest_batch(model, lambda n: torch.ones(n, 1 << 18), sizes=(2, 1))
    with pytest.raises(UsageError, match="does not grow"):
        unstarve.largest_batch(model, lambda n: torch.ones(1, 1 << 18), sizes=(1, 2, 4), limit=1 << 30,
                               step=lambda model, x: None)  # fmt: skip
