"""`unstarve run --with`: loaders of an unmodified script get saved settings when they are created.

A loader is found by the place of its creation: file, line, function, variable and call. Its arguments are
changed before torch sees them, so it is checked and built as if the script had said so. If torch refuses the
result, the script's own arguments are used and the report says why.

If the settings name a part of unstarve, as ``images = true`` does, the loader keeps its dataset, sampler and
arguments; only its batches are made differently.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import inspect
import linecache
import os.path
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from unstarve.collect.call_site import call_source, variable_name
from unstarve.collect.loader_origin import Creation, creation
from unstarve.errors import UsageError
from unstarve.marks import APPLIED, RUNS_ON
from unstarve.model.parts import CACHED, ENGINE_PARTS, GPU_IMAGES, IMAGES, PARTS
from unstarve.model.saved import NEED_WORKERS, Place, SavedLoader, Span, best_match
from unstarve.stack_levels import uncounted

_ENGINE = "_unstarve_engine"
"""Attribute of a loader that saved settings run on an engine of unstarve: its name."""
_KEPT, _TWIN = "_unstarve_kept", "_unstarve_twin"
"""The same for one whose samples are kept: the cache, and a copy of the loader that takes them from there."""
_SAID = {
    IMAGES: "images read by unstarve, ",
    GPU_IMAGES: "images decoded by the GPU, ",
    CACHED: "samples kept in memory, ",
}

try:
    _STARTED_IN = Path.cwd()
except OSError:  # the folder was removed
    _STARTED_IN = Path("/")
"""Python names files relative to the folder it was started in, which a script may leave."""


# --- saved settings ---


def create_with_saved(
    original: Callable[..., Any], saved: Sequence[SavedLoader], failed: Callable[[str], object]
) -> Callable[..., None]:
    """Return a replacement of ``DataLoader.__init__`` that applies the settings saved for a loader's place.

    `failed` is called with a sentence if a loader could not be given its settings.
    """
    signature = inspect.signature(original)

    @uncounted
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        problem = create(self, args, kwargs)
        if problem is not None:
            original(self, *args, **kwargs)
            if problem:
                failed(problem)

    @uncounted
    def create(loader: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Create it as saved, or say why not: an empty string if nothing is saved for it."""
        before = dict(loader.__dict__)
        try:
            if APPLIED in before:
                return ""
            bound = signature.bind(loader, *args, **kwargs)
            bound.apply_defaults()
            dataset = bound.arguments["dataset"]
            made = creation(loader, dataset)
            earlier = None if made.replaces is None else vars(made.replaces).get(APPLIED)
            entry = match(loader, made, dataset) if earlier is None else earlier[0]
            if entry is None:
                return ""
            settings = dict(saved[entry].settings)
            switches = {part: settings.pop(part, False) for part in PARTS}
            part = next((part for part, on in switches.items() if on), "")
            changed = with_settings(bound.arguments, settings)
            original(**changed)
            if part in (IMAGES, GPU_IMAGES):
                read_images(loader, on_gpu=part == GPU_IMAGES)
            elif part == CACHED:
                keep_samples(loader)
            elif part in ENGINE_PARTS:
                run_on_engine(loader, part)
            changes = describe_changes(bound.arguments, changed)
            said = f"{_SAID.get(part) or f'engine {part}, '}{changes}" if part else changes
            # A framework that creates a loader again passes on the arguments that were changed before.
            loader.__dict__[APPLIED] = (entry, said) if earlier is None else earlier
            return None
        except Exception as error:  # torch's or ours: the script's own arguments decide what happens
            loader.__dict__.clear()
            loader.__dict__.update(before)
            return f"saved settings were not applied to a loader: {error}"

    def match(loader: Any, made: Creation, dataset: Any) -> int | None:
        """The entry for a new loader: by the user's line, or by a library's, as older files have it."""
        kind, entry = type(loader).__name__, None
        if made.frame is not None and made.replaces is None:
            place = place_of(made, kind, dataset)
            number = twins.number(place, loader, dataset)
            entry = best_match(saved, dataclasses.replace(place, nth=number))
        if entry is None and made.innermost is not made.frame and made.innermost is not None:
            entry = best_match(saved, place_in(made.innermost, kind))
        return entry

    twins = Twins()
    return __init__


class Twins:
    """Numbers the loaders that one line creates for different datasets of one class and length."""

    def __init__(self) -> None:
        self._known: dict[Place, list[tuple[weakref.ref[Any], int, int]]] = {}
        """Loader, identity of its dataset, and number."""

    def number(self, place: Place, loader: Any, dataset: Any) -> int:
        """From 1; that of a loader that is gone is free again. Loaders of one dataset have one number."""
        known = [one for one in self._known.get(place, ()) if one[0]() is not None]
        same = [number for _, its_dataset, number in known if its_dataset == id(dataset)]
        taken = {number for _, _, number in known}
        number = same[0] if same else next(n for n in count(1) if n not in taken)
        self._known[place] = [*known, (weakref.ref(loader), id(dataset), number)]
        return number


def with_settings(arguments: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """A loader's arguments with the settings; arguments that need workers are unset if there are none."""
    changed = {**arguments, **settings}
    if changed["num_workers"] == 0:
        changed.update(NEED_WORKERS)
    return changed


def describe_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """``num_workers 2 → 8, prefetch_factor 2 → 4``."""
    # By identity: the user's arguments may not support comparison.
    different = [name for name in after if before[name] is not after[name]]
    return ", ".join(f"{name} {before[name]} → {after[name]}" for name in different) or "unchanged"


# --- parts of unstarve ---


def read_images(loader: Any, *, on_gpu: bool = False) -> None:
    """Let unstarve read the images of this loader from its next epoch on; `on_gpu`: and a GPU decode them.

    Raises UsageError or ValueError with the reason if it cannot: no image folder, an unsupported transform,
    no workers.
    """
    # These need all of torch, which is not there yet when its loader module is imported.
    from unstarve.fixes.datasets.images.gpu_decoder import why_no_gpu
    from unstarve.fixes.datasets.images.torchvision_folder import stand_in_for
    from unstarve.fixes.loader.engines.choose_engine import choose
    from unstarve.fixes.loader.engines.thread_readers import STAND_IN

    if on_gpu and (why_not := why_no_gpu()) is not None:
        raise UsageError(f"the images cannot be decoded on the GPU: {why_not}")
    loader.__dict__[STAND_IN] = stand_in_for(loader.dataset, "cuda" if on_gpu else "cpu")
    choose(loader, "threads")
    loader.__dict__[RUNS_ON] = "threads"
    loader.__dict__[_ENGINE] = "threads"


def run_on_engine(loader: Any, engine: str) -> None:
    """Run this loader on an engine of `unstarve.DataLoader`; ValueError if that cannot give its batches."""
    from unstarve.fixes.loader.engines.choose_engine import choose  # needs all of torch, as above

    choose(loader, engine)
    loader.__dict__[RUNS_ON] = loader.__dict__[_ENGINE] = engine


def keep_samples(loader: Any) -> None:
    """Fetch this loader's samples once; UsageError or CacheError with the reason if they may not be kept."""
    from unstarve.tune.sample_cache import cache_of  # needs all of torch, as above

    loader.__dict__[_KEPT] = cache_of(loader)


def _twin(loader: Any) -> Any:
    """The same sampler, generator and arguments, with samples from the cache."""
    state = loader.__dict__
    if _TWIN not in state:
        twin = copy.copy(loader)
        twin.__dict__["dataset"] = state[_KEPT]
        state[_TWIN] = twin
    return state[_TWIN]


def iterate_with_parts(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of ``DataLoader.__iter__`` for loaders whose saved settings name a part."""

    @uncounted
    @functools.wraps(original)
    def __iter__(self: Any) -> Any:
        if _KEPT in self.__dict__:
            return original(_twin(self))
        if _ENGINE not in self.__dict__:
            return original(self)
        from unstarve.fixes.loader.engines.choose_engine import choose

        return choose(self, self.__dict__[_ENGINE]).iterate()

    return __iter__


# --- places ---


def place_of(made: Creation, kind: str, dataset: Any) -> Place:
    """Where the user's own code creates a loader of class `kind` for `dataset`."""
    from unstarve.collect.describe import dataset_words  # needs all of torch

    assert made.frame is not None
    found, origin = place_in(made.frame, kind), made.origin()
    return dataclasses.replace(
        found, name=origin.words or found.name, dataset=dataset_words(dataset), maker=origin.maker
    )


def place_in(frame: FrameType, kind: str) -> Place:
    """The call that a frame is executing."""
    code = frame.f_code
    return _place(code, frame.f_lasti, frame.f_lineno, kind)


@functools.lru_cache(maxsize=256)
def _place(code: CodeType, instruction: int, line: int, kind: str) -> Place:
    filename = code.co_filename
    span = _span(code, instruction)
    text = (None if span is None else _text(filename, span)) or call_source(filename, line, kind)
    return Place(
        file=os.path.realpath(_STARTED_IN / filename),
        line=line,
        function=code.co_qualname,
        name=variable_name(filename, line if span is None else span.line),
        call=None if text is None else digest(text),
        span=span,
    )


def digest(text: str) -> str:
    """Digest of a call, whatever its layout."""
    return hashlib.sha256("".join(text.split()).encode()).hexdigest()[:12]


def _span(code: CodeType, instruction: int) -> Span | None:
    """Where the executing expression is written; None if Python does not keep that."""
    position = next(islice(code.co_positions(), instruction // 2, None), None)
    if position is None:
        return None
    line, end_line, column, end_column = position
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return Span(line, column, end_line, end_column)


def _text(filename: str, span: Span) -> str | None:
    """The source text of a span. Columns count bytes of UTF-8."""
    lines = [linecache.getline(filename, n).encode() for n in range(span.line, span.end_line + 1)]
    if not lines[0]:
        return None
    lines[-1] = lines[-1][: span.end_column]
    lines[0] = lines[0][span.column :]
    return b"".join(lines).decode(errors="replace")
