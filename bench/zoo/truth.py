"""The wait share as measured by the training script itself, to compare a report with."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

MARK = "zoo-truth "
WARMUP_STEPS = 5
NOTHING: dict[str, Any] = {"steps": 0, "seconds": 0.0, "wait_share": None, "shutdown_share": None}

_clock = time.perf_counter_ns


class Truth:
    """Stamps around every ``iter()`` and ``next()`` of the loaders iterated through `over`."""

    def __init__(self) -> None:
        self._blocked: list[tuple[int, int]] = []
        self._shutdown: list[tuple[int, int]] = []
        self._asked: list[int] = []
        self._end_ns = 0

    def over(self, loader: Iterable[Any], steps: int | None = None) -> Iterator[Any]:
        """One epoch, or `steps` of it."""
        ask = _clock()
        batches = iter(loader)
        for _ in count() if steps is None else range(steps):
            try:
                batch = next(batches)
            except StopIteration:
                self._shutdown.append((ask, _clock()))
                return
            self._blocked.append((ask, _clock()))
            self._asked.append(ask)
            try:
                yield batch
            finally:  # a loop that breaks has taken its last step, too
                ask = self._end_ns = _clock()

    def line(self) -> str:
        """The marker line: from the ask after warm-up to the end of the last step.

        A wait ends with a batch. The time that ``next()`` takes to end an epoch is separate:
        `shutdown_share`.
        """
        measured = self._asked[WARMUP_STEPS:]
        if not measured:
            return MARK + json.dumps(NOTHING)
        begin_ns, end_ns = measured[0], self._end_ns

        def share(spans: list[tuple[int, int]]) -> float:
            inside = (end - begin for begin, end in spans if begin_ns <= begin < end_ns)
            return sum(inside) / (end_ns - begin_ns)

        told = {
            "steps": len(measured),
            "seconds": (end_ns - begin_ns) / 1e9,
            "wait_share": share(self._blocked),
            "shutdown_share": share(self._shutdown),
        }
        return MARK + json.dumps(told)


def parse_truth(output: str) -> dict[str, Any]:
    """Read the truth from a script's output; a share of None is unknown."""
    for line in reversed(output.splitlines()):
        if line.startswith(MARK):
            return dict(json.loads(line.removeprefix(MARK)))
    return NOTHING
