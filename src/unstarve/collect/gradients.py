"""What tells training from validation: gradients being on when a batch is asked for, and backward passes.

Many validation loops switch gradients off only inside their body, so a backward pass is the surer sign.
Analysis finds the loader whose step it ran in.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from unstarve.collect.meetings import meetings

_MOST_PASSES = 64
"""Backward passes kept until the next batch is asked for."""

_passes: deque[tuple[int, int]] = deque()
"""Thread and time of the backward passes since a batch was last asked for."""
_watch: Callable[[], None] | None = None


def set_backward_watch(watch: Callable[[], None] | None) -> None:
    """Let `watch` be called when an epoch begins: torch is complete by then and can be patched."""
    global _watch
    _watch = watch


def watch_backward() -> None:
    """An epoch begins: from now on backward passes are noted."""
    if _watch is not None:
        _watch()


def first_passes() -> dict[int, int]:
    """By thread: when its first backward pass began since this was last called."""
    found: dict[int, int] = {}
    while _passes:
        with contextlib.suppress(IndexError):  # another thread asks for a batch, too, and was faster
            ident, at_ns = _passes.popleft()
            found.setdefault(ident, at_ns)
    return found


def noting_backward(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``torch.autograd.backward``, which ``Tensor.backward`` calls."""
    noted, append, clock, ident = _passes, _passes.append, time.perf_counter_ns, threading.get_ident

    def backward(*args: Any, **kwargs: Any) -> Any:
        # No Python function is called here: torch.compile would look into it.
        if len(noted) < _MOST_PASSES:
            append((ident(), clock()))
        if meetings.watching:
            return meetings.backward(original, args, kwargs)
        return original(*args, **kwargs)

    return backward


def hide_from_compiler(function: Any) -> None:
    """Let torch.compile treat a function of ours as it treats torch's own: it breaks the graph there."""
    compiler = sys.modules.get("torch._dynamo.decorators")
    if compiler is not None and not hasattr(function, "_torchdynamo_disable"):
        with contextlib.suppress(Exception):  # only half imported, or another version
            compiler.skip(function)


os.register_at_fork(after_in_child=_passes.clear)
