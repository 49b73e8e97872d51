"""The user's files: a diff of what would change, and the change, made only where nothing is lost by it."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import io
import os
import shutil
import subprocess
import tempfile
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from unstarve.advise.patch.wish import Wish
from unstarve.errors import MissingExtraError, NotPatchableError


@dataclass(frozen=True, slots=True)
class FilePatch:
    """One file before and after; its text is kept as bytes, in the encoding of the file."""

    path: Path
    before: bytes
    after: bytes
    diff: str
    """Unified, with paths from the current folder: ``git apply`` and ``patch -p1`` take it."""
    notes: tuple[str, ...]


def check_extra() -> None:
    """Raise `MissingExtraError` where the package that reads the user's source is not installed."""
    if find_spec("libcst") is None:
        raise MissingExtraError("changing source needs libcst: pip install 'unstarve[tune]'")


def file_digest(path: Path) -> str:
    """Tells whether a file is still what it was."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_patch(path: Path, digest: str | None, wishes: Sequence[Wish]) -> FilePatch:
    """The change to one file, which has `digest` when it still is as it was run.

    Raises `NotPatchableError` when it was changed since, or a wish cannot be fulfilled; nothing is written.
    """
    check_extra()
    from unstarve.advise.patch.rewrite import rewrite

    shown = _shown(path)
    try:
        before = path.read_bytes()
        encoding = tokenize.detect_encoding(io.BytesIO(before).readline)[0]
        source = before.decode(encoding)
    except OSError as error:
        raise NotPatchableError(f"cannot read {shown}: {error.strerror or error}") from error
    except (SyntaxError, UnicodeDecodeError) as error:
        raise NotPatchableError(f"{shown} cannot be read as text: {error}") from error
    if digest is not None and hashlib.sha256(before).hexdigest() != digest:
        raise NotPatchableError(f"{shown} has changed since it was run; run it again")
    try:
        changed = rewrite(source, wishes)
    except NotPatchableError as error:
        lines = ", ".join(str(wish.place.line) for wish in wishes)
        raise NotPatchableError(f"{shown}, line {lines}: {error}") from error
    notes = tuple(f"{shown}, {note}" for note in changed.notes)
    return FilePatch(
        path, before, changed.source.encode(encoding), _diff(shown, source, changed.source), notes
    )


def write_patches(patches: Sequence[FilePatch]) -> None:
    """Change the files. Raises `NotPatchableError`, and changes none, when one must not be changed.

    Each file is replaced whole or not at all, and only where git could bring the old one back: a file with
    changes that are not committed is refused. Where there is no git there is nothing to ask.
    """
    for patch in patches:
        shown = _shown(patch.path)
        if patch.path.read_bytes() != patch.before:
            raise NotPatchableError(f"{shown} has changed just now, so nothing was written; run it again")
        if _is_dirty(patch.path):
            raise NotPatchableError(
                f"{shown} has changes that are not committed, so nothing was written; commit them first"
            )
    for patch in patches:
        _replace(patch.path.resolve(), patch.after)


def _diff(shown: str, before: str, after: str) -> str:
    lines = difflib.unified_diff(
        io.StringIO(before, newline="").readlines(),
        io.StringIO(after, newline="").readlines(),
        f"a/{shown}",
        f"b/{shown}",
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _is_dirty(path: Path) -> bool:
    """Whether git has another version of the file, or none, of those it would ever have."""
    if shutil.which("git") is None:
        return False
    command = ["git", "-C", str(path.resolve().parent), "status", "--porcelain", "--", path.resolve().name]
    done = subprocess.run(command, capture_output=True, check=False)
    return done.returncode == 0 and bool(done.stdout.strip())


def _replace(path: Path, content: bytes) -> None:
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise NotPatchableError(f"cannot write {_shown(path)}: {error.strerror or error}") from error
    new = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, new)
        new.replace(path)
    except OSError as error:
        raise NotPatchableError(f"cannot write {_shown(path)}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            new.unlink()


def _shown(path: Path) -> str:
    """From the current folder where the file lies below it."""
    whole = path.absolute()
    return str(whole.relative_to(Path.cwd())) if whole.is_relative_to(Path.cwd()) else str(whole)
