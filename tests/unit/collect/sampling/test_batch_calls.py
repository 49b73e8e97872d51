"""The call that gives a loop its batches is found in the loop's own text and variables."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from unstarve.collect.sampling.batch_calls import BatchCall, is_own, loop_code

TOOLS = """
import torch

def get_batch(split):
    return torch.zeros(4), torch.zeros(4)

def get_dict():
    return {"x": torch.zeros(4), "y": torch.zeros(4)}

def get_rate(step):
    return 0.1

def get_loss(x):
    return (x * torch.ones(4, requires_grad=True)).sum()

def get_mean(x):
    return x.mean()

def batches(count):
    for _ in range(count):
        yield torch.zeros(4)

class Corpus:
    def next_batch(self):
        return torch.zeros(4)

    @staticmethod
    def any_batch():
        return torch.zeros(4)

corpus = Corpus()
"""


def calls_of(folder: Path, source: str) -> list[BatchCall]:
    """What is found in a script when it calls ``look``."""
    found: list[BatchCall] = []

    def look() -> None:
        frame: FrameType | None = sys._getframe(1)
        assert frame is not None
        found.extend(loop_code(frame.f_code).returned_batches(frame))

    path = folder / "train.py"
    path.write_text(TOOLS + source)
    exec(compile(path.read_text(), str(path), "exec"), {"look": look, "torch": torch})
    return found


IN_FUNCTION = """
def main():
    for step in range(1):
        LINE
        look()
main()
"""
AT_TOP_LEVEL = """
step = 0
while step < 1:
    if True:
        LINE
    look()
    step += 1
"""


@pytest.mark.parametrize("loop", [IN_FUNCTION, AT_TOP_LEVEL], ids=["function", "top level"])
@pytest.mark.parametrize(
    ("line", "kind", "name"),
    [
        ("x, y = get_batch('train')", "function", "get_batch"),
        ("x,y=get_batch(\n'train')", "function", "get_batch"),
        ("batch = get_dict()", "function", "get_dict"),
        ("x = corpus.next_batch()", "method", "corpus.next_batch"),
        ("x = corpus.any_batch()", "method", "corpus.any_batch"),
    ],
)
def test_a_function_whose_results_are_data_is_found(
    tmp_path: Path, loop: str, line: str, kind: str, name: str
) -> None:
    (call,) = calls_of(tmp_path, loop.replace("LINE", line))
    assert (call.kind, call.name, call.sounds_right) == (kind, name, "batch" in name)
    last = name.rpartition(".")[2]
    lines = (tmp_path / "train.py").read_text().splitlines()
    assert re.search(rf"def {last}|@staticmethod", lines[call.line - 1])


@pytest.mark.parametrize(
    "line",
    [
        "rate = get_rate(step)",
        "loss = get_loss(torch.zeros(4))",
        "mean = get_mean(torch.zeros(4))",
        "x = torch.zeros(4)",
        "x = missing.thing if False else None",
        "x, y = None, None",
    ],
)
def test_what_returns_no_data_or_is_not_the_users_is_passed_over(tmp_path: Path, line: str) -> None:
    assert calls_of(tmp_path, IN_FUNCTION.replace("LINE", line)) == []


def test_a_call_before_the_loop_gives_it_no_batches(tmp_path: Path) -> None:
    source = "x, y = get_batch('train')\nfor step in range(1):\n    look()\n"
    assert calls_of(tmp_path, source) == []


def test_a_generator_is_found_by_the_loop_that_trains_on_it(tmp_path: Path) -> None:
    source = """
for n, x in enumerate(batches(1)):
    look()
    if n:
        x.backward()
"""
    (call,) = calls_of(tmp_path, source)
    assert (call.kind, call.name, call.text) == (
        "generator",
        "batches",
        "for n, x in enumerate(batches(1)):",
    )


def test_looking_calls_no_code_of_the_user(tmp_path: Path) -> None:
    source = """
class Loud:
    def __getattribute__(self, name):
        raise AssertionError(name)
    @property
    def next_batch(self):
        raise AssertionError("a property")
loud = Loud()
for step in range(1):
    try:
        x = loud.next_batch()
    except AssertionError:
        x = torch.zeros(4)
    look()
"""
    assert calls_of(tmp_path, source) == []


def test_a_code_trains_by_its_own_lines_alone() -> None:
    def outer() -> Any:
        def inner(loss: torch.Tensor) -> None:
            loss.backward()

        return inner

    assert not loop_code(outer.__code__).trains
    assert loop_code(outer().__code__).trains


def test_installed_files_are_not_the_users_own() -> None:
    assert is_own("/home/me/train.py")
    assert is_own(__file__)
    for other in (torch.__file__, os.__file__, "<stdin>", str(Path(sys.prefix, "bin", "torchrun"))):
        assert not is_own(other)
