"""The engines in a script that knows nothing of them: every loader of torch in this process runs on one.

The script's own code decides what happens to a batch, so that none may share memory with the dataset unless
that is asked for by name: what is changed in place there would be changed for good.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from unstarve.fixes.loader.engines.choose_engine import Choice, choose
from unstarve.fixes.loader.engines.process_engines import ORIGINAL
from unstarve.model.engines import check_engine

RUNS_ON = "_unstarve_engine"
"""Attribute of a loader: the engine of its last epoch, for who reports on it."""

_torch_get_iterator = DataLoader._get_iterator


def install(engine: str = "auto") -> None:
    """Let torch's `DataLoader`, and subclasses that iterate through it, run on `engine` from now on.

    The choice is made for each loader when it is iterated. Where an engine asked for by name cannot run a
    loader, torch's own does, with one warning. Calling it again changes the engine. Subclasses with a
    `_get_iterator` of their own and `unstarve.DataLoader`, which chooses for itself, are left alone.
    """
    check_engine(engine)
    uninstall()
    torch_iter: Any = DataLoader.__iter__
    warned: list[str] = []

    @functools.wraps(torch_iter)
    def __iter__(self: DataLoader[Any]) -> Iterator[Any]:
        if type(self)._get_iterator is not _torch_get_iterator:
            iterator: Iterator[Any] = torch_iter(self)
            return iterator
        chosen = _choice(self, engine, warned)
        self.__dict__[RUNS_ON] = chosen.engine
        return chosen.iterate()

    setattr(__iter__, ORIGINAL, torch_iter)
    DataLoader.__iter__ = __iter__  # type: ignore[method-assign, assignment] # its users see an iterator alike


def uninstall() -> None:
    """Give torch's loaders back to torch."""
    replaced: Any = DataLoader.__iter__
    DataLoader.__iter__ = getattr(replaced, ORIGINAL, replaced)  # type: ignore[method-assign] # undoes the above


def _choice(loader: DataLoader[Any], engine: str, warned: list[str]) -> Choice:
    try:
        return choose(loader, engine, copy=engine == "auto")
    except ValueError as error:
        if not warned:
            warned.append(str(error))
            warnings.warn(f"{error}; torch's own runs it instead", stacklevel=3)
        return choose(loader, "stock")
