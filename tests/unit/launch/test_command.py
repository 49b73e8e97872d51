"""What a command line means."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from unstarve.errors import CommandNotFoundError, UsageError
from unstarve.launch.command import launch, resolve
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
