"""What nobody knows, drawn several times: which batches come, and how far the model's constants are off.

Draws are stratified and always the same for a run: a report that is made twice says the same twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from unstarve.predict.demand import Demands
from unstarve.predict.parts import Work

DRAWS = 8
_DRAWN_WORKS = 48
"""A drawn sequence may be shorter than the likely one: its variety is wanted, not its precision."""
_BLOCK = 8
"""Batches that stay together: what is slow is often so for a while."""

_CPU_DOUBT, _STEP_DOUBT = 0.12, 0.06
"""As standard deviations of a logarithm: CPU work in another crowd, and the step beside it."""
_HANDOFF_DOUBT = 0.2
_UNSEEN_HANDOFF_DOUBT = 0.4
"""The same of a hand-off, in another crowd, or never measured."""
_START_DOUBT = 0.25
_FOREIGN_DOUBT = 0.2
_DISK_DOUBT = 0.3
"""As half of a range: how well a disk serves many at once."""
_REMOTE_DOUBT, _CROWD_DOUBT = 0.25, 0.4
"""As a range below the likely: a server that more workers ask may answer more slowly, or is at its limit."""

_USUAL_READ_BYTES = 1 << 17
_USUAL_DISK_POWER = 0.4
_DISK_POWER_PER_DOUBLING = 1 / 12
_USUAL_DEPTH, _LEAST_DEPTH, _MOST_DEPTH = 16.0, 4.0, 32.0


@dataclass(frozen=True, slots=True)
class Draw:
    """One way in which things may be."""

    works: tuple[Work, ...]
    disk_power: float = _USUAL_DISK_POWER
    disk_depth: float = _USUAL_DEPTH
    remote_power: float = 1.0
    """Of waiting elsewhere, the same as `disk_power`, for workers beyond the recorded ones."""
    cpu: float = 1.0
    """Factors, from here on, in another setting than the recorded one."""
    step: float = 1.0
    handoff: float = 1.0
    start: float = 1.0
    foreign: float = 1.0
    step_power: float = 1.0
    """How a step grows with its batch."""

    def as_recorded(self) -> Self:
        """The same batches, but nothing else is in doubt: it was measured."""
        return replace(self, cpu=1.0, step=1.0, handoff=1.0, start=1.0, foreign=1.0)


def draws_of(demands: Demands) -> tuple[Draw, ...]:
    """The likely draw, then the others."""
    power, depth = _disk(demands.read_bytes)
    # Workers that wait for each other are told from others that wait by their stacks alone.
    remote = 0.0 if demands.waits_together else 1.0
    likely = Draw(demands.works, power, depth, remote)
    doubt = _CROWD_DOUBT if demands.workers > 1 else _REMOTE_DOUBT
    random = np.random.default_rng(0)
    cpu, step, handoff, start, foreign = (_normal(random) for _ in range(5))
    disk, server, growth = (_uniform(random) for _ in range(3))
    others = [
        Draw(
            works=_resampled(demands.works, random),
            disk_power=min(max(power + _DISK_DOUBT * (2 * disk[k] - 1), 0.0), 1.0),
            disk_depth=depth,
            remote_power=0.5 * server[k] if demands.waits_together else 1 - doubt * server[k],
            cpu=math.exp(_CPU_DOUBT * cpu[k]),
            step=math.exp(_STEP_DOUBT * step[k]),
            handoff=math.exp((_HANDOFF_DOUBT if demands.workers else _UNSEEN_HANDOFF_DOUBT) * handoff[k]),
            start=math.exp(_START_DOUBT * start[k]),
            foreign=math.exp(_FOREIGN_DOUBT * foreign[k]),
            step_power=growth[k],
        )
        for k in range(DRAWS)
    ]
    return likely, *others


def _disk(read_bytes: float | None) -> tuple[float, float]:
    """How a disk's speed grows with the reads under way, and up to how many, by their size.

    Small reads leave it idle most of the time; large ones fill it by themselves. Measured on three machines:
    1.3 times the speed for twice the reads of 64 to 128 KB, up to 16 of them; next to none for those of 2 MB.
    """
    if not read_bytes:
        return _USUAL_DISK_POWER, _USUAL_DEPTH
    doublings = math.log2(read_bytes / _USUAL_READ_BYTES)
    power = _USUAL_DISK_POWER - _DISK_POWER_PER_DOUBLING * doublings
    depth = _USUAL_DEPTH / 2 ** (doublings / 2)
    return min(max(power, 0.05), 0.9), min(max(depth, _LEAST_DEPTH), _MOST_DEPTH)


def _resampled(works: tuple[Work, ...], random: np.random.Generator) -> tuple[Work, ...]:
    block = min(_BLOCK, len(works))
    count = -(-min(len(works), _DRAWN_WORKS) // block)
    firsts = random.integers(0, len(works) - block + 1, count)
    return tuple(work for first in firsts for work in works[first : first + block])


def _uniform(random: np.random.Generator) -> NDArray[np.float64]:
    """Stratified: one in every stretch of the range, in any order."""
    return (random.permutation(DRAWS) + 0.5) / DRAWS


def _normal(random: np.random.Generator) -> NDArray[np.float64]:
    """Quantiles of the normal distribution, in any order (Tukey's approximation)."""
    p = _uniform(random)
    return 4.91 * (p**0.14 - (1 - p) ** 0.14)
