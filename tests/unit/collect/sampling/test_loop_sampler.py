"""A training without a loader is watched from outside, and left alone once there is a loader."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tapped import Recording
from unstarve.collect.sampling import loop_sampler

DEADLINE_S = 120


@pytest.fixture(autouse=True)
def nobody_watches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(loop_sampler, "_AFTER_S", 0.0)
    monkeypatch.setattr(loop_sampler, "_INTERVAL_S", 0.005)
    monkeypatch.setattr(loop_sampler, "_LONGEST_INTERVAL_S", 0.005)
    loop_sampler.end()
    yield
    loop_sampler.end()


def get_batch() -> torch.Tensor:
    time.sleep(0.002)
    return torch.ones(4)


def train(is_enough: Any) -> None:
    weight = torch.ones(4, requires_grad=True)
    deadline = time.monotonic() + DEADLINE_S
    while not is_enough() and time.monotonic() < deadline:
        x = get_batch()
        (x * weight).sum().backward()


def told_of(sampler: loop_sampler.LoopSampler) -> dict[str, Any]:
    told: dict[str, Any] = {}
    sampler.tell(lambda _meta, **fields: told.update(fields))
    return told


def test_a_loop_is_told_by_its_places_and_the_function_of_its_batches() -> None:
    sampler = loop_sampler.LoopSampler()
    train(lambda: told_of(sampler)["call"] is not None and any("get_batch" in p[0] for p in sampler._places))
    sampler.end()
    told = told_of(sampler)
    kind, name, file, line, _, seconds = told["call"]
    assert (kind, name, file, line) == ("function", "get_batch", __file__, get_batch.__code__.co_firstlineno)
    assert 0 < seconds <= told["seconds"]
    assert sum(place[-1] for place in told["places"]) == pytest.approx(told["seconds"])


def test_code_that_does_not_train_is_not_looked_into() -> None:
    sampler = loop_sampler.LoopSampler()
    time.sleep(0.1)
    sampler.end()
    assert told_of(sampler)["seconds"] == 0


def test_the_first_loader_ends_it(tmp_path: Path) -> None:
    loop_sampler.begin()
    recording = Recording(tmp_path / "a.unstarve")
    type(recording.owner).watch_stack(recording.owner)
    assert loop_sampler._sampler is None
    assert recording.end().loop is None


def test_what_was_seen_is_in_the_run_file(tmp_path: Path) -> None:
    loop_sampler.begin()
    sampler = loop_sampler._sampler
    assert sampler is not None
    recording = Recording(tmp_path / "a.unstarve")
    train(lambda: told_of(sampler)["call"] is not None)
    loop = recording.end().loop
    assert loop is not None
    assert loop.batches is not None
    assert loop.batches.name == "get_batch"
    assert loop.places


def test_its_thread_is_gone_before_a_fork_and_not_listed() -> None:
    before = threading.enumerate()
    loop_sampler.begin()
    assert threading.enumerate() == before
    child = os.fork()
    if child == 0:
        os._exit(0 if loop_sampler._sampler is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert loop_sampler._sampler is not None
    assert loop_sampler._sampler._thread is None


def test_a_process_of_multiprocessing_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["python", "-c", "from multiprocessing.spawn import spawn_main; …", "--multiprocessing-fork"]
    monkeypatch.setattr("sys.orig_argv", words)
    loop_sampler.begin()
    assert loop_sampler._sampler is None
