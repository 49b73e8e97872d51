"""How the patches are applied that steer, check or mark a training on request; `hooks` lists them.

Like `hooks`, this is imported before torch is complete.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from torch.utils.data import dataloader as stock

from unstarve.checks.script_checks import ScriptChecks
from unstarve.collect import phase_ranges
from unstarve.collect.gradients import hide_from_compiler
from unstarve.launch import wrappers
from unstarve.launch.patching import Settings, remember, replace, replaced
from unstarve.model.parts import PARTS
from unstarve.steer.run_on_engine import iterate_on_engine
from unstarve.steer.saved_settings import create_with_saved, iterate_with_parts
from unstarve.steer.tune_loaders import start_tuning

# --- what a launch asks for -------------------------------------------------------------------------------


def tunes(settings: Settings) -> bool:
    """`unstarve tune`."""
    return settings is not None and settings.tune is not None


def checks(settings: Settings) -> bool:
    """`unstarve check`."""
    return settings is not None and settings.check is not None


def records(settings: Settings) -> bool:
    """Everything that writes a run file, without a launch, too."""
    only_ranges = settings is not None and settings.only_ranges
    return not (tunes(settings) or checks(settings) or only_ranges)


def is_profiled(settings: Settings) -> bool:
    """A profiler is attached."""
    return settings is not None and (settings.only_ranges or phase_ranges.SESSION in os.environ)


def has_saved(settings: Settings) -> bool:
    """`unstarve run --with`."""
    return settings is not None and settings.tune is None and bool(settings.saved)


def has_engine(settings: Settings) -> bool:
    """`unstarve run --engine`."""
    return settings is not None and settings.tune is None and settings.engine is not None


# --- iterator classes -------------------------------------------------------------------------------------


def wrap_later_iterators(
    name: str, wrap: Callable[[Any], None], base: Any = stock._BaseDataLoaderIter
) -> None:
    """Let the patch `name` wrap iterator classes that are derived from `base` from now on."""

    own = vars(base).get("__init_subclass__")

    def init_subclass(cls: Any, /, **kwargs: Any) -> None:
        if own is None:
            super(base, cls).__init_subclass__(**kwargs)
        else:
            own.__func__(cls, **kwargs)
        wrap(cls)

    if all(attribute != "__init_subclass__" for _, attribute, _ in replaced.get(name, ())):
        remember(name, base, "__init_subclass__")
        base.__init_subclass__ = classmethod(init_subclass)


def iterator_classes() -> Iterable[type[Any]]:
    """Torch's iterator classes, and those that others have derived from them so far."""
    base = stock._BaseDataLoaderIter
    return (base, *subclasses(base))


def subclasses(cls: type[Any]) -> Iterable[type[Any]]:
    """The classes that are derived from this one so far."""
    return [found for child in cls.__subclasses__() for found in (child, *subclasses(child))]


def own_constructors(cls: type[Any]) -> Iterable[Any]:
    """Loader classes beside an iterator class: torchdata's does not call the constructor of torch's."""
    home = vars(sys.modules[cls.__module__])
    found = (one for one in home.values() if isinstance(one, type) and issubclass(one, stock.DataLoader))
    return [one for one in found if one is not stock.DataLoader and "__init__" in vars(one)]


# --- for a profiler that is attached ----------------------------------------------------------------------


def apply_ranges(_settings: Settings) -> None:
    """Mark steps and phases for a profiler that is attached."""
    for cls in iterator_classes():
        if "__next__" in vars(cls):
            replace(
                "ranges", cls, "__next__", lambda original: phase_ranges.ranged_next(original, _range_steps)
            )


def _range_steps() -> None:
    import torch.autograd  # not there yet when this module is imported

    replace("ranges", torch.autograd, "backward", phase_ranges.ranged_backward)
    hide_from_compiler(torch.autograd.backward)
    _range_optimizers()


@functools.cache
def _range_optimizers() -> None:
    """Once, and never undone: a compiled step is compiled again whenever the set of hooks changes."""
    from torch.optim import optimizer

    optimizer.register_optimizer_step_pre_hook(phase_ranges.before_optimizer)
    optimizer.register_optimizer_step_post_hook(phase_ranges.after_optimizer)


# --- what unstarve changes on request -------------------------------------------------------------------


def apply_tuning(settings: Settings) -> None:
    """Let loaders try other settings while training runs."""
    assert settings is not None
    assert settings.tune is not None
    tuning = start_tuning(settings, settings.tune)
    replace("tuning", stock.DataLoader, "__init__", tuning.creation)
    replace("tuning", stock.DataLoader, "__iter__", tuning.iteration)


def apply_saved(settings: Settings) -> None:
    """Create and iterate loaders with saved settings."""
    assert settings is not None
    saved = settings.saved
    if any(one.settings.get(part) for one in saved for part in PARTS):
        replace("saved settings", stock.DataLoader, "__iter__", iterate_with_parts)
    replace(
        "saved settings",
        stock.DataLoader,
        "__init__",
        lambda original: create_with_saved(original, saved, wrappers.lose),
    )


def apply_engine(settings: Settings) -> None:
    """Iterate torch's loaders on one of unstarve's engines."""
    assert settings is not None
    engine = settings.engine
    assert engine is not None
    replace("engine", stock.DataLoader, "__iter__", lambda original: iterate_on_engine(original, engine))


def apply_check(settings: Settings) -> None:
    """Check loaders when they are created and first iterated."""
    assert settings is not None
    assert settings.check is not None
    checks = ScriptChecks(settings, settings.check)

    def wrap(cls: Any) -> None:
        for method, wrapper in (("__init__", checks.beginning), ("__next__", checks.next_batch)):
            if method in vars(cls):
                replace("check", cls, method, wrapper)
        for loader in own_constructors(cls):
            replace("check", loader, "__init__", checks.creation)

    replace("check", stock.DataLoader, "__init__", checks.creation)
    for cls in iterator_classes():
        wrap(cls)
    wrap_later_iterators("check", wrap)
