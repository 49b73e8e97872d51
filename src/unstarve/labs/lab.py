"""What a lab is."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a family; which one a learner gets is drawn."""

    name: str
    verdict: str
    """What the learner should find: a cause, ``fed`` where the data is not guilty, or one of the lab's."""
    least_speedup: float | None = None
    """The speed-up to reach; None where there is nothing to fix in the loader."""


@dataclass(frozen=True, slots=True)
class Given:
    """An answer, and what it is about."""

    answer: Any
    """As the learner wrote it in answers.toml."""
    folder: Path
    seed: int

    def number(self) -> float | None:
        """The answer as a number; None if it is not one."""
        try:
            return float(self.answer)
        except (TypeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a lab, with its place in answers.toml."""

    key: str
    text: str
    wrong: Callable[[Given], str | None]
    """What is missing or wrong in an answer, in a sentence; None if it is right."""


Trial = Callable[[Path, int], tuple[bool, tuple[str, ...]]]
"""From the learner's folder and the seed: whether it passes, and what was found, a sentence each."""


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
    drawn_files: Callable[[int], Mapping[str, str]] | None = None
    """More files for the learner, drawn by the seed: their names, and where each comes from in `folder`."""
    faults: tuple[Fault, ...] = ()
    harness: str = "unstarve.labs.harness"
    """The module that runs a version, as `harness_process` says."""
    cases: tuple[str, ...] = ()
    """Where a lab has several trainings: their names. Each has another fault; the first is to be fixed."""
    slow: str = "slow_dataloader.py"
    """The version with the fault."""
    edited: str | None = None
    """The learner's own version of it; None for a lab without one."""
    most_wait_share: float = 0.1
    verdict_text: str = ""
    """Asks for the verdict, for a lab whose verdicts are not causes; they are those of its faults."""
    trial: Trial | None = None
    """Judges the learner's version in a way of its own, where speed is not the goal."""
    questions: tuple[Question, ...] = ()

    @property
    def own_verdicts(self) -> tuple[str, ...]:
        """What a verdict may be where it is not a cause; empty for the others."""
        return tuple(dict.fromkeys(fault.verdict for fault in self.faults)) if self.verdict_text else ()

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return Path(__file__).parent / "material" / self.name

    def sources(self, seed: int) -> dict[str, Path]:
        """Every file of the learner's, and where it is copied from."""
        drawn = self.drawn_files(seed) if self.drawn_files else {}
        return {name: self.folder / drawn.get(name, name) for name in (*self.files, *drawn)}

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
