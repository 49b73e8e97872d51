"""NVTX ranges of steps and phases, on a stand-in for NVTX."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from unstarve.collect import phase_ranges
from unstarve.launch import hooks
from unstarve.model.launch_settings import LaunchSettings


class Nvtx:
    """Keeps what torch would hand to NVTX."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._open: dict[int, str] = {}
        self._ids = itertools.count(1)

    def rangeStartA(self, name: str) -> int:
        number = next(self._ids)
        self._open[number] = name.removeprefix("unstarve.")
        self.log.append(f"+{self._open[number]}")
        return number

    def rangeEnd(self, number: int) -> None:
        self.log.append(f"-{self._open.pop(number)}")

    @property
    def open(self) -> list[str]:
        return sorted(self._open.values())


DATA = ["+data", "-data"]
COMPUTE = ["+forward", "-forward", "+backward", "-backward", "+optimizer", "-optimizer"]
STEP = ["+step", *DATA, *COMPUTE, "-step"]
END = ["+step", *DATA, "-step"]


@pytest.fixture
def nvtx(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nvtx]:
    stand_in = Nvtx()
    monkeypatch.setattr(torch._C, "_nvtx", stand_in, raising=False)
    settings = LaunchSettings(parts="", version="0", only_ranges=True)
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    hooks.attach()
    yield stand_in
    hooks.detach()
    phase_ranges._ranges = None


def loader(count: int = 2, workers: int = 0) -> DataLoader[tuple[torch.Tensor, ...]]:
    return DataLoader(TensorDataset(torch.ones(count, 3)), num_workers=workers)


def train(batches: Iterator[list[torch.Tensor]], stop: type[BaseException] | None = None) -> None:
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for (x,) in batches:
        loss = model(x).sum()
        if stop is not None:
            raise stop
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_step_is_data_forward_backward_and_optimizer(nvtx: Nvtx, workers: int) -> None:
    train(iter(loader(2, workers)))
    assert nvtx.log == [*STEP, *STEP, *END]
    assert not nvtx.open


def test_a_loop_that_is_left_early_ends_its_ranges_at_the_next_batch(nvtx: Nvtx) -> None:
    for _ in loader():
        break
    assert nvtx.open == ["forward", "step"]
    with pytest.raises(ZeroDivisionError):
        train(iter(loader()), stop=ZeroDivisionError)
    train(iter(loader()))
    broken = ["+step", "+data", "-data", "+forward", "-forward", "-step"]
    assert nvtx.log == [*broken, *broken, *STEP, *STEP, *END]
    assert not nvtx.open


def test_errors_of_a_dataset_and_of_a_backward_pass_end_the_range(nvtx: Nvtx) -> None:
    with pytest.raises(IndexError):
        next(iter(DataLoader(TensorDataset(torch.ones(2, 3)), sampler=[5])))  # type: ignore[arg-type]  # any iterable
    assert not nvtx.open
    batch = next(iter(loader()))
    with pytest.raises(RuntimeError, match="does not require grad"):
        batch[0].sum().backward()
    assert nvtx.open == ["step"]


def test_validation_has_no_steps(nvtx: Nvtx) -> None:
    with torch.no_grad():
        for _ in loader():
            pass
    assert set(nvtx.log) == {"+data", "-data", "+forward", "-forward"}
    assert not nvtx.open


def test_a_closure_inside_of_the_optimizer_ends_its_range(nvtx: Nvtx) -> None:
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (weight * 2).sum()
        loss.backward()
        return loss

    for _ in loader(1):
        optimizer.step(closure)  # type: ignore[arg-type]  # it may return a tensor
    optimizing = ["+optimizer", "-optimizer", "+backward", "-backward"]
    assert nvtx.log == ["+step", *DATA, "+forward", "-forward", *optimizing, "-step", *END]
    assert not nvtx.open


def test_torch_for_the_cpu_trains_without_ranges(nvtx: Nvtx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_nvtx", None)
    train(iter(loader()))
    assert nvtx.log == []


def test_a_compiled_model_and_optimizer_are_compiled_once(nvtx: Nvtx) -> None:
    compiled = 0

    def count(graph: torch.fx.GraphModule, example: list[torch.Tensor]) -> torch.fx.GraphModule:
        nonlocal compiled
        compiled += 1
        return graph

    torch._dynamo.reset()
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    forward = torch.compile(model, backend=count)
    for (x,) in loader(3):
        forward(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert compiled == 1
    assert nvtx.log == [*STEP, *STEP, *STEP, *END]
