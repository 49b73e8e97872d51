"""What a command line means."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from unstarve.errors import CommandNotFoundError, UsageError
from unstarve.launch.command import launch, other_python, resolve
from unstarve.model.launch_settings import IdealSettings, LaunchSettings


def test_a_script_and_a_module_get_this_python(tmp_path: Path) -> None:
    script = tmp_path / "my train.py"
    script.touch()
    assert resolve([str(script), "-x"]) == [sys.executable, str(script), "-x"]
    assert resolve(["-m", "pkg", "-x"]) == [sys.executable, "-m", "pkg", "-x"]


def test_a_folder_with_a_main_file_is_a_script(tmp_path: Path) -> None:
    (tmp_path / "__main__.py").touch()
    assert resolve([str(tmp_path)]) == [sys.executable, str(tmp_path)]


def test_an_executable_runs_as_it_is() -> None:
    assert resolve(["sh", "-c", "true"]) == ["sh", "-c", "true"]


@pytest.mark.parametrize("command", [["missing.py"], ["no-such-command-anywhere"]])
def test_what_is_not_there_is_named(command: list[str]) -> None:
    with pytest.raises(CommandNotFoundError, match=command[0]):
        resolve(command)


def test_a_file_that_is_no_program_comes_with_a_hint(tmp_path: Path) -> None:
    script = tmp_path / "train"
    script.touch()
    with pytest.raises(CommandNotFoundError, match="unstarve run python"):
        resolve([str(script)])


@pytest.mark.parametrize("command", [[], ["-m"]])
def test_an_incomplete_command_is_a_usage_error(command: list[str]) -> None:
    with pytest.raises(UsageError):
        resolve(command)


def test_settings_survive_the_environment() -> None:
    settings = LaunchSettings("/parts", "0.1", steps=3, ideal=IdealSettings(pairs=2))
    assert LaunchSettings.from_environment(settings.to_environment()) == settings
    assert LaunchSettings.from_environment({}) is None


def test_a_ctrl_c_is_told_at_once(tmp_path: Path) -> None:
    told: list[str] = []
    script = tmp_path / "interrupt.py"
    script.write_text("import os, signal; os.kill(os.getppid(), signal.SIGINT)")
    settings = LaunchSettings(str(tmp_path), "0.1")
    assert launch([sys.executable, str(script)], settings, lambda: told.append("interrupted")) == 0
    assert told == ["interrupted"]


@pytest.fixture
def active(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is first on the path of a user without a virtual environment."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "env" / "bin"
    folder.mkdir(parents=True)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    return folder


def python_in(folder: Path, prefix: str) -> Path:
    """A program that answers like a Python of this environment."""
    major, minor = sys.version_info[:2]
    path = folder / "python"
    path.write_text(f"#!/bin/sh\nprintf '%s\\n' '{prefix}' {major} {minor}\n")
    path.chmod(0o755)
    return path


def test_another_active_python_is_told(active: Path) -> None:
    other = python_in(active, "/somewhere/else")
    for command in (["train.py", "--lr", "1"], ["-m", "json.tool", "x"]):
        note = other_python(command)
        assert note is not None
        shown = " ".join(command[: 2 if command[0] == "-m" else 1])
        assert note.startswith(f"running {shown} with {sys.executable} ")
        assert f"your active one is {other}" in note
        assert note.endswith(f"unstarve run python {shown}")


def test_the_environment_that_was_activated_is_the_active_one(
    active: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python_in(active, sys.prefix)
    assert other_python(["train.py"]) is None
    elsewhere = active.parent.parent / "venv" / "bin"
    elsewhere.mkdir(parents=True)
    other = python_in(elsewhere, "/venv")
    monkeypatch.setenv("VIRTUAL_ENV", str(elsewhere.parent))
    note = other_python(["train.py"])
    assert note is not None
    assert str(other) in note


def test_the_same_python_by_any_name_is_not_told(active: Path) -> None:
    python_in(active, sys.prefix)  # a shim: it has to be asked
    assert other_python(["train.py"]) is None


def test_a_python_that_does_not_run_and_a_command_of_the_users_are_not_told(active: Path) -> None:
    broken = python_in(active, "/somewhere/else")
    assert other_python(["python", "train.py"]) is None
    assert other_python([sys.executable, "train.py"]) is None
    broken.write_text("#!/bin/sh\nexit 1\n")
    assert other_python(["train.py"]) is None
