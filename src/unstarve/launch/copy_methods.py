"""Puts `WatchedMethod`s on ``torch.Tensor`` while the copies of one step are timed."""

from __future__ import annotations

from collections.abc import Iterable

from unstarve.collect.copy_patch import WatchedMethod, set_copy_patch
from unstarve.launch.patching import Settings, lend, take_back

WRAPS = ("torch.Tensor.to", "torch.Tensor.cuda", "torch.Tensor.copy_")


def apply(_settings: Settings) -> None:
    """Allow it; nothing is patched yet."""
    set_copy_patch(_watch)


def forbid() -> None:
    """From the next step on, nothing is patched."""
    set_copy_patch(None)


def _watch(methods: Iterable[WatchedMethod], watched: bool) -> None:
    import torch  # not complete yet when this module is imported

    for method in methods:
        (lend if watched else take_back)(torch.Tensor, method.name, method)
