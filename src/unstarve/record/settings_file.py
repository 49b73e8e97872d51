"""Loader settings as a TOML file, for people to read, edit and commit::

format = 1

[[loader]]
file = "train.py"           # relative to this file's folder, or the end of its path
line = 41
function = "main"           # these three find the loader again
name = "train_loader"       # when lines have moved
call = "9f2c1e0b7a64"

[loader.settings]           # arguments of DataLoader(…)
num_workers = 8
prefetch_factor = 4
images = true               # a part of unstarve, of which a loader can have one: images,
                            # gpu_images, ring, threads, gather or cached
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unstarve.errors import SettingsFileError
from unstarve.model.parts import PARTS
from unstarve.model.saved import NEED_WORKERS, Place, SavedLoader, moved_to
from unstarve.outputs import write_output
from unstarve.words import printable

FORMAT = 1
_MAX = {"num_workers": 1024, "prefetch_factor": 1024}
_MIN = {"num_workers": 0, "prefetch_factor": 1}
_SWITCHES = ("persistent_workers", "pin_memory", "in_order", *PARTS)
_PLACE: Mapping[str, type] = {
    "file": str,
    "line": int,
    "function": str,
    "name": str,
    "call": str,
    "dataset": str,
    "nth": int,
}


def read_saved(path: Path) -> tuple[SavedLoader, ...]:
    """The entries of a settings file. Raises `SettingsFileError`, which says what is wrong and where."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsFileError(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsFileError(f"{path} is not valid TOML: {error}") from error
    if type(data.get("format", FORMAT)) is not int or data.get("format", FORMAT) != FORMAT:
        raise SettingsFileError(
            f"{path} has format {data['format']!r}, but this unstarve reads format {FORMAT}; "
            "upgrade with: pip install -U unstarve"
        )
    _refuse_unknown(str(path), data, ("format", "loader"))
    entries = data.get("loader")
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise SettingsFileError(
            f"{path} has no [[loader]] entry; `unstarve tune --save {path} CMD…` writes one"
        )
    read = (_entry(f"{path}, loader {number}", entry) for number, entry in enumerate(entries, 1))
    return tuple(
        SavedLoader(_with_full_path(one.place, path.absolute().parent), one.settings) for one in read
    )


def write_saved(path: Path, saved: Sequence[SavedLoader], comment: str = "") -> None:
    """Write a settings file, whole or not at all; raises `OutputError`.

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
        raise SettingsFileError(
            f"cannot write {path}: the name of a source file is not Unicode; rename that file"
        ) from error
    write_output(path, content)


def check_settings(where: str, settings: Mapping[str, Any]) -> dict[str, int | bool]:
    """Return the settings if a loader can have them all; else raise `SettingsFileError` about `where`."""
    _refuse_unknown(where, settings, (*_MAX, *_SWITCHES))
    if not settings:
        raise SettingsFileError(
            f"{where}: [loader.settings] is empty; set at least one argument, like num_workers = 4"
        )
    for name, value in settings.items():
        if name in _SWITCHES and not isinstance(value, bool):
            raise SettingsFileError(f"{where}: {name} must be true or false, got {value!r}")
        if name in _MAX and (type(value) is not int or not _MIN[name] <= value <= _MAX[name]):
            raise SettingsFileError(
                f"{where}: {name} must be a whole number from {_MIN[name]} to {_MAX[name]}, got {value!r}"
            )
    parts = [name for name in PARTS if settings.get(name)]
    if len(parts) > 1:
        raise SettingsFileError(f"{where}: {' and '.join(parts)} exclude each other; keep one of them")
    if settings.get("num_workers") == 0:
        if parts and PARTS[parts[0]].threads:
            raise SettingsFileError(
                f"{where}: with {parts[0]} = true, num_workers is the number of threads and must be at least"
                " 1"
            )
        for name in settings.keys() & NEED_WORKERS.keys():
            if settings[name] != NEED_WORKERS[name]:
                raise SettingsFileError(
                    f"{where}: {name} needs workers, but num_workers is 0; remove one of them"
                )
    return dict(settings)


def shown_place(place: Place) -> str:
    """``train.py:41``, relative to the current folder if the file is below it; with the dataset, if saved."""
    file = _relative(place.file, Path.cwd()) if Path(place.file).is_absolute() else place.file
    return f"{file}:{place.line}{'' if place.dataset is None else f' with {place.dataset}'}"


def _entry(where: str, entry: Mapping[str, Any]) -> SavedLoader:
    _refuse_unknown(where, entry, (*_PLACE, "settings"))
    for key, kind in _PLACE.items():
        if key in ("file", "line") and key not in entry:
            raise SettingsFileError(f"{where}: {key} is missing; it says where the loader is created")
        if key in entry and type(entry[key]) is not kind:
            kinds = "a whole number" if kind is int else "text"
            raise SettingsFileError(f"{where}: {key} must be {kinds}, got {entry[key]!r}")
    settings = entry.get("settings")
    if not isinstance(settings, dict):
        raise SettingsFileError(
            f"{where}: the table [loader.settings] with arguments like num_workers = 4 is missing"
        )
    place = Place(**{key: entry[key] for key in _PLACE if key in entry})
    return SavedLoader(place, check_settings(where, settings))


def _refuse_unknown(where: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise SettingsFileError(f"{where}: unknown key {unknown[0]!r}; expected one of {', '.join(known)}")


def _toml(value: str | int | bool) -> str:
    """A value in TOML, whose basic strings have the same escapes as JSON."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower()


def _with_full_path(place: Place, folder: Path) -> Place:
    """The place with the full path of its file, if that is below the settings file's folder."""
    file = folder / place.file
    return moved_to(place, str(file.resolve())) if file.is_file() else place


def _relative(file: str, folder: Path) -> str:
    path = Path(file).absolute()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
