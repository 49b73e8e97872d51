"""What a profiler said, as tables: devices, copies, gaps, kernels, operators, file calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from unstarve.analyze.device_idle import device_findings
from unstarve.model import OperatorChange
from unstarve.model.profile import NamedUse, Profile
from unstarve.words import duration, mean_count, percent, size, size_change, times

_MOST_ROWS = 5
_MOST_CALLS = 8
_LONGEST_NAME = 60
_WORTH_SHOWING = 0.01
"""Share of the window from which an idle gap is shown."""


def profile_tables(profile: Profile | None) -> Group | None:
    """All tables that have a row; None without a profile."""
    if profile is None:
        return None
    parts = list(_parts(profile))
    return Group(*parts) if parts else None


def _parts(p: Profile) -> Iterator[RenderableType]:
    window = p.window_s or 1.0
    yield from titled_table(
        "devices",
        ("device", "busy", "kernels", "copies exposed", "idle", "starved", "launch gaps"),
        [
            (
                f"GPU {d.device}",
                percent(d.busy_s / window),
                percent(d.kernel_s / window),
                percent(d.exposed_copy_s / window),
                percent(d.idle_s / window),
                percent(d.starved_s / window),
                percent(d.launch_gap_s / window),
            )
            for d in p.devices
        ],
    )
    for sentence in device_findings(p):
        yield Text(sentence)
    steps = max(p.steps, 1)
    total = sum(phase.seconds for phase in p.phases)
    yield from titled_table(
        "profiled steps",
        ("phase", "per step", "share", *(["on the GPU"] if p.devices else [])),
        [
            (
                phase.name,
                duration(phase.seconds / steps),
                percent(phase.seconds / total),
                *([duration(phase.device_s / steps)] if p.devices else []),
            )
            for phase in p.phases
            if total and (phase.seconds or phase.device_s)
        ],
    )
    yield from titled_table(
        "copies",
        ("kind", "memory", "count", "size", "time", "exposed"),
        [
            (
                f"{c.kind} (GPU {c.device})",
                c.memory or "–",
                str(c.count),
                size(c.bytes),
                duration(c.seconds),
                duration(c.exposed_s),
            )
            for c in p.copies[:_MOST_ROWS]
        ],
    )
    gaps = [gap for gap in p.gaps if gap.seconds >= _WORTH_SHOWING * window][:_MOST_ROWS]
    yield from titled_table(
        "longest idle gaps",
        ("what the host was doing", "GPU", "at", "idle for"),
        [
            (
                _short(g.host or "Python of the training loop"),
                str(g.device),
                duration(g.begin_s),
                duration(g.seconds),
            )
            for g in gaps
        ],
    )
    yield from memory_tables(p)
    yield from _named("kernels", p.kernels[:_MOST_ROWS])
    yield from _named("operators", p.operators[:_MOST_ROWS])
    yield from titled_table(
        "file calls",
        ("call", "process", "calls", "time"),
        [(c.name, str(c.process), str(c.calls), duration(c.seconds)) for c in p.calls[:_MOST_CALLS]],
    )
    yield from titled_table(
        "files",
        ("file", "process", "opens", "reads", "size", "time"),
        [
            (u.path, str(u.process), str(u.opens), str(u.reads), size(u.bytes), duration(u.seconds))
            for u in p.files[:_MOST_ROWS]
        ],
    )


def memory_tables(p: Profile) -> Iterator[RenderableType]:
    """Memory of each device; who allocated it, for the first accelerator or the CPU."""
    reserves = any(m.reserved_bytes is not None for m in p.memory)
    yield from titled_table(
        "tensors in memory",
        ("device", "peak", *(["reserved then", "not in use"] if reserves else []), "peak at"),
        [
            (
                m.device,
                size(m.peak_bytes),
                *([_size(m.reserved_bytes), _size(m.unused_bytes)] if reserves else []),
                duration(m.peak_at_s),
            )
            for m in p.memory
        ],
    )
    relative = [m.device for m in p.memory if m.relative]
    if relative:
        yield Text(f"Bytes on {' and '.join(relative)} count from the beginning of the window.")
    shown = next((m for m in p.memory if m.device != "cpu"), p.memory[0] if p.memory else None)
    if shown is None:
        return
    steps = max(p.steps, 1)
    for by, used in (("phase", shown.by_phase), ("operator", shown.by_operator[:_MOST_ROWS])):
        yield from titled_table(
            f"allocated on {shown.device} by {by}, per step",
            (by, "allocations", "allocated", "allocated − freed"),
            [
                (
                    _short(a.name),
                    mean_count(a.allocations / steps),
                    size(a.allocated_bytes / steps),
                    size_change(a.net_bytes / steps),
                )
                for a in used
            ],
        )


def _size(known: int | None) -> str:
    return "–" if known is None else size(known)


def operator_table(profile: Profile, by: str, sort: str) -> RenderableType | None:
    """The operators, grouped by ``name``, ``shape`` or ``stack``; None when that was not recorded."""
    used = {"name": profile.operators, "shape": profile.by_shape, "stack": profile.by_stack}[by]
    key = {
        "self": lambda one: one.self_s or 0.0,
        "cpu": lambda one: one.seconds,
        "device": lambda one: one.device_s or 0.0,
        "calls": lambda one: one.calls,
    }[sort]
    rows = [
        (u.name, str(u.calls), duration(u.self_s or 0.0), duration(u.seconds), duration(u.device_s or 0.0))
        for u in sorted(used, key=key, reverse=True)
    ]
    tables = list(
        titled_table("operators", ("operator", "calls", "own CPU time", "CPU time", "on the GPU"), rows)
    )
    return Group(*tables) if tables else None


def operator_changes(changes: Sequence[OperatorChange]) -> RenderableType | None:
    """What two profiles differ in; None when nothing does."""
    rows = [
        (
            _short(one.name),
            duration(one.a_s),
            duration(one.b_s),
            "new" if not one.a_s else "gone" if not one.b_s else times(one.b_s / one.a_s, 2),
        )
        for one in changes
    ]
    tables = list(
        titled_table("operators that changed, per step", ("operator", "A", "B", "B against A"), rows)
    )
    return Group(*tables) if tables else None


def _named(title: str, used: Sequence[NamedUse]) -> Iterator[RenderableType]:
    columns: Sequence[str]
    rows: list[tuple[str, ...]]
    if any(one.device_s for one in used):
        columns = ("operator", "calls", "own CPU time", "on the GPU")
        rows = [
            (_short(u.name), str(u.calls), duration(u.self_s or 0.0), duration(u.device_s or 0.0))
            for u in used
        ]
    elif any(one.self_s is not None for one in used):
        columns = ("operator", "calls", "own CPU time")
        rows = [(_short(u.name), str(u.calls), duration(u.self_s or 0.0)) for u in used]
    else:
        columns = (title.removesuffix("s"), "calls", "time")
        rows = [(_short(u.name), str(u.calls), duration(u.seconds)) for u in used]
    yield from titled_table(title, columns, rows)


def titled_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> Iterator[RenderableType]:
    """A title and a table below it; nothing without rows."""
    if not rows:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column(columns[0], overflow="fold", min_width=14)
    for name in columns[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    yield Text(f"\n{title}", "bold")
    yield table


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
