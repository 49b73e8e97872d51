"""What the launcher wrote at either end of a run file: found without reading what lies between."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import psutil

from unstarve.errors import RunFileError
from unstarve.record import format as f
from unstarve.record.chunks import Scan
from unstarve.record.metas import meta_of

_END_BYTES = 1 << 14


def launch_of(path: Path) -> dict[str, Any] | None:
    """What the launcher wrote first; None where that is not to be read."""
    try:
        with path.open("rb") as file:
            data = file.read(_END_BYTES)
    except OSError:
        return None
    return _meta_at(data, data, f.HEADER.size, "launch")


def result_of(path: Path) -> dict[str, Any] | None:
    """What the launcher wrote last; None while the command runs. Raises `RunFileError`."""
    try:
        with path.open("rb") as file:
            head = file.read(f.HEADER.size)
            file.seek(max(0, path.stat().st_size - _END_BYTES))
            data = file.read()
    except OSError as error:
        raise RunFileError(f"cannot read {path}: {error.strerror or error}") from error
    return _meta_at(head, data, data.rfind(f.SYNC), "result")


def _meta_at(head: bytes, data: bytes, at: int, name: str) -> dict[str, Any] | None:
    """The META of this name that is found there, if it is; `head` begins with the header of the file."""
    if at < 0 or len(head) < f.HEADER.size or not head.startswith(f.MAGIC):
        return None
    found = Scan(data, f.HEADER.unpack_from(head)[1]).whole_at(at)
    if found is None or found.kind != f.META:
        return None
    try:
        meta = meta_of(found.payload)
    except ValueError:
        return None
    return meta if meta is not None and meta["meta"] == name else None


def launcher_alive(launch: dict[str, Any]) -> bool:
    """Whether the unstarve that wrote this ``launch`` still runs, on this machine."""
    if launch.get("host") != socket.gethostname() or launch.get("pid") is None:
        return False
    try:
        launcher = psutil.Process(launch["pid"])
        # A younger process has been given the number of one that is gone.
        return (
            launcher.create_time() <= launch["started_at"] + 1 and launcher.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.Error:
        return False
