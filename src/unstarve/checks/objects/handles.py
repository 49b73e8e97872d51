"""Open files, databases and connections that every forked worker would share.

A library is looked for only where the script has imported it.
"""

from __future__ import annotations

import io
import socket
import sqlite3
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

from unstarve import words
from unstarve.checks.objects.attributes import Place, stored
from unstarve.checks.objects.loader_parts import (
    held_by_samples,
    is_forked,
    is_used,
    may_differ_in_workers,
    report,
)
from unstarve.checks.objects.sample_code import sample_code
from unstarve.checks.objects.subject import Subject
from unstarve.model.finding import Finding

_Question = Callable[[Any], bool]


def _always(value: Any) -> bool:
    """For handles that do not say whether they are open."""
    return True


def _not_closed(value: Any) -> bool:
    return not value.closed


_OF_LIBRARIES: dict[str, tuple[tuple[str, ...], str, _Question]] = {
    "h5py": (("File", "Group", "Dataset"), "an HDF5 handle", bool),  # a closed one is false
    "lmdb": (("Environment", "Transaction"), "an LMDB handle", _always),
    "tables": (("File",), "an open HDF5 file", lambda value: bool(value.isopen)),
    "netCDF4": (("Dataset",), "an open netCDF file", lambda value: bool(value.isopen())),
    "rasterio.io": (("DatasetReader",), "an open raster file", _not_closed),
    "cv2": (("VideoCapture",), "an open video", lambda value: bool(value.isOpened())),
    "decord": (("VideoReader", "AudioReader"), "an open video", _always),
    "av.container": (("InputContainer",), "an open video", _always),
    "torchcodec.decoders": (("VideoDecoder", "AudioDecoder"), "an open video", _always),
    "lance": (("LanceDataset",), "an open Lance dataset", _always),
    "fsspec.asyn": (
        ("AsyncFileSystem",),
        "an asynchronous file system",
        lambda value: bool(value.async_impl),
    ),
    "pymongo": (("MongoClient",), "a MongoDB connection", _always),
    "psycopg2.extensions": (("connection",), "a database connection", _not_closed),
    "psycopg": (("Connection",), "a database connection", _not_closed),
    "pymysql.connections": (("Connection",), "a database connection", lambda value: bool(value.open)),
    "grpc": (("Channel",), "a gRPC channel", _always),
    "numpy.lib.npyio": (("NpzFile",), "an open .npz file", lambda value: _on_disk(value.fid)),
}
"""By module: the classes whose objects do not survive a fork, their kind, and whether one is open."""


def handle_before_fork(subject: Subject) -> Iterator[Finding]:
    """Handles that the dataset holds when its workers are forked, and reads from in a worker."""
    loader = subject.loader
    if not is_forked(loader) or loader.num_workers < 2:
        return
    found: list[str] = []
    for place in held_by_samples(subject):
        kind = _handle(place.value)
        if kind is None or place.path.startswith(tuple(f"{path}." for path in found)):
            continue  # the second: a part of a handle that has been reported
        if not _is_shared(place, subject):
            continue
        found.append(place.path)
        yield report(
            subject,
            "handle-before-fork",
            f"{place.path} is {kind} that {words.workers(loader.num_workers)} will share.",
            _fix(place),
            harm=1.0,
        )


def _handle(value: Any) -> str | None:
    """What kind of handle it is; None where it is none, is closed, or a fork does no harm to it."""
    for module, (names, kind, is_open) in _OF_LIBRARIES.items():
        known = vars(sys.modules[module]) if module in sys.modules else {}
        kinds = tuple(one for name in names if isinstance(one := known.get(name), type))
        if isinstance(value, kinds):
            return kind if is_open(value) else None
    if isinstance(value, sqlite3.Connection):
        return "an open SQLite database" if _has_file(value) else None
    if isinstance(value, zipfile.ZipFile):
        return "an open zip file" if _on_disk(value.fp) else None
    if isinstance(value, tarfile.TarFile):
        return "an open tar file" if _on_disk(value.fileobj) else None
    if isinstance(value, socket.socket):
        return "an open socket" if value.fileno() >= 0 else None
    if isinstance(value, io.IOBase) and _on_disk(value):
        return "an open file" if value.readable() and value.seekable() else None
    return None


def _has_file(connection: sqlite3.Connection) -> bool:
    """Each worker has its own copy of a database in memory."""
    try:
        databases = connection.execute("PRAGMA database_list").fetchall()
    except sqlite3.ProgrammingError:  # closed, or of another thread
        return False
    return any(file for _, _, file in databases)


def _on_disk(file: Any) -> bool:
    """Whether it has a descriptor, and so a position that processes share. Files in memory have none."""
    try:
        return int(file.fileno()) > 2  # the first three are the terminal's
    except (AttributeError, OSError, ValueError):  # none; in memory; closed
        return False


def _is_shared(place: Place, subject: Subject) -> bool:
    """Whether a worker reads from it: not from an image that Pillow opened, or with pread()."""
    owner = place.owner
    if owner is not None and type(owner).__module__.startswith("PIL."):
        return False
    is_positional = owner is not None and "pread" in sample_code(owner).names
    return is_used(place, subject) and not is_positional and not may_differ_in_workers(place, subject)


def _fix(place: Place) -> str:
    """Open it on first use, which is in the worker."""
    owner, name = place.owner, place.attribute
    if owner is None or name not in stored(owner):
        return f"Open {place.path} on first use inside the worker, not before the loader is iterated."
    return (
        f"# in {type(owner).__name__}: set self._{name.lstrip('_')} = None in __init__, then\n"
        "@property\n"
        f"def {name}(self):\n"
        f"    if self._{name.lstrip('_')} is None:  # first use: in the worker\n"
        f"        self._{name.lstrip('_')} = ...  # open it here\n"
        f"    return self._{name.lstrip('_')}"
    )
