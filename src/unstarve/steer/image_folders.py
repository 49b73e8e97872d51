"""`unstarve run --with`, where the settings say so: unstarve reads the images of a script's image folder.

The loader keeps the script's own dataset, sampler and arguments; only its batches are made in another way.
"""

from __future__ import annotations

import functools
from typing import Any

from torch.utils.data import dataloader as stock

_WANTED = "_unstarve_images"
"""Attribute of a loader whose images unstarve reads."""


def read_images(loader: Any) -> None:
    """Let unstarve read the images of this loader from its next epoch on.

    Raises UsageError or ValueError, saying why, where it cannot: no image folder, a transform that is not
    known, no workers.
    """
    from unstarve.fixes.datasets.images.torchvision_folder import stand_in_for
    from unstarve.fixes.loader.engines.choose_engine import choose
    from unstarve.fixes.loader.engines.thread_engine import STAND_IN
    from unstarve.steer.install_engine import RUNS_ON

    loader.__dict__[STAND_IN] = stand_in_for(loader.dataset)
    choose(loader, "threads")
    loader.__dict__[RUNS_ON] = "threads"
    loader.__dict__[_WANTED] = True


def use_images() -> None:
    """Let loaders for which `read_images` was called iterate accordingly."""
    original: Any = stock.DataLoader.__iter__

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:
        if _WANTED not in self.__dict__:
            return original(self)
        from unstarve.fixes.loader.engines.thread_engine import iterate

        return iterate(self)

    stock.DataLoader.__iter__ = __iter__  # type: ignore[method-assign]  # for as long as the process lives
