"""What tests here share: torch as it was after a recording in this process, and logs that are never late."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import isclass
from typing import Any

import pytest
from torch.utils.data import dataloader
from torch.utils.data._utils import fetch, pin_memory, worker

from unstarve.evaluate.evaluator import load_recorder as log_file

MODULES = (dataloader, fetch, pin_memory, worker)


def owners() -> list[Any]:
    """The modules and classes that are wrapped, subclasses from elsewhere included."""
    classes = {value for module in MODULES for value in vars(module).values() if isclass(value)}
    pending = [dataloader._BaseDataLoaderIter]
    while pending:
        cls: Any = pending.pop()
        classes.add(cls)
        pending += cls.__subclasses__()
    return [*MODULES, *(cls for cls in classes if cls.__module__ != "builtins")]


@pytest.fixture(autouse=True)
def _no_write_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are written when an epoch ends, however slow the disk is."""
    monkeypatch.setattr(log_file, "_COSTLY_NS", log_file.NEVER_NS)


@pytest.fixture
def torch_as_it_was() -> Iterator[None]:
    """Recording this very process wraps torch's loader for good: other tests must find it as it was."""
    before = [(owner, dict(vars(owner))) for owner in owners()]
    yield
    for owner, attributes in before:
        for name in set(vars(owner)) - set(attributes):
            delattr(owner, name)
        for name, value in attributes.items():
            if vars(owner).get(name) is not value:
                setattr(owner, name, value)
