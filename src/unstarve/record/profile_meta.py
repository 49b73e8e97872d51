"""The ``profile`` and ``io`` METAs → their nouns; their fields were checked when they were read."""

from __future__ import annotations

from typing import Any

from unstarve.model.file_reads import FileReads, KindReads, ProcessReads, RecordedReads
from unstarve.model.profile import (
    AllocatedBy,
    CopyUse,
    DeviceMemory,
    DeviceUse,
    FileUse,
    IdleGap,
    NamedUse,
    PhaseUse,
    Profile,
)

_LISTS = {
    "devices": DeviceUse,
    "gaps": IdleGap,
    "copies": CopyUse,
    "kernels": NamedUse,
    "operators": NamedUse,
    "by_shape": NamedUse,
    "by_stack": NamedUse,
    "phases": PhaseUse,
    "calls": NamedUse,
    "files": FileUse,
}


def profile_of(meta: dict[str, Any]) -> Profile:
    """The profile that a META describes."""
    lists: dict[str, tuple[Any, ...]] = {
        name: tuple(made(**row) for row in meta.get(name, ())) for name, made in _LISTS.items()
    }
    plain = {name: value for name, value in meta.items() if name not in (*_LISTS, "memory", "meta")}
    lists["memory"] = tuple(_memory_of(row) for row in meta.get("memory") or ())
    return Profile(**plain, **lists)  # type: ignore[arg-type]  # each list holds its own class


def _memory_of(row: dict[str, Any]) -> DeviceMemory:
    points = {name: tuple(row[name]) for name in ("at_s", "allocated", "reserved")}
    groups = {name: tuple(AllocatedBy(**one) for one in row[name]) for name in ("by_phase", "by_operator")}
    return DeviceMemory(**row | points | groups)


def reads_of(meta: dict[str, Any]) -> RecordedReads:
    """The counts of file reads that a META describes."""
    return RecordedReads(
        meta.get("why_not"),
        tuple(FileReads(**row) for row in meta.get("files", ())),
        tuple(KindReads(**row) for row in meta.get("kinds", ())),
        tuple(ProcessReads(**row) for row in meta.get("processes", ())),
    )
