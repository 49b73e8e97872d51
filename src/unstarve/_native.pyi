"""Compiled parts of unstarve; each has a Python twin. Call them through `unstarve.native.native()`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

def find_layouts(
    names: bytes, starts: NDArray[np.int64], formats: NDArray[np.uint8], direct: bool, threads: int
) -> list[tuple[int, int, str, list[int], int, int]]: ...
def gather(source: NDArray[Any], index: NDArray[np.int64], out: NDArray[Any], threads: int = 0) -> None: ...
def read_counters(schedstat: int, io: int) -> tuple[int, int, int, int, int, int, int, int]: ...
def read_quick(schedstat: int) -> tuple[int, int]: ...
def read_files(
    plan: NDArray[np.int64],
    names: bytes,
    outs: list[tuple[int, int]],
    direct: bool,
    depth: int,
    threads: int,
    uring: bool,
) -> tuple[list[tuple[int, int, int, int]], int, bool, bool]: ...
