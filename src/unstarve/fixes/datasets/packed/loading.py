"""One file → one sample, by its ending; nothing in a file is executed."""

from __future__ import annotations

import json
import math
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unstarve.errors import DataFileError
from unstarve.fixes.samples.dtypes import ELEMENT_TYPES

_SAFETENSORS_TYPES = {row.safetensors: row.name for row in ELEMENT_TYPES.values() if row.safetensors}

_KINDS = ((stat.S_ISDIR, "folder"), (stat.S_ISFIFO, "FIFO"), (stat.S_ISSOCK, "socket"))


def load_file(path: Path) -> Any:
    """The sample in a file: .pt and .pth as torch saved it, .npy an array, .safetensors a dict of tensors.

    Any other file is its bytes. Raises DataFileError, which names the file, for one that cannot be read so.
    """
    _check_is_file(path)
    return _LOADERS.get(path.suffix.lower(), Path.read_bytes)(path)


def load_bytes(path: Path) -> bytes:
    """The bytes of a file. Raises DataFileError, which names it, where it is something else."""
    _check_is_file(path)
    return path.read_bytes()


def _check_is_file(path: Path) -> None:
    """DataFileError for anything but a file: to open a FIFO would wait for whoever writes into it."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        what = "is a link that leads nowhere" if path.is_symlink() else "cannot be read"
        raise DataFileError(f"{path} {what} ({error.strerror})") from error
    if not stat.S_ISREG(mode):
        kind = next((kind for is_kind, kind in _KINDS if is_kind(mode)), "device")
        raise DataFileError(f"{path} is a {kind}, not a file")


def _load_torch(path: Path) -> Any:
    try:
        return torch.load(str(path), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        reason = "it is damaged, or holds objects that only its own code can rebuild"
    except (RuntimeError, EOFError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    raise DataFileError(f"{path} cannot be loaded ({reason}); pack a dataset that loads it, or use --raw")


def _load_numpy(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError, SyntaxError) as error:
        reason = str(error).splitlines()[0]
    raise DataFileError(f"{path} cannot be loaded as a numpy array ({reason}); use --raw to pack its bytes")


def _load_safetensors(path: Path) -> Any:
    data = bytearray(path.read_bytes())
    try:
        length = int.from_bytes(data[:8], "little")
        names = json.loads(data[8 : 8 + length])
        names.pop("__metadata__", None)
        return {name: _safetensor(data, 8 + length, entry) for name, entry in names.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise DataFileError(
            f"{path} is not a sound safetensors file ({error}); use --raw to pack its bytes"
        ) from error


def _safetensor(data: bytearray, start: int, entry: dict[str, Any]) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, _SAFETENSORS_TYPES[entry["dtype"]])
    shape: list[int] = entry["shape"]
    first, end = entry["data_offsets"]
    if math.prod(shape) * dtype.itemsize != end - first or start + end > len(data) or first < 0:
        raise ValueError("a tensor does not fit its place")
    if end == first:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(data, dtype=torch.uint8, count=end - first, offset=start + first).clone() \
        .view(dtype).view(shape)  # fmt: skip


_LOADERS: dict[str, Callable[[Path], Any]] = {
    ".pt": _load_torch,
    ".pth": _load_torch,
    ".npy": _load_numpy,
    ".safetensors": _load_safetensors,
}
