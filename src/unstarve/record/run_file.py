"""A run file in the hands of the launcher: claim its name, fold the parts in at the end, see if it is live.

Only the two ends of the file are read here, where the launcher wrote, never the middle.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import psutil

from unstarve.errors import RunExistsError, RunFileError
from unstarve.outputs import put_in_place
from unstarve.record import format as f
from unstarve.record.chunks import Scan
from unstarve.record.metas import meta_of
from unstarve.record.writer import meta_chunk, reserve_chunk

_STREAM = 0
_END_BYTES = 1 << 14


def parts_folder(run: Path) -> Path:
    """The folder in which the processes of a run append their events while it is recorded."""
    return run.with_name(run.name + f.PARTS_SUFFIX)


def parts_of(folder: Path) -> list[Path]:
    """The files to read in a parts folder: first what was folded, without the parts that it replaces."""
    folded = folder / f.FOLDED
    try:
        with folded.open("rb") as file:
            head = file.read(f.HEADER.size + f.CHUNK.size)
            size = f.CHUNK.unpack_from(head, f.HEADER.size)[4] if len(head) > f.HEADER.size else 0
            data = head + file.read(min(size, f.MOST_META_BYTES))
    except OSError:
        data = b""
    meta = _meta_at(data, data, f.HEADER.size, "folded")
    replaced = set() if meta is None else set(meta["files"])
    parts = [part for part in folder.glob(f"*{f.PART_SUFFIX}") if part.name not in replaced]
    return sorted(parts, key=lambda part: (part != folded, *f.segment_of(part.name)))


def run_of_parts(parts: Path) -> Path:
    """The run that a parts folder belongs to."""
    return parts.with_name(parts.name.removesuffix(f.PARTS_SUFFIX))


def claim(run: Path, command: list[str], kind: str, *, force: bool = False) -> None:
    """Create the file of a new run and its parts folder.

    Raises `RunExistsError` when the name is taken (``force`` replaces a run, but never one that is being
    recorded), `RunFileError` when the folder cannot be written.
    """
    if run == Path("-"):
        raise RunFileError("a run cannot be recorded to standard output; name a file")
    if run.is_dir():
        raise RunFileError(f"{run} is a folder; name a file in it, for example {run}/name{f.SUFFIX}")
    mode = None
    if run.exists() or parts_folder(run).exists():
        if is_live(run):
            raise RunExistsError(
                f"{run} is being recorded right now by another unstarve; choose another name with -o"
            )
        if not force:
            raise RunExistsError(
                f"{run} already exists; choose another name with -o, or replace it with --force"
            )
        if run.exists() and not is_run_file(run):
            raise RunExistsError(
                f"{run} is not a run file, so --force does not replace it; choose another name with -o"
            )
        mode = run.stat().st_mode & 0o777 if run.exists() else None
        discard(run)
    launch: dict[str, Any] = {
        "command": command,
        "kind": kind,
        "started_at": time.time(),
        "pid": os.getpid(),
        "host": socket.gethostname(),
    }
    try:
        if not run.parent.is_dir():
            run.parent.mkdir(parents=True)
        try:
            file = run.open("xb")
        except FileExistsError as error:
            raise RunExistsError(
                f"{run} was just created by another unstarve; choose another name with -o"
            ) from error
        with file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(f.header() + meta_chunk(_STREAM, "launch", launch) + reserve_chunk(_STREAM))
        parts_folder(run).mkdir()
    except OSError as error:
        discard(run)
        reason = error.strerror or error
        raise RunFileError(f"cannot write {run}: {reason}; choose another place with -o") from error


def finish(
    run: Path,
    exit_code: int | None,
    error: str | None = None,
    *,
    failure: str | None = None,
    limit: str | None = None,
) -> str | None:
    """Fold all parts into the run file and close it.

    `error` is about unstarve, `failure` about the command: the line that says why it failed. `limit` is the
    option that was to end the recording: ``--steps 100``.
    Returns a sentence if that failed: the parts then stay where they are, and the run can be read from them.
    """
    parts, silent = parts_folder(run), 0
    folded = run.with_name(run.name + ".folding")
    try:
        with folded.open("wb") as out:
            out.write(run.read_bytes())
            parts.stat()  # a folder that is gone holds no parts, which must not pass for a run without any
            for part in parts_of(parts):
                with part.open("rb") as source:
                    if source.read(f.HEADER.size) == f.header():
                        shutil.copyfileobj(source, out)
                    else:
                        silent += 1
            if silent and error is None:
                error = unwritten(silent)
            result = {"exit_code": exit_code, "error": error, "failure": failure, "limit": limit}
            out.write(meta_chunk(_STREAM, "result", result))
        put_in_place(folded, run)
    except OSError as failure:
        with contextlib.suppress(OSError):
            folded.unlink()
        problem = (
            f"the parts of {run} could not be joined ({failure.strerror or failure}); they stay in {parts}"
        )
        with contextlib.suppress(OSError):
            _close_in_place(run, exit_code, problem if error is None else f"{error}; {problem}")
        return problem
    shutil.rmtree(parts, ignore_errors=True)
    return None


def _close_in_place(run: Path, exit_code: int | None, error: str) -> None:
    """Write the result into the space that `claim` reserved: that works on a full disk."""
    result = reserve_chunk(_STREAM, "result", exit_code=exit_code, error=error, folded=False)
    with run.open("r+b") as file:
        file.seek(-len(result), os.SEEK_END)
        file.write(result)


def unwritten(processes: int) -> str:
    """The sentence about processes whose part is empty."""
    return f"{processes} process(es) could not write anything (disk full?)"


def discard(run: Path) -> None:
    """Remove a run and its parts."""
    shutil.rmtree(parts_folder(run), ignore_errors=True)
    with contextlib.suppress(OSError):
        run.unlink()


def is_live(path: Path) -> bool:
    """Whether an unstarve is recording into this run right now. Cheap: reads only the ends of the file."""
    try:
        launch = launch_of(path)
        return launch is not None and launcher_alive(launch) and result_of(path) is None
    except RunFileError:
        return False


def is_run_file(path: Path) -> bool:
    """Whether unstarve wrote this file."""
    with path.open("rb") as file:
        return file.read(len(f.MAGIC)) == f.MAGIC


def launch_of(path: Path) -> dict[str, Any] | None:
    """What the launcher wrote first; None if that cannot be read."""
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
    """The META of this name at this place, or None; `head` begins with the header of the file."""
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
    """Whether the unstarve that wrote this ``launch`` is still running, on this machine."""
    if launch.get("host") != socket.gethostname() or launch.get("pid") is None:
        return False
    try:
        launcher = psutil.Process(launch["pid"])
        # A process that started later has been given the pid of one that is gone.
        return (
            launcher.create_time() <= launch["started_at"] + 1 and launcher.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.Error:
        return False
