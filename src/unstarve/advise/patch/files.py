"""The user's files: a diff of what would change, and the change, made only where nothing is lost by it."""

from __future__ import annotations

import difflib
import hashlib
import io
import os
import re
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from unstarve.advise.patch.by_hand import what_to_set
from unstarve.advise.patch.project import project_root, refuse_uncommitted, why_not_yours
from unstarve.advise.patch.wish import Wish
from unstarve.errors import MissingExtraError, NotPatchableError
from unstarve.outputs import check_output, write_output


@dataclass(frozen=True, slots=True)
class FilePatch:
    """One file before and after; its text is kept as bytes, in the encoding of the file."""

    path: Path
    before: bytes
    after: bytes
    diff: bytes
    """Unified, with paths from the top of the project: ``git apply`` and ``patch -p1`` take it."""
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

    Raises `NotPatchableError` when it is not the user's own, was changed since, or a wish cannot be
    fulfilled; nothing is written.
    """
    check_extra()
    from unstarve.advise.patch.rewrite import rewrite

    shown = _shown(path)
    foreign = why_not_yours(path)
    if foreign is not None:
        by_hand = [what_to_set(path.resolve(), wish.place.line, wish.settings) for wish in wishes]
        raise NotPatchableError(f"{shown} {foreign}: {'; '.join(by_hand)}")
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
    after = changed.source.encode(encoding)
    return FilePatch(path, before, after, _diff(path, before, after), notes)


def write_patches(patches: Sequence[FilePatch]) -> None:
    """Change the files. Raises `NotPatchableError` or `OutputError`, and changes none, when one must stay.

    Each file is replaced whole or not at all, and in a repository only where git could bring the old one
    back: a file that it does not have as it is now is refused.
    """
    for patch in patches:
        shown = _shown(patch.path)
        if patch.path.read_bytes() != patch.before:
            raise NotPatchableError(f"{shown} has changed just now, so nothing was written; run it again")
        foreign = why_not_yours(patch.path)
        if foreign is not None:
            raise NotPatchableError(f"{shown} {foreign}, so nothing was written")
        refuse_uncommitted(patch.path, shown)
        check_output(patch.path)
    for patch in patches:
        write_output(patch.path, patch.after)


def _diff(path: Path, before: bytes, after: bytes) -> bytes:
    """As git writes one: its first line makes the paths those of the repository wherever git is called."""
    name = os.fsencode(path.resolve().relative_to(project_root()))
    old, new = _quoted(b"a/" + name), _quoted(b"b/" + name)
    end = b"\t" if b" " in name else b""  # else a space would end the name
    lines = difflib.diff_bytes(difflib.unified_diff, _lines(before), _lines(after), old + end, new + end)
    return b"diff --git %s %s\n" % (old, new) + b"".join(
        line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in lines
    )


def _lines(content: bytes) -> list[bytes]:
    """As git and patch count them."""
    return io.BytesIO(content).readlines()


def _quoted(name: bytes) -> bytes:
    """As git and patch read a name: with a control character, a quote or a backslash, C's way."""
    if not re.search(rb'[\x00-\x1f\x7f"\\]', name):
        return name
    return b'"%s"' % re.sub(rb'[\x00-\x1f\x7f"\\]', lambda found: b"\\%03o" % found.group()[0], name)


def _shown(path: Path) -> str:
    """From the current folder where the file lies below it."""
    whole = path.absolute()
    return str(whole.relative_to(Path.cwd())) if whole.is_relative_to(Path.cwd()) else str(whole)
