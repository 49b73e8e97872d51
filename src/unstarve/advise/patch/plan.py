"""Tuned loaders → the changes to the user's files, and why some cannot be made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from unstarve.advise.patch.files import FilePatch, make_patch
from unstarve.advise.patch.wish import Wish
from unstarve.errors import NotPatchableError
from unstarve.model.tune_run import TunedLoader


def patches_for(loaders: Sequence[TunedLoader]) -> tuple[list[FilePatch], list[str]]:
    """One patch per file for all loaders that should change, and a sentence for each that cannot be changed.

    Nothing is written. Raises `MissingExtraError` where libcst is not installed.
    """
    files: defaultdict[Path, list[TunedLoader]] = defaultdict(list)
    problems: list[str] = []
    for loader in loaders:
        if loader.change():
            try:
                path = _file(loader)
                _patch(path, [loader])  # alone: what is wrong with one must not cost the others
                files[path].append(loader)
            except NotPatchableError as error:
                problems.append(str(error))
    return [_patch(path, found) for path, found in files.items()], problems


def _file(loader: TunedLoader) -> Path:
    """Where the loader is made, when a change there would be about it alone."""
    place = loader.place
    if place is None or loader.digest is None:
        raise NotPatchableError(f"{loader.name}: where it is made is not known, or no file that can be read")
    if loader.datasets > 1:
        raise NotPatchableError(
            f"{loader.name}: line {place.line} of {place.file} makes loaders of {loader.datasets} datasets, "
            "and all would change with it; change it by hand, or use --save and run --with"
        )
    return Path(place.file)


def _patch(path: Path, loaders: Sequence[TunedLoader]) -> FilePatch:
    wishes = [Wish(one.place, one.kind, one.change()) for one in loaders if one.place is not None]
    return make_patch(path, loaders[0].digest, wishes)
