"""Copies to the device, by kind."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from unstarve.model import CopySummary
from unstarve.present.terminal.profile_tables import titled_table
from unstarve.words import counted, duration, mean_count, size


def copy_table(copies: CopySummary | None) -> Group | None:
    """A row for each kind of copy, per step; None without copies."""
    if copies is None or not copies.kinds:
        return None
    steps = copies.steps
    table = titled_table(
        "copies to the GPU, per step",
        ("from", "stream", "copies", "size", "time", "speed", "host"),
        [
            (
                f"{kind.memory}, {'blocking' if kind.blocking else 'non-blocking'} (GPU {kind.device})",
                "beside" if kind.overlapped else "training's",
                mean_count(kind.copies / steps),
                size(kind.bytes / steps),
                duration(kind.seconds / steps),
                f"{size(kind.bytes / kind.seconds)}/s" if kind.seconds else "–",
                duration(kind.host_s / steps),
            )
            for kind in copies.kinds
        ],
    )
    return Group(*table, Text(f"timed in {counted(steps, 'step')}", "bright_black"))
