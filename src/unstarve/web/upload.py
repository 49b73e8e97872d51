"""A run file from the network into the folder. It gets its name only after the reader has accepted it."""

from __future__ import annotations

import asyncio
import errno
import secrets
import shutil
from pathlib import Path

from starlette.requests import Request

from unstarve.errors import NoRoomError, RunFileError, UploadTooLargeError
from unstarve.web.job_pool import JobPool
from unstarve.web.jobs import check
from unstarve.web.responses import while_connected
from unstarve.web.run_folder import RunEntry, RunFolder, upload_name
from unstarve.words import size

RESERVE_BYTES = 100_000_000
"""Disk space left free for a training that writes there."""


async def take_upload(request: Request, folder: RunFolder, jobs: JobPool, limit_bytes: int) -> RunEntry:
    """Store the request's body as a run of the folder.

    Raises `UploadTooLargeError`, `NoRoomError`, `UsageError` for an invalid name, `RunFileError` if it is not
    a run or cannot be written. Nothing half-written is ever left behind.
    """
    name = upload_name(request.query_params.get("name", ""))
    hidden = folder.path / f".{secrets.token_hex(8)}.uploading"
    try:
        room_bytes = shutil.disk_usage(folder.path).free - RESERVE_BYTES
        _check_size(_announced(request), limit_bytes, room_bytes)
        await _receive(request, hidden, limit_bytes, room_bytes)
        problem = await while_connected(request, jobs.do(check, hidden))
        if problem is not None:
            raise RunFileError(problem.replace(hidden.name, name))
        return await asyncio.to_thread(folder.place, hidden, name)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _no_room() from error
        raise RunFileError(f"cannot write {name}: {error.strerror or 'the folder is gone'}") from error
    finally:
        hidden.unlink(missing_ok=True)


async def _receive(request: Request, into: Path, limit_bytes: int, room_bytes: int) -> None:
    taken = 0
    with into.open("xb") as file:
        async for piece in request.stream():
            taken += len(piece)
            _check_size(taken, limit_bytes, room_bytes)
            file.write(piece)


def _announced(request: Request) -> int:
    """The size that the request announces; 0 if it announces none."""
    said = request.headers.get("content-length", "")
    return int(said) if said.isascii() and said.isdigit() and len(said) < 20 else 0


def _check_size(count: int, limit_bytes: int, room_bytes: int) -> None:
    if count > limit_bytes:
        most = size(limit_bytes)
        raise UploadTooLargeError(
            f"the file is larger than {most}; `unstarve serve --max-upload` allows more"
        )
    if count > room_bytes:
        raise _no_room()


def _no_room() -> NoRoomError:
    return NoRoomError("the disk is full; make room on the server and try again")
