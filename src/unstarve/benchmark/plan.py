"""What to measure, and at which sizes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Sizes:
    """How much data; the defaults are those that the bars are for."""

    rows: int = 10_000
    columns: int = 100
    row_batch: int = 64
    images: int = 10_000
    """Of 3×224×224 bytes: 1.5 GB."""
    image_batch: int = 128
    files: int = 4_000
    file_bytes: int = 100_000
    file_batch: int = 64
    handed_over: int = 200
    """Batches that a worker hands over."""
    waited_for: int = 320
    """Samples of 10 ms each."""
    wait_s: float = 10e-3
    waited_batch: int = 32
    jpegs: int = 1024
    jpeg_batch: int = 32
    computed: int = 64
    """Few: what disturbs a machine lasts longer, and slows stock down as well."""
    computed_by_workers: int = 256
    compute_s: float = 1e-3
    computed_batch: int = 16
    least_s: float = 0.3
    """How long each way is measured per seed, at least."""


QUICK = Sizes(
    rows=2_000,
    images=128,
    image_batch=32,
    files=64,
    file_batch=16,
    handed_over=20,
    waited_for=64,
    waited_batch=16,
    jpegs=24,
    jpeg_batch=4,
    computed=48,
    computed_by_workers=48,
    computed_batch=8,
    least_s=0.02,
)


@dataclass(frozen=True)
class Plan:
    """One benchmark."""

    parts: tuple[str, ...] = ()
    """Letters or names; empty for all."""
    seeds: tuple[int, ...] = (0, 0, 0)
    sizes: Sizes = Sizes()
    quick: bool = False
    memory: bool = True
    folder: Path | None = None
    """Where to put files meanwhile; None for the system's place for temporary ones."""

    @property
    def judged(self) -> bool:
        """Whether the sizes are those that the bars are for."""
        return self.sizes == Sizes()
