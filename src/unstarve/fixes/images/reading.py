"""Files of pictures → their bytes, and errors that name the file."""

from __future__ import annotations

import os
from pathlib import Path

from unstarve.errors import ImageError


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return what is in a file. Raises the system's own error, which names it."""
    with Path(path).open("rb", buffering=0) as file:
        return file.readall()


def named(error: ImageError, path: str) -> ImageError:
    """Return the error of the picture in this file."""
    return ImageError(f"{path} cannot be decoded: {error}")
