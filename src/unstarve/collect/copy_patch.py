"""What stands in for a method of ``torch.Tensor`` while the copies of a step are timed.

Much code compares methods with ``torch.Tensor.to``: torch's lazy parameters, torchvision's tensors,
torch.compile. So a `WatchedMethod` is only seen from a plain tensor that may begin a copy: the class, its
subclasses and parameters, and all other tensors give torch's own method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from unstarve.stack_levels import uncounted

Around = Callable[[Any, str, tuple[Any, ...], dict[str, Any]], Callable[[Any], None] | None]
"""Called before a method with the tensor, the method's name and the arguments; returns what to call with
its result, or None. Neither may raise."""
IsWatched = Callable[[Any, str], bool]
"""Whether this method of this tensor may begin a copy that is to be timed; it may not raise either."""
Swap = Callable[[Iterable["WatchedMethod"], bool], None]
"""Puts such methods on ``torch.Tensor``, or takes them away."""

_swap: Swap | None = None


def set_copy_patch(swap: Swap | None) -> None:
    """Allow steps to be watched by `swap`; None forbids it, after the step that is under way."""
    global _swap
    _swap = swap


def copy_patch() -> Swap | None:
    """What can be used to watch a step; None where nothing may be patched."""
    return _swap


class WatchedMethod:
    """A descriptor in place of a method that `owner` inherits."""

    def __init__(self, owner: type, name: str, is_watched: IsWatched, around: Around) -> None:
        self.name = name
        self._owner = owner
        self._is_watched = is_watched
        self._around = around
        self._bind = getattr(owner, name).__get__

    def __get__(self, tensor: Any, owner: type | None = None) -> Any:
        bound = self._bind(tensor, owner)
        if tensor is None or owner is not self._owner or not self._is_watched(tensor, self.name):
            return bound
        return _WatchedCall(bound, tensor, self.name, self._around)


class _WatchedCall:
    __slots__ = ("_around", "_bound", "_name", "_tensor")

    def __init__(self, bound: Any, tensor: Any, name: str, around: Around) -> None:
        self._bound = bound
        self._tensor = tensor
        self._name = name
        self._around = around

    @uncounted
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        end = self._around(self._tensor, self._name, args, kwargs)
        result = self._bound(*args, **kwargs)
        if end is not None:
            end(result)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bound, name)
