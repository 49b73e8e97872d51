"""Answers to the lab about torch.profiler. The profile is made up; `tests/integration` makes a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstarve.labs.lab import Given
from unstarve.labs.specs import basic_profiling
from unstarve.model.profile import DeviceUse, NamedUse, Profile

LAYERS_OF_MIX = (
    NamedUse("aten::mm [[512, 64], [64, 7000]]", 5, 0.5, 0.5, 0.1),
    NamedUse("aten::mm [[512, 7000], [7000, 64]]", 5, 0.3, 0.3, 0.1),
    NamedUse("aten::mm [[512, 64], [64, 8]]", 10, 0.001, 0.001, 0.001),
    NamedUse("aten::sort [[16, 32, 8], [], []]", 15, 0.2, 0.2, 0.9),
)
OPERATORS = (
    NamedUse("aten::matmul", 20, 0.801, 0.01, 0.0),
    NamedUse("aten::mm", 20, 0.801, 0.801, 0.201),
    NamedUse("aten::sort", 15, 0.2, 0.2, 0.9),
)


@pytest.fixture(params=["cpu", "gpu"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the profile be of a pass whose time goes into products on the CPU, and into sorting on the GPU."""
    name = str(request.param)
    devices = (DeviceUse(0, 1.1, 1.1, 0.0, 0.0, 0.0),) if name == "gpu" else ()
    made_up = Profile("torch.profiler", "", 1.0, 0, 0.0, devices, operators=OPERATORS, by_shape=LAYERS_OF_MIX)
    monkeypatch.setattr(basic_profiling, "_profiled", lambda folder, seed: made_up)
    return name


def wrong(key: str, answer: object) -> str | None:
    question = next(one for one in basic_profiling.LAB.questions if one.key == key)
    return question.wrong(Given(answer, Path(), 0))


def test_the_operator_with_the_most_own_time_is_right(device: str) -> None:
    right, other = ("aten::mm", "aten::sort") if device == "cpu" else ("aten::sort", "aten::mm")
    assert wrong("operator", f" {right} ") is None
    assert "is not the operator that takes the most own time" in str(wrong("operator", other))
    assert "is not the operator that takes the most own time" in str(wrong("operator", "aten::matmul"))
    assert "calls no operator mm" in str(wrong("operator", "mm"))


def test_a_shape_is_right_however_it_is_written(device: str) -> None:
    if device == "gpu":
        assert wrong("shape", [16, 32, 8]) is None
        return
    for answer in ("[512, 64]", [512, 64], "aten::mm [[512, 7000], [7000, 64]]"):
        assert wrong("shape", answer) is None
    assert "[16, 32, 8] is not the first input" in str(wrong("shape", "[16, 32, 8]"))
    assert "write the shape" in str(wrong("shape", "large"))


def test_calls_are_those_of_one_pass_with_that_shape(device: str) -> None:
    right, of_all_passes = (1, 5) if device == "cpu" else (3, 15)
    assert wrong("calls", right) is None
    assert wrong("calls", str(right)) is None
    assert "the table counts all profiled steps" in str(wrong("calls", of_all_passes))
    assert "whole number" in str(wrong("calls", "often"))
