"""Compiled parts of unstarve; each has a Python twin. Call them through `unstarve.native.native()`."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

class Batches:
    def __init__(
        self,
        *,
        source: Iterator[Any],
        whole: bool,
        batch_size: int,
        drop_last: bool,
        leaves: list[Any],
        table: NDArray[np.int64] | None,
        empty_like: Callable[[Any], Any],
        storage_uses: Callable[[int], int] | None,
        build: Callable[[Any], Any] | None,
        as_index: Callable[[Any], NDArray[np.int64] | None],
        fetch: Callable[[Any], Any],
        annotate: Callable[[], Any] | None,
        profiler: dict[str, Any],
        threads: int = 0,
    ) -> None: ...
    def __iter__(self) -> Batches: ...
    def __next__(self) -> Any: ...
    @property
    def taken(self) -> int: ...

def gather(source: NDArray[Any], index: NDArray[np.int64], out: NDArray[Any], threads: int = 0) -> None: ...
def read_counters(schedstat: int, io: int) -> tuple[int, int, int, int, int, int, int, int]: ...
def read_quick(schedstat: int) -> tuple[int, int]: ...
