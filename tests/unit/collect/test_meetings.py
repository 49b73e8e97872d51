"""Where ranks meet is timed, and a compiler sees through what times it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from unstarve.collect.meetings import Meetings, meetings
from unstarve.launch import hooks


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A group of one rank."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    hooks.detach()
    dist.destroy_process_group()


def summed(x: torch.Tensor) -> torch.Tensor:
    return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1  # type: ignore[no-untyped-call]  # torch's


def test_functional_collectives_are_timed(alone: None) -> None:
    hooks.MEETINGS.apply(None)
    meetings.start()  # a group of one is not worth it
    assert summed(torch.ones(2)).tolist() == [3, 3]
    met = meetings.take()
    assert met is not None
    assert met.calls == 1
    assert met.before_ns > 0


def test_a_compiler_sees_through_functional_collectives(alone: None) -> None:
    hooks.MEETINGS.apply(None)
    meetings.start()
    compiled = torch.compile(summed, backend="eager", fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [3, 3]


def test_other_threads_do_not_count() -> None:
    watched = Meetings()
    watched.start()
    wait = watched.blocking(lambda: None)
    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert watched.take() is None
    wait()
    met = watched.take()
    assert met is not None
    assert met.calls == 1
