"""A lab in the learner's folder: which one, what was drawn, and what was committed.

`lab.toml` holds it. A prediction is sealed before anything is measured. The verdict is sealed before the
learner changes anything, so that it is a diagnosis and not a description of the fix. A seal that was written
by hand does not fit.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
    """As committed; None until then. In a lab of several cases, one cause for each: ``cpu disk fed``."""
    prediction: str | None = None
    """The same, of labs of several cases, before anything was measured."""

    def answers(self) -> dict[str, Any]:
        """What the learner wrote. Raises `UsageError` when the file cannot be read."""
        path = self.folder / ANSWERS
        try:
            return tomllib.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            raise UsageError(
                f"{path} is missing; `unstarve lab start --force {self.lab.name}` makes it"
            ) from None
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{path}: {error}; put words in quotes") from error
        except (UnicodeDecodeError, OSError) as error:
            raise UsageError(f"{path} cannot be read: {error}") from error

    def is_untouched(self) -> bool:
        """Whether the file to edit is still as it was copied."""
        assert self.lab.edited is not None
        path = self.folder / self.lab.edited
        return path.is_file() and path.read_bytes() == (self.lab.folder / self.lab.edited).read_bytes()

    @contextmanager
    def original(self) -> Iterator[Path]:
        """A folder with the lab's own files until the block ends, on the same disk as the learner's."""
        with tempfile.TemporaryDirectory(prefix=".check-", dir=self.folder) as temporary:
            folder = Path(temporary)
            for name, source in self.lab.sources(self.seed).items():
                shutil.copyfile(source, folder / name)
            shutil.copyfile(self.folder / STATE, folder / STATE)
            yield folder

    def commit(self, verdict: str) -> Started:
        """Seal the verdict."""
        done = replace(self, verdict=verdict)
        _write(done)
        return done

    def predict(self, prediction: str) -> Started:
        """Seal the prediction."""
        done = replace(self, prediction=prediction)
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
        name, seed, seal = told["name"], told["seed"], told["seal"]
        verdict, prediction = told.get("verdict") or None, told.get("prediction") or None
    except FileNotFoundError:
        raise UsageError(
            f"there is no lab in {folder.absolute()}; begin with `unstarve lab start NAME`"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError, KeyError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if not isinstance(seed, int) or seal != _seal(str(name), seed, verdict, prediction):
        raise UsageError(f"{path} was changed by hand; start over with `unstarve lab start --force {name}`")
    return Started(lab_named(str(name)), folder, seed, verdict, prediction)


def _write(started: Started) -> None:
    seal = _seal(started.lab.name, started.seed, started.verdict, started.prediction)
    write_output(
        started.folder / STATE,
        "# Written by `unstarve lab`; leave it as it is.\n"
        f'name = "{started.lab.name}"\n'
        f"seed = {started.seed}\n"
        f'prediction = "{started.prediction or ""}"\n'
        f'verdict = "{started.verdict or ""}"\n'
        f'seal = "{seal}"\n',
    )


def _seal(name: str, seed: int, verdict: str | None, prediction: str | None) -> str:
    sealed = f"unstarve lab {name} {seed} {verdict or ''} {prediction or ''}"
    return hashlib.sha256(sealed.encode()).hexdigest()[:32]


def _answer_sheet(lab: Lab) -> str:
    lines = [f"# Your answers to the lab {lab.name}; `unstarve lab check` reads them.", ""]
    if lab.cases:
        lines += [
            '# Predict before you measure: a cause (disk, remote, cpu, collate, handoff), or "fed". Commit',
            "# your predictions with `unstarve lab check`. They may be wrong.",
            *(f'{key} = ""' for key in lab.keys("prediction")),
            "",
        ]
    if lab.faults:
        asked = lab.verdict_text or _ASK_FOR_CAUSE
        lines += [*(f"# {line}" for line in asked.splitlines())]
        lines += [*(f'{key} = ""' for key in lab.keys("verdict")), ""]
    for question in lab.questions:
        lines += [*(f"# {line}" for line in question.text.splitlines()), f'{question.key} = ""', ""]
    return "\n".join(lines)
