"""Quantities in words, for sentences that several stages write."""

from __future__ import annotations


def ms(seconds: float) -> str:
    """Milliseconds, or microseconds where they are few."""
    value = seconds * 1e3
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 1 else f"{value * 1e3:.0f} µs"


def size(count: float) -> str:
    """Bytes in the unit that fits."""
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def workers(count: int) -> str:
    """``no worker``, ``1 worker``, ``4 workers``."""
    return "no worker" if count == 0 else "1 worker" if count == 1 else f"{count} workers"
