"""Too short to judge."""

from __future__ import annotations

from torch.utils.data import DataLoader

from zoo.case import Case
from zoo.data import Items, Slow, fit
from zoo.truth import Truth
from zoo.work import Model


def few_steps(truth: Truth) -> None:
    """15 steps after warm-up, all of them slow."""
    fit(truth, DataLoader(Items(160, Slow(sleep_ms=4)), batch_size=8), Model(10))


CASES = (Case("short-few-steps", few_steps, "inconclusive", "unknown", quick=True),)
