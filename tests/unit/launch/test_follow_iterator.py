"""An iterator that is followed tells what it takes out of its workers' queue, and is freed as before."""

from __future__ import annotations

import multiprocessing
import weakref
from pathlib import Path
from typing import Any

import pytest

from tapped import Recording
from unstarve.launch.follow_iterator import tap_on


class Unordered:
    """As torch's iterator with workers that delivers batches in the order in which they are ready."""

    _in_order = False
    _pin_memory = False
    _rcvd_idx = 0

    def __init__(self) -> None:
        self._worker_result_queue: Any = multiprocessing.get_context("fork").Queue()
        self.ready = [(True, (7, "batch")), (False, None)]

    def _try_get_data(self, timeout: float = 5.0) -> tuple[bool, Any]:
        return self.ready.pop(0)


class Loader:
    batch_size = 4
    batch_sampler = ()


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recording:
    recording = Recording(tmp_path / "a.unstarve")
    monkeypatch.setattr("unstarve.launch.follow_iterator.recorder", lambda: recording.owner)
    return recording


def test_batches_that_come_out_of_order_are_known_by_their_task(recorded: Recording) -> None:
    iterator, loader = Unordered(), Loader()
    tap = tap_on(iterator, loader)
    assert tap is not None
    assert tap_on(iterator, loader) is tap
    assert iterator._try_get_data(timeout=1.0) == (True, (7, "batch"))
    assert tap.wait.last_task == 7
    assert iterator._try_get_data() == (False, None)
    assert tap.wait.last_task == 7
    recorded.owner.close()


def test_an_iterator_that_is_followed_is_freed_when_its_user_lets_go(recorded: Recording) -> None:
    iterator, loader = Unordered(), Loader()
    assert tap_on(iterator, loader) is not None
    gone = weakref.ref(iterator)
    del iterator
    assert gone() is None
    recorded.owner.close()


def test_nothing_is_followed_once_the_recording_is_over(recorded: Recording) -> None:
    recorded.owner.close()
    assert tap_on(Unordered(), Loader()) is None
