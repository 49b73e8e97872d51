"""A plan → what was measured."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

import psutil
import torch

from unstarve.benchmark.entries import PartPlan
from unstarve.benchmark.parts import PARTS
from unstarve.benchmark.plan import Plan
from unstarve.benchmark.rounds import Rounds
from unstarve.errors import UsageError
from unstarve.model import Benchmark, Part

_PACKAGES = ("unstarve", "torchvision", "pillow")


class Watch(Protocol):
    """Whoever wants to know how far it is."""

    def begins(self, what: str, part: int, parts: int) -> None:
        """This is measured now, in the `part`-th of so many parts."""

    def ended(self, part: Part) -> None:
        """A part is done, or as far as it went."""


def chosen(words: Iterable[str], parts: Sequence[PartPlan] = PARTS) -> tuple[PartPlan, ...]:
    """Return the parts that these letters and names stand for, in their own order; all for none."""
    wanted = tuple(words)
    known = dict.fromkeys(word for part in parts for word in (part.letter, part.name))
    for word in wanted:
        if word not in known:
            raise UsageError(f"there is no part {word!r}; there are {', '.join(known)}")
    return tuple(part for part in parts if not wanted or part.letter in wanted or part.name in wanted)


def run(
    plan: Plan, watch: Watch, parts: Sequence[PartPlan] = PARTS, packages: Iterable[str] = _PACKAGES
) -> Benchmark:
    """Measure those of `parts` that the plan names; stopped from the keyboard, return what is there.

    The versions of `packages` become part of the result.
    """
    parts = chosen(plan.parts, parts)
    began, started_at = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    done: list[Part] = []
    interrupted = False
    with tempfile.TemporaryDirectory(prefix="unstarve-bench-", dir=plan.folder) as folder:
        for number, part in enumerate(parts, start=1):
            say = partial(watch.begins, part=number, parts=len(parts))
            rounds = Rounds(part, plan, Path(folder), say)
            try:
                rounds.run()
            except KeyboardInterrupt:
                interrupted = True
            done.append(rounds.result())
            watch.ended(done[-1])
            if interrupted:
                break
    return Benchmark(
        tuple(done), plan.seeds, plan.quick, interrupted, started_at, time.perf_counter() - began,
        machine={
            "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            "memory_bytes": psutil.virtual_memory().total,
            "system": platform.platform(),
        },
        versions={"python": platform.python_version(), "torch": torch.__version__} | _installed(packages),
    )  # fmt: skip


def _installed(packages: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
