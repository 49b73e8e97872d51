"""Patch attributes of torch and put them back: the machinery behind the list in `hooks`."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from unstarve.model.launch_settings import LaunchSettings

Settings = LaunchSettings | None
"""None in a notebook that is attached but not recording."""

_ABSENT = object()
"""Stands for an attribute that a class inherits, or that did not exist."""

replaced: dict[str, list[tuple[weakref.ref[Any], str, Any]]] = {}
"""By patch, in order: the class or module, the attribute, and its value before."""


_wrappers: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""Functions of ours that stand in for torch's, with the patch that made each."""


def remember(name: str, owner: Any, attribute: str) -> None:
    """Note what an attribute is before a patch replaces it."""
    before = vars(owner).get(attribute, _ABSENT)
    replaced.setdefault(name, []).append((weakref.ref(owner), attribute, before))


def replace(name: str, owner: Any, attribute: str, wrap: Callable[[Any], Any]) -> None:
    """Put ``wrap(original)`` in place of an attribute, once for each patch."""
    original = getattr(owner, attribute)
    if _patch_of(original) != name:
        wrapper = functools.wraps(original)(wrap(original))
        _wrappers[wrapper] = name
        remember(name, owner, attribute)
        setattr(owner, attribute, wrapper)


def is_replaced(name: str, function: Any) -> bool:
    """Whether a patch stands in for this function, possibly below wrappers that others put around it."""
    while function is not None:
        if _patch_of(function) == name:
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def lend(owner: Any, attribute: str, stand_in: Any) -> None:
    """Put `stand_in` on a class that inherits the attribute, for a short time; its own would stay."""
    if attribute not in vars(owner):
        setattr(owner, attribute, stand_in)


def take_back(owner: Any, attribute: str, stand_in: Any) -> None:
    """Undo `lend`, unless somebody has put something else there meanwhile."""
    if vars(owner).get(attribute) is stand_in:
        delattr(owner, attribute)


def _patch_of(function: Any) -> str | None:
    try:
        return _wrappers.get(function)
    except TypeError:  # a method of a C++ class, which has no weak references
        return None


@dataclass(frozen=True, slots=True)
class Patch:
    """One change to torch. Applying it again patches only what has been imported or defined since."""

    name: str
    wraps: tuple[str, ...]
    """Full names of what it replaces."""
    why: str
    apply: Callable[[Settings], None]
    needed: Callable[[Settings], bool] | None
    """Whether `attach` applies it; None for a patch that waits until a loader is iterated."""

    def undo(self) -> None:
        """Put back everything that this patch has replaced."""
        for owner_ref, attribute, before in reversed(replaced.pop(self.name, [])):
            owner = owner_ref()
            if owner is None:
                continue
            if before is _ABSENT:
                delattr(owner, attribute)
            else:
                setattr(owner, attribute, before)
