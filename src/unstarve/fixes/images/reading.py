"""Files of pictures → their bytes, and errors that name the file."""

from __future__ import annotations

import os

from unstarve.errors import ImageError


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return what is in a file. Raises the system's own error, which names it."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  # for every picture: a Path takes longer
        return file.readall()


def named(error: ImageError, path: str) -> ImageError:
    """Return the error of the picture in this file."""
    return ImageError(f"{path} cannot be decoded: {error}")
