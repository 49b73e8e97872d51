"""The ``profile`` META → `Profile`; its fields were checked when it was read."""

from __future__ import annotations

from typing import Any

from unstarve.model.profile import CopyUse, DeviceUse, FileUse, IdleGap, NamedUse, PhaseUse, Profile

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
    lists = {name: tuple(made(**row) for row in meta.get(name, ())) for name, made in _LISTS.items()}
    plain = {name: value for name, value in meta.items() if name not in _LISTS and name != "meta"}
    return Profile(**plain, **lists)  # type: ignore[arg-type]  # each list holds its own class
