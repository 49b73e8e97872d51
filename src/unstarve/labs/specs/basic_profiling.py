"""Lab 4."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from unstarve.labs.lab import Fault, Given, Lab, Question
from unstarve.labs.original import original
from unstarve.model.profile import NamedUse, Profile

_LAYERS = tuple(
    f"{block}.{layer}" for block in ("early", "middle", "late") for layer in ("rank", "mix", "gate")
)
_CLOSE = 0.5
"""An operator is a right answer from this share of the largest time on."""
_CLOSE_SHAPE = 0.25
"""The same for the shapes of one operator: a layer may call it twice, at about the same cost."""
_PASSES = 5


def _wrong_operator(given: Given) -> str | None:
    found = _profiled(given.folder, given.seed)
    spent = {use.name: _time(use, found) for use in found.operators}
    answer = str(given.answer).strip()
    if answer not in spent:
        return f"the forward pass calls no operator {answer}; copy the name from the table."
    if spent[answer] < _CLOSE * max(spent.values()):
        return f"{answer} is not the operator that takes the most own time."
    return None


def _wrong_shape(given: Given) -> str | None:
    answer = _shape(str(given.answer))
    if answer is None:
        return "write the shape as the table does: [16, 32, 64]."
    if answer not in _costly_shapes(given.folder, given.seed):
        return f"{_bracketed(answer)} is not the first input of the calls that take the most time."
    return None


def _wrong_calls(given: Given) -> str | None:
    try:
        answer = int(given.answer)
    except (TypeError, ValueError):
        return "write a whole number."
    if answer not in _costly_shapes(given.folder, given.seed).values():
        return f"it is not called {answer} times with that shape; the table counts all profiled steps."
    return None


LAB = Lab(
    name="basic-profiling",
    title="torch.profiler basics",
    goal="Find the layer that makes a forward pass slow, and the operator behind it; then make it fast.",
    minutes=2,
    files=(
        "README.md",
        "slow_model.py",
        "fast_model.py",
        "profile_forward.py",
        "compare_models.py",
        "analysis.md",
    ),
    slow="slow_model.py",
    edited="fast_model.py",
    harness="unstarve.labs.versions",
    faults=tuple(Fault(layer, layer, 1.5) for layer in _LAYERS),
    verdict_text="Which layer slows the model down? early, middle or late; rank, mix or gate: early.mix.\n"
    "Commit it with `unstarve lab check` before you change anything.",
    questions=(
        Question(
            "operator",
            "Which operator takes the most own time in the forward pass (with CUDA: on the GPU)?\n"
            "Its name as in the table of operators: aten::something.",
            _wrong_operator,
        ),
        Question(
            "shape",
            "The calls of this operator that take the most time: what is the shape of their first input?\n"
            "As in the table by shape: [16, 32, 64].",
            _wrong_shape,
        ),
        Question(
            "calls",
            "How often does one forward pass call it with this shape? Exactly; a step is one forward pass.",
            _wrong_calls,
        ),
    ),
    hints=(
        "`python profile_forward.py slow` times the labels early, middle and late. Which block is it?",
        "`unstarve report slow.unstarve --ops` names the operator, `--by shape` its inputs: their last or "
        "second dimension is the width of a block, or an amount that only one layer has.",
        "`unstarve report slow.unstarve --ops --by stack` names the line of slow_model.py that calls it.",
        "To take the largest value, nothing has to be sorted. Products of matrices can be regrouped: "
        "(x a) b = x (a b). A sum of products with the same factor is one product: x a + x b = x (a + b).",
    ),
)


@lru_cache(maxsize=1)
def _profiled(folder: Path, seed: int) -> Profile:
    """The forward pass that came with the lab, profiled anew. The seed is what the folder's state says."""
    with original(LAB) as slow:
        from unstarve.evaluate.profiling.profile_block import profile

        forward = slow.make(folder)
        with profile(wait=1, warmup=1, active=_PASSES) as profiled:
            for number in range(_PASSES + 2):
                forward(seed + number)
                profiled.step()
    return profiled.result


def _costly_shapes(folder: Path, seed: int) -> dict[tuple[int, ...], int]:
    """The shapes of the first inputs of the costliest calls, and the calls in one forward pass."""
    found = _profiled(folder, seed)
    operator = max(found.operators, key=lambda use: _time(use, found)).name
    uses = [use for use in found.by_shape if use.name.startswith(f"{operator} ")]
    least = _CLOSE_SHAPE * max(_time(use, found) for use in uses)
    shapes = [(_shape(use.name), use.calls // _PASSES) for use in uses if _time(use, found) >= least]
    return {shape: calls for shape, calls in shapes if shape is not None}


def _time(use: NamedUse, found: Profile) -> float:
    """Own time: on the device if there is one."""
    return (use.device_s if found.devices else use.self_s) or 0.0


def _shape(text: str) -> tuple[int, ...] | None:
    """The first shape in a text: of ``aten::mm [[512, 64], [64, 9]]`` it is (512, 64)."""
    numbers = re.search(r"\[\s*(\d[\d,\s]*)\]", text)
    return None if numbers is None else tuple(int(number) for number in re.findall(r"\d+", numbers[1]))


def _bracketed(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
