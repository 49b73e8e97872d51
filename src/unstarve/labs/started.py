"""A lab in the learner's folder: which one, what was drawn, and the verdict that was committed.

`lab.toml` holds it. The verdict is sealed before the learner changes anything, so that it is a diagnosis and
not a description of the fix; a seal that was written by hand does not fit.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unstarve.errors import UsageError
from unstarve.labs.all_labs import lab_named
from unstarve.labs.lab import Lab
from unstarve.outputs import write_output

STATE = "lab.toml"
ANSWERS = "answers.toml"
_SEEDS = 1 << 30
_ASK_FOR_CAUSE = """\
What slows training down? A cause of the report (disk, remote, cpu, collate, handoff, …), or
"fed" if the data is not guilty. Commit it with `unstarve lab check` before you fix anything."""


@dataclass(frozen=True, slots=True)
class Started:
    """A lab that somebody works on."""

    lab: Lab
    folder: Path
    seed: int
    verdict: str | None = None
    """As committed; None until then."""

    def answers(self) -> dict[str, Any]:
        """What the learner wrote. Raises `UsageError` when the file cannot be read."""
        path = self.folder / ANSWERS
        try:
            return tomllib.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            raise UsageError(
                f"{path} is missing; `unstarve lab start --force {self.lab.name}` makes it"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise UsageError(f"{path} cannot be read: {error}") from error

    def is_untouched(self) -> bool:
        """Whether the file to edit is still as it was copied."""
        assert self.lab.edited is not None
        path = self.folder / self.lab.edited
        return path.is_file() and path.read_bytes() == (self.lab.folder / self.lab.edited).read_bytes()

    def commit(self, verdict: str) -> Started:
        """Seal the verdict."""
        done = Started(self.lab, self.folder, self.seed, verdict)
        _write(done)
        return done


def start(name: str, folder: Path, *, force: bool = False, seed: int | None = None) -> Started:
    """Copy a lab into a folder and draw its fault.

    Raises `UsageError` for an unknown name, or for a folder that is not empty, unless `force` is given, which
    replaces the lab's own files.
    """
    lab = lab_named(name)
    if folder.exists() and any(folder.iterdir()) and not force:
        raise UsageError(f"{folder} is not empty; name another folder, or start over with --force")
    folder.mkdir(parents=True, exist_ok=True)
    started = Started(lab, folder, secrets.randbelow(_SEEDS) if seed is None else seed)
    for name, source in lab.sources(started.seed).items():
        shutil.copy(source, folder / name)
    write_output(folder / ANSWERS, _answer_sheet(lab))
    _write(started)
    return started


def started_in(folder: Path) -> Started:
    """The lab in this folder. Raises `UsageError` when there is none, or its state was changed by hand."""
    path = folder / STATE
    try:
        told = tomllib.loads(path.read_text("utf-8"))
        name, seed, verdict = told["name"], told["seed"], told.get("verdict") or None
        seal = told["seal"]
    except FileNotFoundError:
        raise UsageError(
            f"there is no lab in {folder.absolute()}; begin with `unstarve lab start NAME`"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError, KeyError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if not isinstance(seed, int) or seal != _seal(str(name), seed, verdict):
        raise UsageError(f"{path} was changed by hand; start over with `unstarve lab start --force {name}`")
    return Started(lab_named(str(name)), folder, seed, verdict)


def _write(started: Started) -> None:
    seal = _seal(started.lab.name, started.seed, started.verdict)
    write_output(
        started.folder / STATE,
        "# Written by `unstarve lab`; leave it as it is.\n"
        f'name = "{started.lab.name}"\n'
        f"seed = {started.seed}\n"
        f'verdict = "{started.verdict or ""}"\n'
        f'seal = "{seal}"\n',
    )


def _seal(name: str, seed: int, verdict: str | None) -> str:
    return hashlib.sha256(f"unstarve lab {name} {seed} {verdict or ''}".encode()).hexdigest()[:32]


def _answer_sheet(lab: Lab) -> str:
    lines = [f"# Your answers to the lab {lab.name}; `unstarve lab check` reads them.", ""]
    if lab.faults:
        asked = lab.verdict_text or _ASK_FOR_CAUSE
        lines += [*(f"# {line}" for line in asked.splitlines()), 'verdict = ""', ""]
    for question in lab.questions:
        lines += [*(f"# {line}" for line in question.text.splitlines()), f'{question.key} = ""', ""]
    return "\n".join(lines)
