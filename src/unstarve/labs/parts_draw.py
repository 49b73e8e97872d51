"""Which three workloads the lab on faster parts has: each kind suits another part, and the seed draws."""

from __future__ import annotations

import random
from dataclasses import dataclass

SLOTS = ("a", "b", "c")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of workload."""

    name: str
    epochs: int
    samples: int
    batch_size: int
    step_ms: float


KINDS = {
    kind.name: kind
    for kind in (
        Kind("decoded", epochs=6, samples=128, batch_size=16, step_ms=3.0),
        Kind("augmented", epochs=6, samples=128, batch_size=16, step_ms=3.0),
        Kind("rows", epochs=4, samples=65_536, batch_size=1024, step_ms=1.0),
        Kind("server", epochs=1, samples=256, batch_size=8, step_ms=3.0),
        Kind("tensors", epochs=1, samples=3_072, batch_size=64, step_ms=0.5),
    )
}


def kinds_of(seed: int) -> dict[str, Kind]:
    """The three kinds that this seed draws, by slot."""
    drawn = random.Random(f"faster-parts:{seed}").sample(list(KINDS.values()), len(SLOTS))
    return dict(zip(SLOTS, drawn, strict=True))
