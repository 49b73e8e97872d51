"""Tuned loaders → patches of the user's files, written only where nothing can be lost."""

from __future__ import annotations

import difflib
import hashlib
import io
import os
import re
import tokenize
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from unstarve.advise.patch.user_files import (
    CallChange,
    project_root,
    refuse_uncommitted,
    what_to_set,
    why_not_yours,
)
from unstarve.errors import MissingExtraError, NotPatchableError
from unstarve.model.tune_run import TunedLoader
from unstarve.outputs import check_output, write_output


@dataclass(frozen=True, slots=True)
class FilePatch:
    """One file before and after, as bytes in its own encoding."""

    path: Path
    before: bytes
    after: bytes
    diff: bytes
    """Unified diff with paths from the top of the project, for ``git apply`` and ``patch -p1``."""
    notes: tuple[str, ...]


def check_extra() -> None:
    """Raise `MissingExtraError` when libcst, which parses the user's source, is not installed."""
    if find_spec("libcst") is None:
        raise MissingExtraError("changing source needs libcst: pip install 'unstarve[tune]'")


def file_digest(path: Path) -> str:
    """A digest that shows whether a file has changed."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def patches_for(loaders: Sequence[TunedLoader]) -> tuple[list[FilePatch], list[str]]:
    """One patch per file for all loaders that should change, and a sentence for each that cannot.

    Nothing is written. Raises `MissingExtraError` when libcst is not installed.
    """
    files: defaultdict[Path, list[TunedLoader]] = defaultdict(list)
    problems: list[str] = []
    for loader in loaders:
        if loader.change():
            try:
                path = _file_of(loader)
                _patch_for(path, [loader])  # alone: a problem with one must not affect the others
                files[path].append(loader)
            except NotPatchableError as error:
                problems.append(str(error))
    return [_patch_for(path, found) for path, found in files.items()], problems


def _file_of(loader: TunedLoader) -> Path:
    """The file that creates the loader, when a change there affects no other loader."""
    place = loader.place
    if place is None or loader.digest is None:
        raise NotPatchableError(
            f"{loader.name}: the file that creates this loader is unknown or cannot be read"
        )
    if place.maker is not None and place.maker.framework != "lightning":
        by_hand = what_to_set(place, loader.change())
        raise NotPatchableError(f"{loader.name}: {place.maker.framework} creates this loader: {by_hand}")
    if loader.datasets > 1:
        raise NotPatchableError(
            f"{loader.name}: line {place.line} of {place.file} creates loaders of {loader.datasets} datasets "
            "and all of them would change; edit it by hand, or use --save and run --with"
        )
    return Path(place.file)


def _patch_for(path: Path, loaders: Sequence[TunedLoader]) -> FilePatch:
    changes = [CallChange(one.place, one.kind, one.change()) for one in loaders if one.place is not None]
    return make_patch(path, loaders[0].digest, changes)


def make_patch(path: Path, digest: str | None, changes: Sequence[CallChange]) -> FilePatch:
    """The patch of one file; `digest` is its digest when it was run. Nothing is written.

    Raises `NotPatchableError` when the file is not the user's own, has changed since, or cannot be rewritten.
    """
    check_extra()
    from unstarve.advise.patch.rewrite_source import rewrite

    shown = _shown(path)
    foreign = why_not_yours(path)
    if foreign is not None:
        by_hand = [what_to_set(change.place, change.settings) for change in changes]
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
        changed = rewrite(source, changes)
    except NotPatchableError as error:
        lines = ", ".join(str(change.place.line) for change in changes)
        raise NotPatchableError(f"{shown}, line {lines}: {error}") from error
    notes = tuple(f"{shown}, {note}" for note in changed.notes)
    after = changed.source.encode(encoding)
    return FilePatch(path, before, after, _diff(path, before, after), notes)


def write_patches(patches: Sequence[FilePatch]) -> None:
    """Write the patched files, all or none: raises `NotPatchableError` or `OutputError` before writing any.

    Each file is replaced atomically. In a git repository a file with uncommitted changes is refused, so that
    git can always restore the old one.
    """
    for patch in patches:
        shown = _shown(patch.path)
        if patch.path.read_bytes() != patch.before:
            raise NotPatchableError(f"{shown} changed in the meantime, so nothing was written; run it again")
        foreign = why_not_yours(patch.path)
        if foreign is not None:
            raise NotPatchableError(f"{shown} {foreign}, so nothing was written")
        refuse_uncommitted(patch.path, shown)
        check_output(patch.path)
    for patch in patches:
        write_output(patch.path, patch.after)


def _diff(path: Path, before: bytes, after: bytes) -> bytes:
    """A diff as git writes it: the first line makes the paths relative to the repository."""
    name = os.fsencode(path.resolve().relative_to(project_root()))
    old, new = _quoted(b"a/" + name), _quoted(b"b/" + name)
    end = b"\t" if b" " in name else b""  # otherwise a space would end the name
    lines = difflib.diff_bytes(difflib.unified_diff, _lines(before), _lines(after), old + end, new + end)
    return b"diff --git %s %s\n" % (old, new) + b"".join(
        line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in lines
    )


def _lines(content: bytes) -> list[bytes]:
    """Lines as git and patch count them."""
    return io.BytesIO(content).readlines()


def _quoted(name: bytes) -> bytes:
    """A name as git and patch read it: C-quoted if it has control characters, quotes or backslashes."""
    if not re.search(rb'[\x00-\x1f\x7f"\\]', name):
        return name
    return b'"%s"' % re.sub(rb'[\x00-\x1f\x7f"\\]', lambda found: b"\\%03o" % found.group()[0], name)


def _shown(path: Path) -> str:
    """The path, relative to the current folder if the file is below it."""
    whole = path.absolute()
    return str(whole.relative_to(Path.cwd())) if whole.is_relative_to(Path.cwd()) else str(whole)
