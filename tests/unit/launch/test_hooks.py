"""Every patch of torch is in one list, says what it wraps, and can be undone."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from inspect import isclass
from typing import Any

import pytest
from torch import autograd
from torch._C import _distributed_c10d
from torch.distributed import _functional_collectives
from torch.nn.parallel import distributed
from torch.utils.data import DataLoader, dataloader
from torch.utils.data._utils import fetch, pin_memory, worker

from unstarve.launch import hooks
from unstarve.model.launch_settings import CheckSettings, LaunchSettings
from unstarve.model.saved import SavedLoader

MODULES = (
    _distributed_c10d,
    _functional_collectives,
    autograd,
    distributed,
    dataloader,
    fetch,
    pin_memory,
    worker,
)


def owners() -> list[Any]:
    """Everything that may be patched: modules and classes, subclasses from elsewhere included."""
    classes = {value for module in MODULES for value in vars(module).values() if isclass(value)}
    pending = [dataloader._BaseDataLoaderIter]
    while pending:
        cls: Any = pending.pop()
        classes.add(cls)
        pending += cls.__subclasses__()
    return [*MODULES, *(cls for cls in classes if cls.__module__ != "builtins")]


def attributes() -> dict[str, dict[str, Any]]:
    """By owner: what it holds itself, without what Python adds when somebody looks."""
    own = {str(owner): dict(vars(owner)) for owner in owners()}
    for held in own.values():
        held.pop("__abstractmethods__", None)
        held.pop("_abc_impl", None)
    return own


@pytest.fixture(autouse=True)
def _detached() -> Iterator[None]:
    yield
    hooks.detach()


def apply_all(settings: LaunchSettings | None) -> None:
    for patch in hooks.PATCHES:
        if patch.needed is None or patch.needed(settings):
            patch.apply(settings)


@pytest.mark.parametrize(
    "settings",
    [
        None,
        LaunchSettings(parts="parts", version="0"),
        LaunchSettings(parts="parts", version="0", engine="auto"),
        LaunchSettings(parts="parts", version="0", check=CheckSettings()),
        LaunchSettings(parts="parts", version="0", saved=(SavedLoader("train.py:1", {"num_workers": 1}),)),
    ],
    ids=["notebook", "run", "engine", "check", "saved"],
)
def test_undoing_all_patches_leaves_torch_as_it_was(settings: LaunchSettings | None) -> None:
    before = attributes()
    apply_all(settings)
    patched = attributes()
    assert patched != before
    apply_all(None)
    if settings is None:
        assert attributes() == patched, "applying again changed something"
    hooks.detach()
    assert attributes() == before


def test_attaching_twice_wraps_once() -> None:
    original = DataLoader.__init__
    hooks.attach()
    once: Any = DataLoader.__init__
    assert once.__wrapped__ is original
    hooks.attach()
    assert DataLoader.__init__ is once


def test_an_iterator_class_that_is_defined_later_is_wrapped_until_detached() -> None:
    hooks.attach()

    class Later(dataloader._SingleProcessDataLoaderIter):
        def __next__(self) -> Any:
            return super().__next__()

    wrapped: Any = Later.__next__
    hooks.detach()
    assert Later.__next__ is wrapped.__wrapped__

    class Latest(dataloader._SingleProcessDataLoaderIter):
        def __next__(self) -> Any:
            return super().__next__()

    assert not hasattr(Latest.__next__, "__wrapped__")


def test_every_patch_says_what_it_wraps_and_why() -> None:
    names = [patch.name for patch in hooks.PATCHES]
    assert len(set(names)) == len(names)
    for patch in hooks.PATCHES:
        assert patch.why
        for wrapped in patch.wraps:
            if wrapped.startswith("torch."):
                assert callable(pkgutil.resolve_name(wrapped))


def test_what_a_recording_patches_is_what_the_list_says() -> None:
    before = attributes()
    apply_all(None)
    changed = {
        f"{owner.__module__}.{owner.__qualname__}.{name}" if isclass(owner) else f"{owner.__name__}.{name}"
        for owner in owners()
        if str(owner) in before
        for name, value in vars(owner).items()
        if before[str(owner)].get(name) is not value and name not in ("__abstractmethods__", "_abc_impl")
    }
    listed = {
        f"{owner.__module__}.{owner.__qualname__}.{name}" if isclass(owner) else f"{owner.__name__}.{name}"
        for patch in hooks.PATCHES
        if (patch.needed is None or patch.needed(None)) and patch is not hooks.COPIES  # only in some steps
        for wrapped in patch.wraps
        if wrapped.startswith("torch.") and not wrapped.endswith("__init_subclass__")
        for place, _, name in [wrapped.rpartition(".")]
        for owner in [pkgutil.resolve_name(place)]
    } | {"torch.utils.data.dataloader._BaseDataLoaderIter.__init_subclass__"}
    torch_only = {name for name in changed if name.startswith("torch.")}
    assert torch_only == listed
