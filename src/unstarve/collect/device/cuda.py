"""The accelerator, as far as looking does not wake it: no context is ever made here."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any

import torch

_RELAXED = 2


def cuda_in_use() -> bool:
    """Whether this process has initialized CUDA already."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]  # torch does not type it


def has_context(device: int) -> bool:
    """Whether this process works with this device already; one that it only could work with has none."""
    asked = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    return asked is not None and bool(asked(device))


@contextlib.contextmanager
def any_capture_allowed() -> Iterator[None]:
    """Inside, looking at events does not break a CUDA graph that some thread captures meanwhile.

    By default CUDA forbids that to all threads of a process, and ends the capture with an error.
    """
    exchange = _capture_mode_exchange()
    if exchange is None:
        yield
        return
    mode = ctypes.c_int(_RELAXED)
    exchange(ctypes.byref(mode))  # swaps: `mode` now holds what was set before
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


@functools.cache
def _capture_mode_exchange() -> Any | None:
    try:
        return ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):  # not NVIDIA's
        return None
