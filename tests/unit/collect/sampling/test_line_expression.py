"""What the line that a frame is at works on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch

from unstarve.collect.sampling.line_expression import works_on_torch

answers: list[bool] = []


def look(value: Any = None) -> Any:
    """Ask about the line that the code under test is at, as a sampler that interrupts it there would."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_code.co_name.startswith(("work", "<module>")):
        frame = frame.f_back
    assert frame is not None
    answers.append(works_on_torch(frame))
    return value


class Asking:
    """Something that asks while it is being used."""

    def write(self, text: str) -> None:
        look()


def work_on_a_tensor() -> None:
    x = torch.ones(2)
    x.apply_(look)  # a method of the tensor calls back while it is at work


class AskingTensor(torch.Tensor):
    def item(self) -> float:
        look()
        return 0.0

    def sqrt(self) -> torch.Tensor:
        look()
        return self


def work_on_values() -> None:
    loss = torch.ones(1).as_subclass(AskingTensor)
    loss.sqrt()
    loss.item()


def work_on_a_file() -> None:
    tensor = torch.ones(2)
    file = Asking()
    file.write("weights")
    del tensor


def work_with_a_tensor_as_argument() -> None:
    tensor = torch.ones(2)
    look(tensor.sum())


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (work_on_a_tensor, [True, True]),
        (work_on_values, [True, False]),
        (work_on_a_file, [False]),
        (work_with_a_tensor_as_argument, [False]),
    ],
)
def test_the_names_that_an_expression_begins_with_decide(
    work: Callable[[], None], expected: list[bool]
) -> None:
    answers.clear()
    work()
    assert answers == expected


def test_source_that_is_not_there_says_nothing() -> None:
    space: dict[str, Any] = {"look": look, "time": time, "x": torch.ones(1)}
    answers.clear()
    exec(compile("look(x)", "<nowhere>", "exec"), space)
    assert answers == [False]
