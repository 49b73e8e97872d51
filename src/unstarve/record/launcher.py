"""The launcher's side of a run file: claim the name, fold the parts in at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any

from unstarve.errors import RunExistsError, RunFileError
from unstarve.outputs import put_in_place
from unstarve.record import format as f
from unstarve.record.reader import is_live, is_run_file
from unstarve.record.writer import meta_chunk, reserve_chunk

_STREAM = 0


def parts_folder(run: Path) -> Path:
    """Where the processes of a run that is being recorded append their events."""
    return run.with_name(run.name + f.PARTS_SUFFIX)


def run_of_parts(parts: Path) -> Path:
    """The run that a parts folder belongs to."""
    return parts.with_name(parts.name.removesuffix(f.PARTS_SUFFIX))


def claim(run: Path, command: list[str], kind: str, *, force: bool = False) -> None:
    """Take the name for a new run: the file and its parts folder exist afterwards.

    Raises `RunExistsError` when the name is taken (``force`` replaces a run, but never one that is
    being recorded), `RunFileError` when the folder cannot be written.
    """
    if run.is_dir():
        raise RunFileError(f"{run} is a folder; give the name of a file to write, like {run}/name{f.SUFFIX}")
    mode = None
    if run.exists() or parts_folder(run).exists():
        if is_live(run):
            raise RunExistsError(
                f"{run} is being recorded by another unstarve right now; give another name with -o"
            )
        if not force:
            raise RunExistsError(f"{run} exists already; give another name with -o, or --force to replace it")
        if run.exists() and not is_run_file(run):
            raise RunExistsError(
                f"{run} is not a run file, so --force does not replace it; give another name"
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
                f"{run} was taken just now by another unstarve; give another name"
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


def finish(run: Path, exit_code: int | None, error: str | None = None) -> str | None:
    """Fold all parts into the run file and close it.

    Returns a sentence when that failed: the parts then stay where they are and the run reads the same.
    """
    parts, silent = parts_folder(run), 0
    folded = run.with_name(run.name + ".folding")
    try:
        with folded.open("wb") as out:
            out.write(run.read_bytes())
            for part in sorted(part for part in parts.iterdir() if part.suffix == f.PART_SUFFIX):
                with part.open("rb") as source:
                    if source.read(f.HEADER.size) == f.header():
                        shutil.copyfileobj(source, out)
                    else:
                        silent += 1
            if silent and error is None:
                error = f"{silent} process(es) could not write anything (disk full?)"
            out.write(meta_chunk(_STREAM, "result", {"exit_code": exit_code, "error": error}))
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
    """Write the result into the space that `claim` took for it: that needs no room on a full disk."""
    result = reserve_chunk(_STREAM, "result", exit_code=exit_code, error=error, folded=False)
    with run.open("r+b") as file:
        file.seek(-len(result), os.SEEK_END)
        file.write(result)


def discard(run: Path) -> None:
    """Remove a run and its parts."""
    shutil.rmtree(parts_folder(run), ignore_errors=True)
    with contextlib.suppress(OSError):
        run.unlink()
