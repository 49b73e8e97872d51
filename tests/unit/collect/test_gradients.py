from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tapped import Recording
from unstarve.collect.gradients import first_passes, noting_backward


@pytest.fixture(autouse=True)
def _nothing_noted() -> Iterator[None]:
    first_passes()
    yield
    first_passes()


def backward() -> None:
    noting_backward(lambda: None)()


def test_the_first_backward_pass_of_each_thread_is_recorded_when_a_batch_is_asked_for(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "run.unstarve")
    tap = recording.tap()
    tap.note_gradients()
    for _ in range(3):
        backward()
    other = threading.Thread(target=backward)
    other.start()
    other.join()
    tap.note_gradients()
    tap.note_gradients()
    backward()
    tap.note_gradients()
    process = recording.end()
    assert sorted(one.thread for one in process.backwards) == [0, 0, 1]
    assert [one.at_ns for one in process.backwards] == sorted(one.at_ns for one in process.backwards)


def test_gradients_that_are_off_are_recorded_for_the_epoch(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "run.unstarve")
    first, second = recording.tap(), recording.tap()
    for tap in (first, second):
        tap.note_gradients()
    with torch.no_grad():
        first.note_gradients()
        first.note_gradients()
    first.begin(None, 3, 4)
    first.note_gradients()
    with torch.inference_mode():
        second.note_gradients()
    found = {(epoch.loader, epoch.epoch): epoch.no_grad for epoch in recording.end().epochs}
    assert found == {(0, 0): True, (0, 1): False, (1, 0): True}


def test_what_nobody_asks_for_is_not_kept() -> None:
    for _ in range(10_000):
        backward()
    assert len(first_passes()) == 1
    assert first_passes() == {}


def test_a_backward_pass_gets_its_arguments_and_keeps_its_exception() -> None:
    def failing(*args: object, **kwargs: object) -> None:
        raise RuntimeError(args, kwargs)

    with pytest.raises(RuntimeError) as caught:
        noting_backward(failing)(1, inputs=2)
    assert caught.value.args == ((1,), {"inputs": 2})
