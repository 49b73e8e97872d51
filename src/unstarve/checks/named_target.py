"""Run by `unstarve check module:attribute` in a process of its own: check what the attribute holds.

The process is attached like that of a script, so that the lines which create loaders are known.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import torch.utils.data  # before our own: unstarve attaches when this is imported

from unstarve.checks.parts import TARGET_ERROR
from unstarve.checks.script_checks import ScriptChecks
from unstarve.checks.targets import checks_of, is_dataset
from unstarve.errors import UsageError
from unstarve.model.launch_settings import LaunchSettings


def main(target: str) -> None:
    """Check the target; what is wrong with its name goes to `TARGET_ERROR`, and the exit code is 2."""
    checks = ScriptChecks.of_this_process
    settings = LaunchSettings.from_environment()
    if checks is None or settings is None:
        raise SystemExit("run unstarve check instead")
    try:
        value, name = resolve(target)
        checks.check_these(checks_of(value, name, checks.problem))
    except UsageError as error:
        (Path(settings.parts) / TARGET_ERROR).write_text(str(error), "utf-8")
        sys.exit(2)


def resolve(target: str) -> tuple[Any, str]:
    """The object behind ``module:attribute`` or ``file.py:attribute``, and its name.

    A function is called; an attribute may have dots. Raises `UsageError` when there is no such object, and
    whatever the user's own code raises.
    """
    place, _, attribute = target.rpartition(":")
    module = _imported(place)
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise UsageError(f"{place} has no {part}{_instead(module)}")
        value = getattr(value, part)
    name = attribute.rpartition(".")[2]
    if isinstance(value, type):
        raise UsageError(f"{attribute} is a class; name a loader, a dataset or a function that returns one")
    if inspect.isroutine(value):
        _check_signature(value, attribute)
        return value(), f"{name}()"
    return value, name


def _imported(place: str) -> Any:
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is not None and (place == error.name or place.startswith(f"{error.name}.")):
                raise UsageError(f"no module {place} in {Path.cwd()} or installed") from error
            raise
    path = Path(place)
    if not path.is_file():
        raise UsageError(f"no file {place} in {Path.cwd()}")
    sys.path.insert(0, str(path.parent.absolute()))  # spawned workers import it by its name, too
    return importlib.import_module(path.stem)


def _check_signature(function: Any, name: str) -> None:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise UsageError(f"{name}() cannot be called without arguments: {error}") from error
    except ValueError:  # written in C: the call will tell
        return


def _instead(module: Any) -> str:
    names = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (
            isinstance(value, torch.utils.data.DataLoader)
            or (is_dataset(value) and not isinstance(value, (list, dict, tuple)))
        )
    ]
    return f"; it has {', '.join(names[:8])}" if names else ""


if __name__ == "__main__":
    main(sys.argv[1])
