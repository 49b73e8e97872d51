"""`unstarve run --with`: loaders of an unmodified script get saved settings when they are made.

A loader's own arguments are changed before torch sees them, so that it is checked and built as if the script
had said so. Where torch refuses the result, the script's own arguments are used and the report says why.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.utils.data import dataloader as stock

from unstarve.marks import APPLIED
from unstarve.model.saved import IMAGES, NEED_WORKERS, SavedLoader, best_match
from unstarve.steer.image_folders import read_images, use_images
from unstarve.steer.loader_place import place_here


def use_saved(saved: Sequence[SavedLoader], failed: Callable[[str], object]) -> None:
    """Let every loader that is made at a saved place have the settings saved for it.

    `failed` is told, in a sentence, why a loader could not have them.
    """
    original: Any = stock.DataLoader.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        problem = _try(self, args, kwargs)
        if problem is not None:
            original(self, *args, **kwargs)
            if problem:
                failed(problem)

    def _try(loader: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Make it as saved; else why not, which is empty where nothing is saved for it."""
        before = dict(loader.__dict__)
        try:
            place = None if APPLIED in before else place_here(type(loader).__name__)
            entry = None if place is None else best_match(saved, place)
            if entry is None:
                return ""
            bound = signature.bind(loader, *args, **kwargs)
            bound.apply_defaults()
            settings = dict(saved[entry].settings)
            images = settings.pop(IMAGES, False)
            changed = with_settings(bound.arguments, settings)
            original(**changed)
            if images:
                read_images(loader)
            words = in_words(bound.arguments, changed)
            loader.__dict__[APPLIED] = (entry, f"images read by unstarve, {words}" if images else words)
            return None
        except Exception as error:  # torch's or ours: what happens is for the script's own arguments to say
            loader.__dict__.clear()
            loader.__dict__.update(before)
            return f"saved settings were not applied to a loader: {error}"

    if any(one.settings.get(IMAGES) for one in saved):
        use_images()
    stock.DataLoader.__init__ = __init__  # type: ignore[method-assign]  # for as long as the process lives


def with_settings(arguments: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """A loader's arguments with the settings; what needs workers is unset where there are none."""
    changed = {**arguments, **settings}
    if changed["num_workers"] == 0:
        changed.update(NEED_WORKERS)
    return changed


def in_words(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What is different: ``num_workers 2 → 8, prefetch_factor 2 → 4``."""
    # By identity: an argument of the user's own may not know how to be compared.
    different = [name for name in after if before[name] is not after[name]]
    return ", ".join(f"{name} {before[name]} → {after[name]}" for name in different) or "as it was"
