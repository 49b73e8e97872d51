"""Shared by `run` and `ideal`: record a command into a run file, then report on it."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from unstarve import __version__
from unstarve.api import diagnose, views_of
from unstarve.cli.output_files import check_json, write_file, write_json
from unstarve.cli.overwriting import written_meanwhile
from unstarve.collect.perf_counters import why_not_perf
from unstarve.errors import CommandNotFoundError, RunExistsError, RunFileError
from unstarve.importers.attach_profile import keep_profile, merge_spans
from unstarve.launch.bootstrap_check import why_unseen
from unstarve.launch.command import launch, other_python, resolve
from unstarve.launch.command_errors import command_error
from unstarve.launch.hang_watch import HangWatch
from unstarve.launch.io_library import why_not_io
from unstarve.launch.state_folder import state_folder
from unstarve.launch.worker_deaths import Aftermath
from unstarve.launch.written_files import WrittenFiles, files_written_since
from unstarve.model import SavedLoader
from unstarve.model.launch_settings import IdealSettings, LaunchSettings, ProfileSettings
from unstarve.outputs import check_output, real_file
from unstarve.predict.machine_times import known_times, of_this_machine
from unstarve.present.exports import report_json as json_view
from unstarve.present.page.html_page import report_page
from unstarve.present.terminal.report_card import print_report
from unstarve.present.terminal.screen import screen
from unstarve.record.breakage_meta import keep_breakage
from unstarve.record.fold import DEFAULT_MAX_BYTES, KeepSmall, segment_bytes
from unstarve.record.format import SUFFIX
from unstarve.record.machine_meta import keep_machine
from unstarve.record.read_counts import keep_reads, keep_refusal
from unstarve.record.run_file import claim, discard, finish, parts_folder
from unstarve.record.run_reader import read_run
from unstarve.record.settings_file import read_saved, shown_place
from unstarve.words import printable

Command = Annotated[
    list[str],
    typer.Argument(
        metavar="CMD…",
        help="Command to run: a script (train.py), -m MODULE or an executable (torchrun, accelerate …), "
        "with its own arguments.",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="RUN", help="Run file to write. [default: SCRIPT-TIME.unstarve]"),
]
HtmlFile = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Also write the report as a self-contained HTML page."),
]
With = Annotated[
    Path | None,
    typer.Option(
        "--with",
        metavar="FILE.toml",
        help="Apply the loader settings that `unstarve tune --save` wrote.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not print the report.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace the run file if it exists.")]


_BROKE = ("worker-killed", "shm-full", "cuda-out-of-memory")
"""Findings that explain why the command failed: said with --quiet, too. A timeout is told in any case."""


@dataclass(frozen=True, slots=True)
class Request:
    """One recording, as the command line asks for it."""

    command: Sequence[str]
    kind: str
    output: Path | None = None
    json_to: Path | None = None
    html_file: Path | None = None
    quiet: bool = False
    force: bool = False
    steps: int | None = None
    stop_after: int | None = None
    ideal: IdealSettings | None = None
    engine: str | None = None
    settings_file: Path | None = None
    profile: ProfileSettings | None = None
    io: bool = False
    perf: bool = False
    ledger: bool = False
    copies: bool = False
    memory: bool = False
    max_bytes: int = DEFAULT_MAX_BYTES
    hang_after_s: float | None = None
    """Report a wait for a batch that lasts longer; None: do not watch, and keep no pages."""
    raises_on_hang: bool = False
    caution: str | None = None
    """A warning to print before the command starts. With one, the files it wrote are listed at the end."""


def record_and_show(request: Request) -> NoReturn:
    """Record, report on standard error, and leave with the command's own exit code."""
    check_json(request.json_to)
    check_output(request.html_file)
    began_ns = time.time_ns()
    run_path, exit_code = record(request)
    console = screen(stderr=True)
    written = None
    if request.caution is not None:
        written = files_written_since(Path(), began_ns, but_not=run_path)
    try:
        _show(request, run_path, exit_code, console, written)
    except Exception as error:  # the command has run: its exit code must come through, whatever fails here
        console.print(printable(f"unstarve: the run was recorded, but reporting failed: {error!r}"))
    sentence = None if written is None else written_meanwhile(written)
    if sentence is not None:
        console.print(printable(sentence), soft_wrap=True)
    leave(exit_code)


def record(request: Request) -> tuple[Path, int]:
    """Run the command and record it. Return the run file and the exit code, negative for a signal."""
    with state_folder() as pages:
        return _record(request, pages)


def _record(request: Request, pages: Path) -> tuple[Path, int]:
    saved = () if request.settings_file is None else read_saved(request.settings_file)
    argv = resolve(request.command)
    note = None if request.quiet else other_python(request.command)
    if note is not None:
        print(printable(f"unstarve: {note}"), file=sys.stderr, flush=True)
    run_path = _claim(request)
    no_io = why_not_io() if request.io else None
    no_perf = why_not_perf() if request.perf else None
    settings = LaunchSettings(
        parts=str(parts_folder(run_path).absolute()),
        version=__version__,
        steps=request.steps,
        stop_after=request.stop_after,
        ideal=request.ideal,
        engine=request.engine,
        saved=saved,
        profile=request.profile,
        io=request.io and no_io is None,
        perf=request.perf and no_perf is None,
        ledger=request.ledger,
        copies=request.copies,
        memory=request.memory,
        segment_bytes=segment_bytes(request.max_bytes),
        state=None if request.hang_after_s is None else str(pages),
        raises_on_hang=request.raises_on_hang,
    )
    aftermath = Aftermath(parts_folder(run_path), pages)
    watch = HangWatch(pages, request.hang_after_s or 0.0, raises=request.raises_on_hang)
    if request.caution is not None:
        print(f"unstarve: {request.caution}", file=sys.stderr, flush=True)
    try:
        with watch, KeepSmall(run_path, request.max_bytes):
            exit_code = launch(argv, settings)
    except CommandNotFoundError:
        discard(run_path)
        raise
    if exit_code == -signal.SIGTERM and _stopped_by_us(run_path):
        exit_code = 0
    parts = parts_folder(run_path)
    unseen = why_unseen(parts, argv)
    # Not before the command, which would start later, nor during it, which would be disturbed.
    keep_machine(run_path, known_times() if unseen or exit_code < 0 else of_this_machine())
    error = unseen or _unused(request, run_path, saved)
    failure = command_error(parts) if exit_code else None
    trace = None if request.profile is None else keep_profile(run_path)
    if request.io:
        keep_reads(run_path, no_io)
    if no_perf is not None:
        keep_refusal(run_path, no_perf)
    breakage, texts = aftermath.breakage(watch.hangs)
    for text in texts:
        print(text, file=sys.stderr, end="")
    keep_breakage(run_path, breakage)
    problem = finish(run_path, exit_code, error, failure=failure, limit=_limit(request))
    if problem:
        print(printable(f"unstarve: {problem}"), file=sys.stderr)
    if trace is not None:
        merged = merge_spans(trace, read_run(run_path))
        print(printable(f"unstarve: profiler trace, with the workers in it: {merged}"), file=sys.stderr)
    snapshot = None if request.profile is None else request.profile.memory_snapshot
    if snapshot is not None and Path(snapshot).exists():
        shown = f"unstarve: memory snapshot, for pytorch.org/memory_viz: {snapshot}"
        print(printable(shown), file=sys.stderr)
    return run_path, exit_code


def leave(exit_code: int) -> NoReturn:
    """Exit as the command did; if a signal ended it, by the same signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    if exit_code >= 0:
        raise typer.Exit(exit_code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core dump, the command's, is enough
    with contextlib.suppress(OSError):  # SIGKILL has no handler to reset
        signal.signal(-exit_code, signal.SIG_DFL)
    os.kill(os.getpid(), -exit_code)
    raise typer.Exit(128 - exit_code)  # the signal is blocked or does not end a process


def _show(
    request: Request, run_path: Path, exit_code: int, console: Console, written: WrittenFiles | None
) -> None:
    recorded = read_run(run_path)
    if recorded.live:  # the end of the run could not be written to the file
        recorded = replace(recorded, live=False, exit_code=exit_code)
    diagnosis = diagnose(recorded)
    if request.json_to is not None:
        more = {} if written is None else {"files_written": list(written.names)}
        write_json(request.json_to, json_view.report(diagnosis) | more)
    if request.html_file is not None:
        write_file(request.html_file, report_page(diagnosis, views_of(recorded)))
    if request.quiet:
        for one in diagnosis.health:
            if one.id in _BROKE:
                console.print(printable(f"unstarve: {one.message} {one.fix}."), soft_wrap=True)
    else:
        print_report(diagnosis, console)
        shown = printable(f"run file: {run_path}")
        console.print(shown, style="bright_black", soft_wrap=True, highlight=False)


def _limit(request: Request) -> str | None:
    """The limit on the steps, as the user wrote it."""
    if request.stop_after is not None:
        return f"--stop-after {request.stop_after}"
    return None if request.steps is None else f"--steps {request.steps}"


def _unused(request: Request, run_path: Path, saved: Sequence[SavedLoader]) -> str | None:
    """Name the saved settings that matched no loader; None if all were used."""
    try:
        loaders = (
            [loader for process in read_run(run_path).processes for loader in process.loaders]
            if saved
            else []
        )
    except RunFileError:  # the run file was removed
        return None
    used = {loader.config.get("applied_entry") for loader in loaders}
    unused = [shown_place(one.place) for number, one in enumerate(saved) if number not in used]
    if not unused:
        return None
    return f"{request.settings_file}: no loader of the command matches {', '.join(unused)}"


def _claim(request: Request) -> Path:
    if request.output is not None:
        output = real_file(request.output)
        claim(output, list(request.command), request.kind, force=request.force)
        return output
    name = _default_name(request.command)
    try:
        return _claim_unused(name, request)
    except RunFileError as error:
        elsewhere = Path(tempfile.mkdtemp(prefix="unstarve-")) / f"{name}{SUFFIX}"
        print(printable(f"unstarve: {error}"), file=sys.stderr)
        print(printable(f"unstarve: recording to {elsewhere} instead"), file=sys.stderr)
        claim(elsewhere, list(request.command), request.kind)
        return elsewhere


def _claim_unused(name: str, request: Request) -> Path:
    """Claim the name; if another run started in the same second, add our process id."""
    try:
        path = Path(f"{name}{SUFFIX}")
        claim(path, list(request.command), request.kind)
    except RunExistsError:
        path = Path(f"{name}-{os.getpid()}{SUFFIX}")
        claim(path, list(request.command), request.kind)
    return path


def _default_name(command: Sequence[str]) -> str:
    """``train-20260131-235959``."""
    script = next((word for word in command if word.endswith(".py")), None)
    word = script or (command[1] if command[0] == "-m" else command[0])
    stem = re.sub(r"[^\w.-]", "_", Path(word).stem if script else word.rpartition("/")[2]) or "run"
    return f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"


def _stopped_by_us(run_path: Path) -> bool:
    try:
        return any(process.stopped == "stop-after" for process in read_run(run_path).processes)
    except RunFileError:  # the run file was removed
        return False
