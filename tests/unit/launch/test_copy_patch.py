"""While the copies of a step are timed, torch does what it does without."""

from __future__ import annotations

import pickle
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from unstarve.collect.copy_patch import copy_patch, set_copy_patch
from unstarve.collect.device.copies import CopyWatch
from unstarve.collect.gradients import watch_backward
from unstarve.launch import hooks
from unstarve.model.launch_settings import LaunchSettings
from unstarve.record import format as f

NAMES = ("to", "cuda", "copy_")


class Named(torch.Tensor):
    pass


class TimedStep:
    """A step whose copies are timed, on a machine without CUDA: no copy is ever marked."""

    def __init__(self) -> None:
        torch.optim.SGD([torch.zeros(1)])  # imports what torch.compile needs, as every optimizer does
        self.lost: list[str] = []
        hooks.COPIES.apply(None)
        impossible: Any = None
        self.watch = CopyWatch(impossible, impossible, impossible, lambda: False, self.lost.append)
        while not self.watched():
            self.watch.got((0, f.BATCH_WAIT, 0, 0), 0)

    def watched(self) -> bool:
        return all(name in vars(torch.Tensor) for name in NAMES)


@pytest.fixture
def step() -> Iterator[TimedStep]:
    found = TimedStep()
    yield found
    found.watch.close()
    set_copy_patch(None)
    assert not any(name in vars(torch.Tensor) for name in NAMES)
    assert found.lost == []


def unbound(x: Any) -> Any:
    return torch.Tensor.to(x, torch.float64) + 1


def bound(x: Any) -> Any:
    return x.to(torch.float64).to("cpu") + 1


def test_methods_looked_up_on_the_class_are_torchs_own(step: TimedStep) -> None:
    own: Any = torch._C.TensorBase
    assert torch.Tensor.to is own.to
    assert torch.Tensor.cuda is own.cuda
    assert torch.Tensor.copy_ is own.copy_
    lazy: Any = torch.nn.LazyLinear(3)  # compares methods with torch.Tensor.to
    assert lazy.to(torch.float64).weight.dtype is torch.float64


def failure(action: Callable[[Any], object], tensor: Any) -> tuple[type[Exception], str]:
    with pytest.raises(Exception) as caught:  # noqa: PT011  # whatever torch raises
        action(tensor)
    return type(caught.value), str(caught.value)


def test_results_and_exceptions_are_the_same(step: TimedStep) -> None:
    x = torch.ones(3, requires_grad=True)
    assert x.to("cpu") is x
    bound(x).sum().backward()
    assert x.grad is not None
    assert x.to(memory_format=torch.contiguous_format) is x
    kinds = [lambda t: t.to("cuda", 3.5), lambda t: t.to("nowhere"), lambda t: t.cuda("nowhere")]
    watched = [failure(kind, x) for kind in kinds]
    kept = x.to
    assert kept.__self__ is x
    assert kept("cpu") is x
    step.watch.drop()
    assert watched == [failure(kind, x) for kind in kinds]


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
def test_other_tools_that_look_at_operators_see_the_same(step: TimedStep) -> None:
    x = torch.ones(3)
    traced: Any = torch.jit.trace(bound, x)  # type: ignore[no-untyped-call]  # torch does not type it
    assert "is_pinned" not in str(traced.graph)
    assert torch.func.vmap(bound)(torch.ones(2, 3)).dtype is torch.float64
    assert type(x.as_subclass(Named).to(torch.float64)) is Named
    assert pickle.loads(pickle.dumps(x)).equal(x)


@pytest.mark.skipif(sys.platform == "win32", reason="torch.compile")
@pytest.mark.parametrize("function", [bound, unbound])
@pytest.mark.parametrize("make", [lambda: torch.ones(3), lambda: torch.ones(3).as_subclass(Named)])
def test_torch_compile_traces_whole_functions_in_a_timed_step(
    function: Callable[[Any], Any], make: Callable[[], Any]
) -> None:
    torch._dynamo.reset()
    found = TimedStep()
    assert found.watched()
    compiled: Any = torch.compile(function, backend="eager", fullgraph=True)
    assert compiled(make()).dtype is torch.float64
    assert not found.watched()
    found.watch.close()
    set_copy_patch(None)


def test_a_warning_names_the_line_that_copies(step: TimedStep) -> None:
    x = torch.ones(2, dtype=torch.complex64)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.set_warn_always(True)
        x.to(torch.float32)
        torch.set_warn_always(False)
    assert [one.filename for one in caught] == [__file__]


def test_another_thread_finds_torch_as_it_was(step: TimedStep) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(torch.ones(1).to))
    thread.start()
    thread.join()
    assert type(found[0]) is type(torch.ones(1).add)


@pytest.mark.parametrize("asked", [False, True])
def test_copies_are_timed_only_where_that_was_asked_for(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = LaunchSettings("parts", "1", copies=asked)
    for name, text in settings.to_environment().items():
        monkeypatch.setenv(name, text)
    hooks.attach()
    watch_backward()
    assert (copy_patch() is not None) == asked
    hooks.detach()
    assert copy_patch() is None


def test_detaching_ends_the_permission_to_patch() -> None:
    hooks.COPIES.apply(None)
    hooks.detach()
    watch = CopyWatch(*[lambda *_: False] * 4, print)  # type: ignore[arg-type]  # never called
    for _ in range(50):
        watch.got((0, f.BATCH_WAIT, 0, 0), 0)
    assert watch.step is None
    assert not any(name in vars(torch.Tensor) for name in NAMES)
