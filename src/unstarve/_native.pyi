"""The native part of unstarve; each function has a fallback. Call them through `unstarve.native.native()`."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

def find_layouts(
    names: bytes, starts: NDArray[np.int64], formats: NDArray[np.uint8], direct: bool, threads: int
) -> list[tuple[int, int, str, list[int], int, int]]: ...

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
    progress: Any

def gather(source: NDArray[Any], index: NDArray[np.int64], out: NDArray[Any], threads: int = 0) -> None: ...
def gather_at(memory: NDArray[np.uint8], starts: NDArray[np.int64], out: NDArray[np.uint8]) -> None: ...
def gather_columns(
    columns: tuple[torch.Tensor, ...],
    row_count: int,
    indices: list[int],
    batches: list[torch.Tensor],
    threads: int = 0,
) -> bool: ...
def read_files(
    plan: NDArray[np.int64],
    names: bytes,
    outs: list[tuple[int, int]],
    direct: bool,
    depth: int,
    threads: int,
    uring: bool,
) -> tuple[list[tuple[int, int, int, int]], int, bool, bool]: ...

class FileTable:  # fallback: `fixes.io.python_reader.FileTable`
    def __init__(
        self,
        names: bytes,
        starts: NDArray[np.int64],
        formats: NDArray[np.uint8],
        rows: NDArray[np.int64],
        structure: bytes,
        tensors: NDArray[np.int64],
        lengths: NDArray[np.int64],
    ) -> None: ...
    def read(
        self,
        files: NDArray[np.int64],
        outs: list[tuple[int, int]],
        taken: NDArray[np.int64] | None,
        looks: bool,
        direct: bool,
        depth: int,
        threads: int,
    ) -> tuple[list[tuple[int, int, int, int]], int, bool, bool]: ...

def file_sizes(names: bytes, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> None: ...

# Images. Memory is (address, bytes). `cuts` has a row per image: whole, top, left, height, width, flip, and
# `Resized` or zeros. `out` is memory, height, width, bytes per item, channels_last, table, mean and std.
# Fallback: `fixes.datasets.images.pillow_decoder`.
_Memory = tuple[int, int]
_Out = tuple[_Memory, int, int, int, bool, bytes, bytes]

def cut_pixels(
    wholes: list[tuple[_Memory, int, int]], cuts: NDArray[np.int64], out: _Out, threads: int
) -> tuple[list[tuple[int, str]], list[int]]: ...

# Random cuts. `state` is that of a torch.Generator. Fallback: `fixes.datasets.images.random_cuts`.
def peek_draws(
    state: NDArray[np.uint8],
    numbers: NDArray[np.uint32],
    logs: NDArray[np.float32],
    low: float,
    high: float,
    fused: bool,
) -> None: ...
def draw_cuts(
    state: NDArray[np.uint8],
    numbers: NDArray[np.uint32],
    shapes: NDArray[np.float32],
    sizes: NDArray[np.int64],
    low: float,
    high: float,
    flip: float,
    fused: bool,
    rows: NDArray[np.int64],
) -> bool: ...

# Only if libjpeg-turbo was there at build time.
def decode_cuts(
    images: list[Any], cuts: NDArray[np.int64], out: _Out, threads: int, upright: bool
) -> tuple[list[tuple[int, str]], list[int]]: ...
def measure_images(
    images: list[Any], threads: int, upright: bool
) -> list[tuple[int, int, int, bool] | str | None]: ...
def decode_whole(images: list[Any], height: int, width: int, out: _Memory, upright: bool) -> str | None: ...

# Twins: `record.writer.PythonLedger`, `collect.counters.PythonCounters`, `collect.waits.PythonWait` and
# `PythonWork`, `collect.receiving.PythonReceiving`.
Ledger: Any
Counters: Any
Wait: Any
Work: Any
Receiving: Any
