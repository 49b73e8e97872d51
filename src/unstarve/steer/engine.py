"""`unstarve run --engine`: torch's own loaders in an unmodified script run on one of unstarve's engines.

The engines need all of torch, which is not there yet when its loader module is imported; so the first
loader that is iterated lets them in.
"""

from __future__ import annotations

import functools
from typing import Any

from torch.utils.data import dataloader as stock


def use_engine(engine: str) -> None:
    """Let every loader of this process run on `engine`, or on "auto": the fastest that can."""
    original = stock.DataLoader.__iter__

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:
        from unstarve.steer.install_engine import install

        stock.DataLoader.__iter__ = original  # type: ignore[method-assign] # as it was
        install(engine)
        return iter(self)

    stock.DataLoader.__iter__ = __iter__  # type: ignore[method-assign] # until the first loader is iterated
