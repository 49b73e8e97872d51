"""On request, the lines that allocate what stays are named."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from unstarve.collect.memory import allocation_sites
from unstarve.collect.memory.allocation_sites import AllocationSites, alive_by_site


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    monkeypatch.setattr(allocation_sites, "_SETTLE_S", 0.0)
    monkeypatch.setattr(allocation_sites, "_COST", 0)
    yield []
    tracemalloc.stop()
    monkeypatch.setattr(allocation_sites, "_ours", False)


def test_the_line_that_leaks_comes_first(told: list[dict[str, Any]]) -> None:
    sites = AllocationSites(lambda meta, **fields: told.append(fields))
    sites.look()
    sites.look()
    kept = [bytearray(100_000) for _ in range(10)]
    sites.look()
    sites.close()
    (file, line, nbytes, blocks) = told[-1]["sites"][0]
    assert file.endswith("test_allocation_sites.py")
    assert line == test_the_line_that_leaks_comes_first.__code__.co_firstlineno + 4
    assert nbytes >= 1_000_000
    assert blocks >= len(kept)
    assert not tracemalloc.is_tracing()


def test_tracing_ends_with_its_window(told: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    sites = AllocationSites(lambda meta, **fields: told.append(fields))
    sites.look()
    sites.look()
    monkeypatch.setattr(allocation_sites, "_WINDOW_S", -1.0)
    sites.look()
    assert not tracemalloc.is_tracing()
    sites.look()
    assert len(told) == 1


def test_the_users_own_tracing_is_left_alone(told: list[dict[str, Any]]) -> None:
    tracemalloc.start(1)
    sites = AllocationSites(lambda meta, **fields: told.append(fields))
    sites.look()
    sites.look()
    sites.close()
    assert tracemalloc.is_tracing()
    assert not told


def test_of_very_many_small_blocks_some_stand_for_all(told: list[dict[str, Any]]) -> None:
    tracemalloc.start(1)
    kept = [str(number) * 10 for number in range(20_000)]
    counts = [count for (file, _), (_, count) in alive_by_site().items() if "test_allocation" in file]
    assert max(counts) == pytest.approx(len(kept), rel=0.1)
