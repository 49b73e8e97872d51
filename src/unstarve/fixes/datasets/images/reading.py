"""Files of images → their bytes, and errors that name the file."""

from __future__ import annotations

import os

from unstarve.errors import DataFileError, ImageError
from unstarve.fixes.datasets.images.pillow import MAX_PIXELS, NO_MEMORY
from unstarve.fixes.io.regular_files import open_regular

# Of the largest image that is decoded, with four numbers of 32 bits for each pixel.
MAX_FILE_BYTES = 16 * MAX_PIXELS


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return what is in a file.

    Raises the system's own error, which names it; ImageError for a giant, and for a FIFO or a device.
    """
    try:
        fd = open_regular(path)
    except DataFileError as error:
        raise ImageError("it is not a regular file") from error
    with os.fdopen(fd, "rb", buffering=0) as file:
        size = os.fstat(fd).st_size
        if size > MAX_FILE_BYTES:
            raise ImageError(f"the file has {size} bytes; the limit is {MAX_FILE_BYTES}")
        try:
            return file.readall()
        except MemoryError as error:
            raise ImageError(NO_MEMORY) from error


def named(error: ImageError, path: str) -> ImageError:
    """Return the error of the image in this file."""
    return ImageError(f"{path} cannot be decoded: {error}")
