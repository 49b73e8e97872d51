"""A loader as those who make its batches see it."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader

from unstarve.marks import SITE
from unstarve.model import LoaderSettings
from unstarve.tune.stream import Stream

MOST_DEPTH = 8
"""Batches per worker that may be under way at most; a user's own setting may be higher."""


class Seen:
    """A loader as one crew sees it: with its own settings, and the stream for a sampler."""

    def __init__(self, loader: DataLoader[Any], stream: Stream, settings: LoaderSettings) -> None:
        self._loader = loader
        self._index_sampler = stream
        self.num_workers = settings.num_workers
        self.prefetch_factor = settings.prefetch_factor and max(settings.prefetch_factor, MOST_DEPTH)
        self.persistent_workers = loader.persistent_workers and settings.num_workers > 0
        self.generator = torch.Generator()  # what torch draws for this crew is not the user's to miss
        site = vars(loader).get(SITE)
        if site is not None:
            self.__dict__[SITE] = site

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
