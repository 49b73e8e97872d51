"""`unstarve run --engine`: torch's own loaders in an unmodified script run on one of unstarve's engines.

The script decides what happens to a batch. So no batch shares memory with the dataset unless that engine was
requested by name: a change in place would change the dataset for good.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.utils.data import dataloader as stock

from unstarve.marks import RUNS_ON
from unstarve.model.engine_names import ORIGINAL, Engine
from unstarve.stack_levels import uncounted


def iterate_on_engine(original: Callable[..., Any], engine: str) -> Callable[..., Any]:
    """Return a replacement of ``DataLoader.__iter__`` that runs loaders on `engine` ("auto": the fastest).

    The engine is chosen for each loader when it is iterated. As in the Python API, a requested engine that
    cannot run a loader raises ValueError there. Subclasses with their own `_get_iterator` are left to
    `original`; `unstarve.DataLoader` has its own `__iter__`. Raises ValueError if there is no such engine.
    """
    Engine(engine)
    torch_get_iterator = stock.DataLoader._get_iterator

    @uncounted
    @functools.wraps(original)
    def __iter__(self: Any) -> Any:
        if type(self)._get_iterator is not torch_get_iterator:
            return original(self)
        chosen = _choice(self, engine)
        self.__dict__[RUNS_ON] = chosen.engine
        return chosen.iterate()

    vars(__iter__)[ORIGINAL] = original
    return __iter__


def _choice(loader: Any, engine: str) -> Any:
    # It needs all of torch, which is not there yet when torch's loader module is imported.
    from unstarve.fixes.loader.engines.choose_engine import choose

    try:
        return choose(loader, engine, copy=engine == "auto")
    except ValueError as error:
        raise ValueError(f"{error} (--engine auto chooses one for each loader)") from None
