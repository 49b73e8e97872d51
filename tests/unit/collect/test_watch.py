"""A watched function is the same function, and each of its calls is a batch."""

from __future__ import annotations

import inspect
import time
from typing import Any

import pytest
import torch

import unstarve
from tapped import Recording
from unstarve.collect import recorder as recorders
from unstarve.collect import watch as watching

pytestmark = pytest.mark.usefixtures("variant")


@pytest.fixture
def recorded(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> Recording:
    """A recording that watched functions of this process are part of."""
    monkeypatch.setattr(watching, "recorder", lambda: recording.owner)
    return recording


def get_batch(split: str, size: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of a split."""
    if split == "nowhere":
        raise KeyError(split)
    return torch.zeros(size, 2), torch.zeros(size)


def test_it_looks_and_behaves_like_the_function_itself(recorded: Recording) -> None:
    watched = unstarve.watch(get_batch)
    assert watched.__name__ == "get_batch"
    assert watched.__doc__ == "A batch of a split."
    assert inspect.signature(watched) == inspect.signature(get_batch)
    result: Any = object()
    assert unstarve.watch(lambda: result)() is result
    with pytest.raises(KeyError, match="nowhere"):
        watched("nowhere")
    with pytest.raises(TypeError, match="split"):
        watched()  # type: ignore[call-arg]  # the caller's mistake stays his own


def test_each_call_is_a_batch_with_its_size_and_its_work(recorded: Recording) -> None:
    watched = unstarve.watch(get_batch)
    for _ in range(10):
        watched("train", size=3)
    process = recorded.end()
    (loader,) = process.loaders
    assert (loader.name, loader.kind, loader.tensors) == ("get_batch", "function", 2)
    assert [(b.position, b.task, b.size, b.nbytes) for b in process.batches] == [
        (n, n, 3, 36) for n in range(10)
    ]
    assert [(work.task, work.samples, work.failed) for work in process.works] == [
        (n, 3, False) for n in range(10)
    ]
    (epoch,) = process.epochs
    assert epoch.end_ns is None


def test_the_time_in_the_call_is_the_wait_and_is_split_by_counters(recorded: Recording) -> None:
    def slow() -> torch.Tensor:
        time.sleep(0.02)
        return torch.zeros(2)

    watched = unstarve.watch(slow)
    for _ in range(3):
        watched()
    process = recorded.end()
    assert all(batch.wait_ns >= 20_000_000 for batch in process.batches)
    for work in process.works:
        assert work.done_ns - work.begin_ns >= 20_000_000
        assert work.cpu_ns < work.done_ns - work.begin_ns


def test_calls_without_gradients_are_listed_apart(recorded: Recording) -> None:
    watched = unstarve.watch(get_batch)
    for _ in range(2):
        watched("train")
        with torch.no_grad():
            watched("val")
            watched("train")
    process = recorded.end()
    steps = {x.name: sum(b.loader == x.id for b in process.batches) for x in process.loaders}
    assert steps == {"get_batch": 2, "get_batch, no_grad": 4}


def test_a_call_that_raises_ends_an_epoch_and_the_next_begins_one(recorded: Recording) -> None:
    watched = unstarve.watch(get_batch)
    watched("train")
    with pytest.raises(KeyError):
        watched("nowhere")
    watched("train")
    process = recorded.end()
    assert len(process.loaders) == 1
    assert [(epoch.epoch, epoch.error) for epoch in process.epochs] == [(0, "KeyError"), (1, None)]
    assert [(batch.epoch, batch.position) for batch in process.batches] == [(0, 0), (1, 0)]


class Corpus:
    def __init__(self) -> None:
        self.at = 0

    @unstarve.watch
    def next_batch(self) -> torch.Tensor:
        self.at += 1
        return torch.full((2,), float(self.at))


def test_methods_can_be_watched_in_the_class_or_on_the_object(recorded: Recording) -> None:
    corpus = Corpus()
    assert [float(corpus.next_batch()[0]) for _ in range(3)] == [1.0, 2.0, 3.0]
    bound = unstarve.watch(corpus.next_batch, name="bound")
    assert float(bound()[0]) == 4.0
    names = {loader.name for loader in recorded.end().loaders}
    assert names == {"next_batch", "bound"}


def test_a_function_that_calls_itself_is_one_batch(recorded: Recording) -> None:
    def again(depth: int) -> torch.Tensor:
        return watched(depth - 1) if depth else torch.zeros(2)

    watched = unstarve.watch(again)
    watched(3)
    assert len(recorded.end().batches) == 1


def test_a_generator_function_is_refused_with_what_to_write() -> None:
    def batches() -> Any:
        yield torch.zeros(2)

    with pytest.raises(TypeError, match=r"watch\(batches\(…\)\)"):
        unstarve.watch(batches)


def test_what_is_iterable_is_iterated_even_if_it_can_be_called() -> None:
    class Both:
        def __iter__(self) -> Any:
            return iter([1, 2])

        def __call__(self) -> None:
            raise AssertionError

    assert list(unstarve.watch(Both())) == [1, 2]  # type: ignore[call-overload]  # both overloads fit


def test_outside_of_a_recording_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders, "_recorder", None)
    batch, _ = unstarve.watch(get_batch)("train")
    assert batch.shape == (4, 2)
    assert recorders._recorder is None


def test_a_compiled_caller_compiles_the_function_itself(recorded: Recording) -> None:
    def doubled() -> torch.Tensor:
        return torch.ones(3) * 2

    watched = unstarve.watch(doubled)

    @torch.compile(backend="eager", fullgraph=True)
    def compiled() -> torch.Tensor:
        return watched() + 1

    assert compiled().tolist() == [3.0, 3.0, 3.0]
    assert recorded.end().batches == ()
