"""`unstarve check TARGET`: find what will go wrong with the loaders of a script before it does."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from unstarve import __version__
from unstarve.checks.ignoring import check_ids, kept
from unstarve.checks.parts import TARGET_ERROR, read_parts
from unstarve.checks.source.all_checks import SOURCE_CHECKS, check_paths
from unstarve.checks.user_config import CheckConfig, read_config
from unstarve.cli.examples import examples
from unstarve.cli.output_files import STDOUT, JsonTo, check_json, write_file, write_json
from unstarve.errors import StoppedError, UsageError
from unstarve.launch.bootstrap_check import why_unseen
from unstarve.launch.command import launch, other_python, resolve
from unstarve.launch.command_errors import command_error
from unstarve.model.check_report import CheckReport, merged
from unstarve.model.finding import Severity
from unstarve.model.launch_settings import CheckSettings, LaunchSettings
from unstarve.present.exports import check_json as json_view
from unstarve.present.exports.check_markdown import check_markdown
from unstarve.present.exports.github_annotations import github_annotations
from unstarve.present.exports.sarif import sarif
from unstarve.present.terminal.check_card import print_check
from unstarve.present.terminal.screen import screen
from unstarve.words import duration, printable

_NAMED = re.compile(r"(?:[\w./~-]+\.py|[^\W\d]\w*(?:\.\w+)*):[^\W\d]\w*(?:\.\w+)*")


class FailOn(StrEnum):
    """The mildest severity that makes the exit code 1."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    NEVER = "never"

    @property
    def severity(self) -> Severity | None:
        return None if self is FailOn.NEVER else Severity(self.value)


@examples(
    ("Check the loaders of a script:", "unstarve check train.py --epochs 3"),
    ("Check one loader:", "unstarve check data.py:train_loader"),
    (
        "Write what a code host shows next to the lines:",
        "unstarve check --sarif check.sarif package.data:make_loaders",
    ),
    ("Read source files without running them:", "unstarve check --static src/"),
)
def check(
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET [ARGS…]",
            help="A script with its arguments, or module:attribute or file.py:attribute: a loader, "
            "a dataset, or a function that returns one or several of them. With --static: files and "
            "folders.",
            show_default=False,
        ),
    ],
    static: Annotated[
        bool, typer.Option("--static", help="Read source files instead of running anything.")
    ] = False,
    json_to: JsonTo = None,
    markdown_to: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Write Markdown; - prints it to standard output."),
    ] = None,
    sarif_to: Annotated[
        Path | None,
        typer.Option(
            "--sarif", metavar="FILE", help="Write SARIF 2.1.0, for code hosts and editors; - prints it."
        ),
    ] = None,
    github: Annotated[
        bool, typer.Option("--github", help="Print annotations for GitHub Actions to standard output.")
    ] = False,
    fail_on: Annotated[
        FailOn | None,
        typer.Option(
            "--fail-on", help="Exit with 1 if there is a finding this severe or worse. [default: warning]"
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="ID", help="Leave out a check; may be given several times."),
    ] = None,
    samples: Annotated[
        int,
        typer.Option(
            "--samples", min=0, metavar="N", help="Time N samples of each dataset alone, name slow ones."
        ),
    ] = 0,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", min=1, metavar="SECONDS", help="Give up after this long."),
    ] = 120.0,
) -> None:
    """Find what will go wrong with loaders before it does: wrong data, crashes, hangs, slow loading.

    A script runs until its first loader has delivered 3 batches and is then ended, before it saves anything.
    Every loader that exists by then is checked. What the script prints goes to standard error.

    Exit code: 0 if nothing was found, 1 if something was, 2 if the target could not be checked.
    """
    _check_outputs(json_to, markdown_to, sarif_to, github)
    config = read_config(_folder(target))
    ignored = check_ids(ignore or ()) | config.ignore
    found, failure = (
        (_read(target), None) if static else _run(target, CheckSettings(samples=samples), timeout_s)
    )
    report = dataclasses.replace(found, findings=tuple(kept(found.findings, ignored)))
    _show(report, failure, json_to, markdown_to, sarif_to, github)
    raise typer.Exit(_exit_code(report, _severity(fail_on, config), failed=failure is not None))


# --- reading, or running, the target ---


def _read(paths: Sequence[str]) -> CheckReport:
    checked = check_paths([Path(path) for path in paths])
    unread = [f"{file} is not valid Python for this version, and was not read" for file in checked.not_python]
    return CheckReport(
        " ".join(paths),
        checked.findings,
        checks=len(SOURCE_CHECKS),
        files=checked.files,
        problems=tuple(unread),
    )


def _run(target: Sequence[str], settings: CheckSettings, timeout_s: float) -> tuple[CheckReport, str | None]:
    """Run the target until it has been checked: the report, and why it could not be checked in full.

    No temporary file is left behind, whatever ends the target. Raises `UsageError` for a target that does not
    exist, `StoppedError` on Ctrl-C.
    """
    argv = _argv(target)
    named = is_named(target)
    shown = target[0] if named else next((one for one in target if one.endswith(".py")), " ".join(target))
    if not named and (note := other_python(target)) is not None:
        _say(note.replace("unstarve run python", "unstarve check python"))
    _say(f"checking {shown}" if named else f"running {shown} until its first batches")
    folder = Path(tempfile.mkdtemp(prefix="unstarve-check-"))
    interrupted: list[bool] = []
    exit_code: int | None = None
    try:
        launching = LaunchSettings(parts=str(folder), version=__version__, check=settings)
        with contextlib.suppress(TimeoutError):
            exit_code = launch(
                argv,
                launching,
                lambda: interrupted.append(True),
                timeout_s=timeout_s,
                stdout=sys.stderr.fileno(),
            )
        if interrupted:
            raise StoppedError("stopped; nothing was reported and nothing is left behind")
        if (wrong := folder / TARGET_ERROR).exists():
            raise UsageError(wrong.read_text("utf-8"))
        report = merged(shown, read_parts(folder))
        reason = command_error(folder)
        unseen = None if report.loaders else why_unseen(folder, argv)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if exit_code is None:
        return report, _too_late(report, timeout_s)
    if exit_code and not (exit_code == -signal.SIGTERM and report.stopped_at is not None):
        return report, _failed(report, exit_code, reason)
    if not report.loaders:
        return report, unseen or f"{shown} created no DataLoader, so nothing was checked"
    return report, None


def is_named(target: Sequence[str]) -> bool:
    """Whether the target is ``module:attribute`` or ``file.py:attribute``.

    >>> is_named(["data.py:train_loader"]), is_named(["train.py"]), is_named(["package.data:loaders"])
    (True, False, True)
    """
    return len(target) == 1 and _NAMED.fullmatch(target[0]) is not None and not Path(target[0]).exists()


def _argv(target: Sequence[str]) -> list[str]:
    if is_named(target):
        return [sys.executable, "-m", "unstarve.checks.named_target", *target]
    if ":" in target[0] and not Path(target[0]).exists():
        raise UsageError(
            f"{target[0]} is no target; name one object, without arguments: data.py:train_loader"
        )
    return resolve(target)


def _folder(target: Sequence[str]) -> Path:
    """Where the search for pyproject.toml begins: beside the script, in the folder to read, or here."""
    if Path(target[0]).is_dir():
        return Path(target[0])
    words = [target[0].rpartition(":")[0]] if is_named(target) else target
    return next((Path(word).parent for word in words if word.endswith(".py")), Path())


def _too_late(report: CheckReport, timeout_s: float) -> str:
    limit = f"within {duration(timeout_s)}; allow more with --timeout SECONDS"
    if report.stopped_at is not None:
        return f"the checks of {report.target} did not end {limit}"
    if report.loaders:
        return f"{report.loaders[0].name} of {report.target} did not deliver its first batches {limit}"
    return f"{report.target} created no loader {limit}"


def _failed(report: CheckReport, exit_code: int, reason: str | None) -> str:
    how = f"was ended by signal {-exit_code}" if exit_code < 0 else f"failed with exit code {exit_code}"
    told = "" if reason is None else f": {reason}"
    return f"{report.target} {how} before its loaders were checked in full{told}"


# --- showing the result ---


def _check_outputs(
    json_to: Path | None, markdown_to: Path | None, sarif_to: Path | None, github: bool
) -> None:
    for to in (json_to, markdown_to, sarif_to):
        check_json(to)
    if [json_to, markdown_to, sarif_to].count(STDOUT) + github > 1:
        raise UsageError("only one of --json -, --markdown -, --sarif - and --github can print")


def _show(
    report: CheckReport,
    failure: str | None,
    json_to: Path | None,
    markdown_to: Path | None,
    sarif_to: Path | None,
    github: bool,
) -> None:
    """Write what was asked for; the list goes to standard output unless something else does."""
    told = report if failure is None else dataclasses.replace(report, problems=(*report.problems, failure))
    print_check(told, screen(stderr=github or STDOUT in (json_to, markdown_to, sarif_to)))
    if json_to is not None:
        write_json(json_to, json_view.check_json(told, __version__))
    if sarif_to is not None:
        write_json(sarif_to, sarif(told.findings, __version__, told.target))
    if markdown_to is not None:
        write_file(markdown_to, check_markdown(told))
    if github:
        typer.echo(github_annotations(told.findings), nl=False)


def _severity(fail_on: FailOn | None, config: CheckConfig) -> Severity | None:
    """The mildest severity that fails: of the command line, else of the project, else a warning."""
    return (fail_on or FailOn(config.fail_on or FailOn.WARNING)).severity


def _exit_code(report: CheckReport, severity: Severity | None, *, failed: bool) -> int:
    return 1 if report.at_least(severity) else 2 if failed else 0


def _say(text: str) -> None:
    typer.echo(printable(f"unstarve: {text}"), err=True)
