"""What a lab is."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULT_MARK = "unstarve-lab:"
"""Begins the line with the harness's result."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a family; which one a learner gets is drawn."""

    name: str
    verdict: str
    """What the learner should find: a cause, or ``fed`` where the data is not guilty."""
    least_speedup: float | None = None
    """The speed-up to reach; None where there is nothing to fix in the loader."""


@dataclass(frozen=True, slots=True)
class Given:
    """An answer, and what it is about."""

    answer: Any
    """As the learner wrote it in answers.toml."""
    folder: Path
    seed: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a lab, with its place in answers.toml."""

    key: str
    text: str
    wrong: Callable[[Given], str | None]
    """What is missing or wrong in an answer, in a sentence; None if it is right."""


@dataclass(frozen=True, slots=True)
class Lab:
    """An exercise."""

    name: str
    title: str
    goal: str
    """In one sentence."""
    minutes: int
    """How long a check takes at most."""
    files: tuple[str, ...]
    """What is copied to the learner, the README first."""
    hints: tuple[str, ...]
    faults: tuple[Fault, ...] = ()
    cases: tuple[str, ...] = ()
    """Where a lab has several trainings: their names. Each has another fault; the first is to be fixed."""
    slow: str = "slow_dataloader.py"
    """Defines `make_loader(folder)`, with the fault."""
    edited: str | None = None
    """The learner's own version of it; None for a lab without one."""
    most_wait_share: float = 0.1
    questions: tuple[Question, ...] = ()

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return Path(__file__).parent / "material" / self.name

    def fault(self, seed: int) -> Fault | None:
        """The fault that this seed draws; in a lab of several cases, that of the first."""
        return next(iter(self.drawn(seed)), None)

    def drawn(self, seed: int) -> tuple[Fault, ...]:
        """The faults that this seed draws, one for each case."""
        draw = random.Random(f"{self.name}:{seed}")
        if not self.cases:
            return (draw.choice(self.faults),) if self.faults else ()
        first = draw.choice([fault for fault in self.faults if fault.least_speedup is not None])
        others = [fault for fault in self.faults if fault is not first]
        return (first, *draw.sample(others, len(self.cases) - 1))

    def keys(self, kind: str) -> tuple[str, ...]:
        """The names in answers.toml of a verdict or a prediction: one, or one for each case."""
        return tuple(f"{kind}_{case}" for case in self.cases) or (kind,)
