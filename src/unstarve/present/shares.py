"""The shares of time lost to data, each by the name of the one whose time it is."""

from __future__ import annotations

from collections.abc import Iterator

from unstarve.model import Diagnosis


def budget_title(d: Diagnosis) -> str:
    """On a GPU the budget is the GPU's: a wait in which it still had work counts as computing."""
    on_gpu = d.gpu is not None and d.gpu.stall_share is not None
    return "where the GPU's time went" if on_gpu else "where the time went"


def shares(d: Diagnosis) -> Iterator[tuple[str, float | None]]:
    """On a CPU the lost wait; on an accelerator its stall, None when not observed, and the host's wait.

    The wait of a late rank is lost only until the next rank arrives.
    """
    if d.wait_share is None:
        return
    if d.device == "cpu":
        yield "waiting for data", d.stall_share
        return
    yield "GPU starved", d.stall_share
    yield "host waited", d.wait_share
