"""Keep torch's own log quiet while its profiler records memory.

Whenever a tensor is freed that is older than the profiler, torch may write to standard error that it did not
know about it. A training must not print more because it is profiled.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

_LEVEL = "FLAGS_caffe2_log_level"
_ERRORS = 2


class QuietTorch:
    """From `begin` to `end`, torch's C++ code logs errors only. Without that setting nothing happens."""

    def __init__(self) -> None:
        self._level: ctypes.c_int | None = None
        self._before = _ERRORS

    def begin(self) -> None:
        try:
            library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
            self._level = ctypes.c_int.in_dll(library, _LEVEL)
        except (OSError, ValueError):  # another system, or another version of torch
            return
        self._before = self._level.value
        self._level.value = max(self._before, _ERRORS)

    def end(self) -> None:
        if self._level is not None:
            self._level.value = self._before
            self._level = None
