"""Copies of timed steps on a real device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from unstarve.collect.copy_patch import set_copy_patch
from unstarve.collect.device.stalls import DeviceClock
from unstarve.launch import hooks
from unstarve.record import format as f

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

FLOATS = 1 << 22


class Training:
    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.lost: list[str] = []
        self.optimizer = torch.optim.SGD([torch.zeros(1, device="cuda", requires_grad=True)])
        self.clock = DeviceClock(lambda kind, now, row: self.rows.append(row), self.lost.append)

    def steps(self, step: Callable[[], object], count: int = 40) -> list[f.CopyRow]:
        """The rows of the steps that were timed, each of which does the same."""
        for position in range(count):
            mark, ask_ns = self.clock.ask(), time.perf_counter_ns()
            if mark is not None:
                what = (0, f.BATCH_WAIT, 0, position)
                self.clock.got(mark, what, ask_ns, time.perf_counter_ns())
            step()
            self.optimizer.step()
        torch.cuda.synchronize()
        self.clock.close()
        assert self.lost == []
        assert not {"to", "cuda", "copy_"} & set(vars(torch.Tensor))
        return [row for row in self.rows if isinstance(row, f.CopyRow)]


@pytest.fixture
def training() -> Iterator[Training]:
    hooks.COPIES.apply(None)
    found = Training()
    yield found
    found.clock.close()
    set_copy_patch(None)


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("non_blocking", [False, True])
def test_each_kind_of_copy_is_told_apart(training: Training, pinned: bool, non_blocking: bool) -> None:
    batch = torch.ones(FLOATS)
    batch = batch.pin_memory() if pinned else batch
    rows = training.steps(lambda: batch.to("cuda", non_blocking=non_blocking))
    flags = (f.PINNED if pinned else 0) | (f.NON_BLOCKING if non_blocking else 0)
    assert {(row.copies, row.nbytes, row.flags) for row in rows} == {(1, 4 * FLOATS, flags)}
    assert all(row.device_ns > 0 for row in rows)


def test_a_copy_on_a_side_stream_lies_beside_training(training: Training) -> None:
    batch, side = torch.ones(FLOATS).pin_memory(), torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch does not type it

    def step() -> None:
        with torch.cuda.stream(side):
            batch.cuda(non_blocking=True)

    assert {row.flags for row in training.steps(step)} == {f.PINNED | f.NON_BLOCKING | f.BESIDE}


def test_a_copy_into_a_tensor_on_the_device_is_seen(training: Training) -> None:
    held, batch = torch.empty(FLOATS, device="cuda"), torch.ones(FLOATS)
    assert {row.copies for row in training.steps(lambda: held.copy_(batch))} == {1}
    assert held.sum().item() == FLOATS


def test_a_graph_is_captured_in_timed_steps(training: Training) -> None:
    batch, held = torch.ones(FLOATS).pin_memory(), torch.zeros(FLOATS, device="cuda")
    graphs: list[torch.cuda.CUDAGraph] = []

    def step() -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            held.copy_(batch, non_blocking=True)
        graphs.append(graph)

    assert {row.copies for row in training.steps(step, 12)} == {0}
    for graph in graphs:
        held.zero_()
        graph.replay()
        assert held.sum().item() == FLOATS


def test_a_compiled_step_is_compiled_as_often_as_without(training: Training) -> None:
    begun: list[object] = []
    handler: Any = torch._dynamo.callback_handler
    handler.register_start_callback(begun.append)
    compiled: Any = torch.compile(lambda x: x.to("cuda").sin() + 1, backend="eager", fullgraph=True)
    training.steps(lambda: compiled(torch.ones(64)))
    handler.remove_start_callback(begun.append)
    assert len(begun) == 1
