"""A run file, from the network into the folder: under a name nobody sees until the reader has read it."""

from __future__ import annotations

import asyncio
import errno
import secrets
from pathlib import Path

from starlette.requests import Request

from unstarve.errors import RunFileError, UploadTooLargeError
from unstarve.web.desk import Desk
from unstarve.web.folder import Entry, RunFolder, upload_name
from unstarve.web.jobs import check
from unstarve.words import size


async def take_upload(request: Request, folder: RunFolder, desk: Desk, limit_bytes: int) -> Entry:
    """The request's body as a run of the folder.

    Raises `UploadTooLargeError`, `UsageError` for a name that cannot be, `RunFileError` for what is not a run
    or cannot be written. Whatever happens, nothing half-written stays.
    """
    name = upload_name(request.query_params.get("name", ""))
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit_bytes:
        raise _too_large(limit_bytes)
    hidden = folder.path / f".{secrets.token_hex(8)}.uploading"
    try:
        await _receive(request, hidden, limit_bytes)
        problem = await desk.do(check, hidden)
        if problem is not None:
            raise RunFileError(problem.replace(hidden.name, name))
        return await asyncio.to_thread(folder.place, hidden, name)
    except OSError as error:
        what = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise RunFileError(f"{name} cannot be written: {what}") from error
    finally:
        hidden.unlink(missing_ok=True)


async def _receive(request: Request, into: Path, limit_bytes: int) -> None:
    taken = 0
    with into.open("xb") as file:
        async for piece in request.stream():
            taken += len(piece)
            if taken > limit_bytes:
                raise _too_large(limit_bytes)
            file.write(piece)


def _too_large(limit_bytes: int) -> UploadTooLargeError:
    most = size(limit_bytes)
    return UploadTooLargeError(f"the file is larger than {most}; `unstarve serve --max-upload` takes more")
