"""Loader settings as a TOML file, which people may read, edit and commit::

format = 1

[[loader]]
file = "train.py"           # from this file's folder, or how the path ends
line = 41
function = "main"           # these three find the loader again
name = "train_loader"       # when lines have moved
call = "9f2c1e0b7a64"

[loader.settings]           # arguments of DataLoader(…)
num_workers = 8
prefetch_factor = 4
images = true             # an ImageFolder's are read by unstarve, in so many threads
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unstarve.errors import SettingsFileError
from unstarve.model.saved import IMAGES, NEED_WORKERS, Place, SavedLoader, moved_to
from unstarve.outputs import write_output
from unstarve.words import printable

FORMAT = 1
_MOST = {"num_workers": 1024, "prefetch_factor": 1024}
_LEAST = {"num_workers": 0, "prefetch_factor": 1}
_SWITCHES = ("persistent_workers", "pin_memory", "in_order", IMAGES)
_PLACE: Mapping[str, type] = {"file": str, "line": int, "function": str, "name": str, "call": str}


def read_saved(path: Path) -> tuple[SavedLoader, ...]:
    """The entries of a settings file. Raises `SettingsFileError`, which says what is wrong where."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsFileError(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsFileError(f"{path} is not valid TOML: {error}") from error
    if type(data.get("format", FORMAT)) is not int or data.get("format", FORMAT) != FORMAT:
        raise SettingsFileError(
            f"{path} has format {data['format']!r}, and this unstarve reads format {FORMAT}; "
            "upgrade with: pip install -U unstarve"
        )
    _refuse_unknown(str(path), data, ("format", "loader"))
    entries = data.get("loader")
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise SettingsFileError(
            f"{path} has no [[loader]] entry; `unstarve tune --save {path} CMD…` makes one"
        )
    read = (_entry(f"{path}, loader {number}", entry) for number, entry in enumerate(entries, 1))
    return tuple(SavedLoader(_found(one.place, path.absolute().parent), one.settings) for one in read)


def write_saved(path: Path, saved: Sequence[SavedLoader], comment: str = "") -> None:
    """Write a settings file, all of it or nothing; an `OutputError` says why not.

    Paths below its folder are written relative to it.
    """
    lines = [f"# {printable(line)}" for line in comment.splitlines()] + [f"format = {FORMAT}"]
    for one in saved:
        place = moved_to(one.place, _relative(one.place.file, path.absolute().parent))
        fields = {key: value for key in _PLACE if (value := getattr(place, key)) is not None}
        lines += ["", "[[loader]]", *(f"{key} = {_toml(value)}" for key, value in fields.items())]
        lines += [
            "",
            "[loader.settings]",
            *(f"{key} = {_toml(value)}" for key, value in one.settings.items()),
        ]
    try:
        content = ("\n".join(lines) + "\n").encode()
    except UnicodeEncodeError as error:
        raise SettingsFileError(f"cannot write {path}: a file's name is not Unicode; rename it") from error
    write_output(path, content)


def check_settings(where: str, settings: Mapping[str, Any]) -> dict[str, int | bool]:
    """The arguments, when a loader can have them all; else `SettingsFileError` about `where`."""
    _refuse_unknown(where, settings, (*_MOST, *_SWITCHES))
    if not settings:
        raise SettingsFileError(
            f"{where}: [loader.settings] is empty; give at least one, like num_workers = 4"
        )
    for name, value in settings.items():
        if name in _SWITCHES and not isinstance(value, bool):
            raise SettingsFileError(f"{where}: {name} must be true or false, not {value!r}")
        if name in _MOST and (type(value) is not int or not _LEAST[name] <= value <= _MOST[name]):
            raise SettingsFileError(
                f"{where}: {name} must be a whole number from {_LEAST[name]} to {_MOST[name]}, not {value!r}"
            )
    if settings.get("num_workers") == 0:
        if settings.get(IMAGES):
            raise SettingsFileError(
                f"{where}: with {IMAGES} = true, num_workers is a number of threads; give at least 1"
            )
        for name in settings.keys() & NEED_WORKERS.keys():
            if settings[name] != NEED_WORKERS[name]:
                raise SettingsFileError(
                    f"{where}: {name} needs workers, and num_workers is 0; remove one of them"
                )
    return dict(settings)


def shown_place(place: Place) -> str:
    """``train.py:41``, from the current folder where the file lies below it."""
    return (
        f"{_relative(place.file, Path.cwd()) if Path(place.file).is_absolute() else place.file}:{place.line}"
    )


def _entry(where: str, entry: Mapping[str, Any]) -> SavedLoader:
    _refuse_unknown(where, entry, (*_PLACE, "settings"))
    for key, kind in _PLACE.items():
        if key in ("file", "line") and key not in entry:
            raise SettingsFileError(f"{where}: {key} is missing, which says where the loader is made")
        if key in entry and type(entry[key]) is not kind:
            kinds = "a whole number" if kind is int else "text"
            raise SettingsFileError(f"{where}: {key} must be {kinds}, not {entry[key]!r}")
    settings = entry.get("settings")
    if not isinstance(settings, dict):
        raise SettingsFileError(
            f"{where}: there is no table [loader.settings] with arguments like num_workers = 4"
        )
    place = Place(**{key: entry[key] for key in _PLACE if key in entry})
    return SavedLoader(place, check_settings(where, settings))


def _refuse_unknown(where: str, found: Mapping[str, Any], known: Sequence[str]) -> None:
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise SettingsFileError(f"{where}: {unknown[0]!r} is not known here; there are {', '.join(known)}")


def _toml(value: str | int | bool) -> str:
    """A value as TOML writes it; its basic strings escape as JSON's do."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower()


def _found(place: Place, folder: Path) -> Place:
    """The place with the whole path of its file, where that lies below the settings' folder."""
    file = folder / place.file
    return moved_to(place, str(file.resolve())) if file.is_file() else place


def _relative(file: str, folder: Path) -> str:
    path = Path(file).absolute()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
