"""The user's files: which may be changed, whether git can restore them, and what to set by hand elsewhere."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from unstarve.advise.framework_words import as_arguments, words_of
from unstarve.errors import NotPatchableError
from unstarve.model.loaders import Maker
from unstarve.model.parts import PARTS
from unstarve.model.saved import Place, Setting

_PACKAGES = ("site-packages", "dist-packages")
_MARKS = ("pyvenv.cfg", "conda-meta")
"""Files that mark the folder of an environment."""
WITHOUT_CHANGE = "save the settings with --save FILE.toml and use them: unstarve run --with FILE.toml CMD…"


@dataclass(frozen=True, slots=True)
class CallChange:
    """Settings wanted for the loader of class `kind` that is created at `place`."""

    place: Place
    kind: str
    settings: Mapping[str, Setting]


def repository_of(folder: Path) -> Path | None:
    """The top of the git repository around a folder, found without git, which may refuse to answer."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), None)


def project_root() -> Path:
    """The repository around the working folder, else the working folder."""
    here = Path.cwd().resolve()
    return repository_of(here) or here


def why_not_yours(path: Path) -> str | None:
    """Why a file must not be changed, to follow its name; None when it is the user's own."""
    real = path.resolve()
    if is_installed(real):
        return "belongs to an installed package, which unstarve does not change"
    if not real.is_relative_to(project_root()):
        return f"is outside your project {project_root()}"
    try:
        found = real.stat()
    except OSError:
        return None  # reading it will report the problem
    if found.st_uid != os.geteuid():
        return "belongs to another user"
    if not stat.S_IMODE(found.st_mode) & 0o222 or not os.access(real, os.W_OK):  # root may write any file
        return "is read-only"
    return None


def is_installed(path: Path) -> bool:
    """Whether a file is part of a Python environment."""
    return any(
        folder.name in _PACKAGES or any((folder / mark).exists() for mark in _MARKS)
        for folder in path.parents
    )


def package_of(path: Path) -> str:
    """The top-level package that a file belongs to: ``accelerate``."""
    for at in range(len(path.parts) - 2, -1, -1):
        if path.parts[at] in _PACKAGES:
            return path.parts[at + 1].removesuffix(".py")
    top = path
    while (top.parent / "__init__.py").exists():
        top = top.parent
    return top.stem


def refuse_uncommitted(path: Path, shown: str) -> None:
    """Raise `NotPatchableError` unless the file is committed as it is, or in no repository."""
    real = path.resolve()
    if repository_of(real.parent) is None:
        return
    # H: git tracks the file and its changes; any other letter means that it was told to ignore them.
    if not _git(real, shown, "ls-files", "-v").startswith(b"H "):
        raise NotPatchableError(
            f"{shown} is not committed (git does not track it, or was told to ignore its changes),"
            " so nothing was written; commit it first, or apply the diff of --patch yourself"
        )
    if _git(real, shown, "status", "--porcelain"):
        raise NotPatchableError(f"{shown} has uncommitted changes, so nothing was written; commit them first")


def _git(path: Path, shown: str, *words: str) -> bytes:
    """What git says about one file. Raises `NotPatchableError` when it does not answer."""
    how = ("--no-optional-locks", "--literal-pathspecs", "-C", str(path.parent))
    try:
        done = subprocess.run(["git", *how, *words, "--", path.name], capture_output=True, check=False)
    except OSError as error:
        why = f"git cannot be started: {error.strerror or error}"
    else:
        if done.returncode == 0:
            return done.stdout
        said = done.stderr.decode(errors="replace").strip().splitlines()
        why = said[0] if said else f"git ended with exit code {done.returncode}"
    raise NotPatchableError(
        f"git cannot tell whether {shown} is committed ({why}), so nothing was written;"
        " apply the diff of --patch yourself"
    )


def what_to_set(place: Place, settings: Mapping[str, Setting]) -> str:
    """How to set a loader whose file is not changed, in its framework's words; without a full stop."""
    if any(map(settings.get, PARTS)):  # no library has an argument for this
        return WITHOUT_CHANGE
    path = Path(place.file).resolve()
    maker = place.maker
    if maker is None and is_installed(path):
        maker = Maker(package_of(path))
    if maker is None:
        return f"set {as_arguments(settings)} in line {place.line} yourself, or {WITHOUT_CHANGE}"
    lines = words_of(maker, settings).splitlines()
    code = " ".join(line for line in lines if not line.startswith("# "))
    notes = ", ".join(line.removeprefix("# ") for line in lines if line.startswith("# "))
    return f"use {code}{f' ({notes})' if notes else ''}, or {WITHOUT_CHANGE}"
