"""The command's exit code is unstarve's; what unstarve refuses it says in one sentence."""

from __future__ import annotations

import signal

import pytest


def one_sentence(stderr: str) -> str:
    assert "Traceback" not in stderr
    (line,) = stderr.strip().splitlines()
    return line


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pass", 0),
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit('a message')", 1),
        ("raise KeyError('mine')", 1),
        ("import os; os._exit(7)", 7),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import os; os.kill(os.getpid(), 15)", -signal.SIGTERM),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("raise KeyboardInterrupt", -signal.SIGINT),
    ],
)
def test_the_commands_end_is_passed_on(project, code: str, expected: int) -> None:
    project.write("train.py", code)
    done = project.unstarve("run", "train.py")
    assert done.returncode == expected == project.python("train.py").returncode
    assert "run file:" in done.stderr
    assert "unstarve/cli" not in done.stderr  # a traceback of ours


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "missing.py"], "no file missing.py"),
        (["run", "no-such-command"], "command not found: no-such-command"),
        (["ideal", "missing.py"], "no file missing.py"),
        (["run", "data"], "command not found: data"),
        (["run", "./plain"], "unstarve run python ./plain"),
    ],
)
def test_a_command_that_cannot_start_is_named_and_leaves_nothing_behind(project, words, told: str) -> None:
    project.write("plain", "not a program")
    before = set(project.folder.iterdir())
    done = project.unstarve(*words)
    assert done.returncode == 3
    assert told in one_sentence(done.stderr)
    assert set(project.folder.iterdir()) == before


def test_a_file_that_only_looks_like_a_program_is_named(project) -> None:
    project.write("plain", "\x00\x01not a program").chmod(0o755)
    done = project.unstarve("run", "./plain")
    assert done.returncode == 3
    assert "cannot start ./plain" in one_sentence(done.stderr)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "--steps", "3", "--stop-after", "3", "train.py"], "not both"),
        (["run", "-m"], "-m needs the name of a module"),
        (["run", "--json", "no/such/folder.json", "train.py"], "no/such/folder.json"),
        (["run", "-o", ".", "train.py"], "is a folder"),
        (["report", "missing.unstarve"], "there is no run file missing.unstarve"),
        (["compare", "a.unstarve", "b.unstarve"], "there is no run file a.unstarve"),
    ],
)
def test_a_senseless_request_is_refused_before_training(project, words: list[str], told: str) -> None:
    project.write("train.py", "print('trained')")
    done = project.unstarve(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in one_sentence(done.stderr)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "--stepz", "3", "train.py"], "--stepz"),
        (["run", "--steps", "0", "train.py"], "--steps"),
        (["run", "--steps", "train.py"], "--steps"),
        (["rum", "train.py"], "rum"),
        (["run"], "CMD"),
        (["ideal", "--pairs", "0", "train.py"], "--pairs"),
        (["report"], "RUN"),
    ],
)
def test_a_mistyped_command_line_is_a_usage_error(project, words: list[str], told: str) -> None:
    project.write("train.py", "print('trained')")
    done = project.unstarve(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert "Usage" in done.stderr


def test_help_is_printed_for_every_verb(project) -> None:
    for words in (
        ["--help"],
        ["-h"],
        ["run", "--help"],
        ["ideal", "-h"],
        ["report", "-h"],
        ["compare", "-h"],
    ):
        done = project.unstarve(*words)
        assert (done.returncode, done.stderr) == (0, "")
        assert "Usage" in done.stdout
    assert project.unstarve("--version").stdout.startswith("unstarve ")
