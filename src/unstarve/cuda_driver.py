"""The CUDA driver, called directly: the one binding of libcuda.

Calling the driver leaves no error behind that torch would find at its next check, as the CUDA runtime would,
and never creates a context. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any

_RELAXED = 2


class CudaDriverError(RuntimeError):
    """A call of the CUDA driver failed; the message names the function and the error code."""


@functools.cache
def cuda_driver() -> Any | None:
    """Return the driver library; None without an NVIDIA driver."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def call_driver(driver: Any, name: str, *args: Any) -> None:
    """Call a function of the driver. Raises CudaDriverError if it fails."""
    code = getattr(driver, name)(*args)
    if code:
        raise CudaDriverError(f"{name} failed with CUDA driver error {code}")


@contextlib.contextmanager
def beside_graph_captures(driver: Any | None) -> Iterator[None]:
    """Let this thread call CUDA while another thread captures a CUDA graph.

    By default such calls fail and end the capture with an error. Does nothing without a driver, or if the
    driver cannot do it.
    """
    exchange = getattr(driver, "cuThreadExchangeStreamCaptureMode", None)
    mode = ctypes.c_int(_RELAXED)
    # The call swaps: afterwards `mode` holds the previous one.
    is_relaxed = exchange is not None and exchange(ctypes.byref(mode)) == 0
    try:
        yield
    finally:
        if is_relaxed and exchange is not None:
            exchange(ctypes.byref(mode))
