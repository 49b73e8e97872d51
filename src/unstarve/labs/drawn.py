"""How much work each part of an exercise does: much in the part that was drawn when the lab was started."""

from __future__ import annotations

import random
from pathlib import Path

from unstarve.labs.started import started_in


def amount(folder: Path | str, part: str, small: int, large: int) -> int:
    """`small`; for the part that was drawn in this folder a number from `large` to half as much again."""
    started = started_in(Path(folder))
    fault = started.lab.fault(started.seed)
    if fault is None or fault.name != part:
        return small
    return random.Random(f"{part}:{started.seed}").randint(large, large * 3 // 2)
