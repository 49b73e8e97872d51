"""The only file of this folder that assigns to torch's DataLoader. The other files make the replacements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch.utils.data import dataloader as stock

from unstarve.model.launch_settings import LaunchSettings, TuneSettings
from unstarve.model.saved import IMAGES, SavedLoader
from unstarve.steer.run_on_engine import iterate_on_engine
from unstarve.steer.saved_settings import create_with_saved, iterate_with_images
from unstarve.steer.tune_loaders import start_tuning


def apply_engine(engine: str) -> None:
    """Run every loader of this process on `engine`, or on the fastest one ("auto")."""
    stock.DataLoader.__iter__ = iterate_on_engine(stock.DataLoader.__iter__, engine)  # type: ignore[method-assign]  # a patch


def apply_saved(saved: Sequence[SavedLoader], failed: Callable[[str], object]) -> None:
    """Give every loader created at a saved place the settings saved for it; `failed` is told if it cannot."""
    if any(one.settings.get(IMAGES) for one in saved):
        stock.DataLoader.__iter__ = iterate_with_images(stock.DataLoader.__iter__)  # type: ignore[method-assign]  # a patch
    stock.DataLoader.__init__ = create_with_saved(stock.DataLoader.__init__, saved, failed)  # type: ignore[method-assign]  # a patch


def apply_tuning(settings: LaunchSettings, tune: TuneSettings) -> None:
    """Let the training loaders of this process tune themselves."""
    tuning = start_tuning(settings, tune)
    stock.DataLoader.__init__ = tuning.creation(stock.DataLoader.__init__)  # type: ignore[method-assign]  # a patch
    stock.DataLoader.__iter__ = tuning.iteration(stock.DataLoader.__iter__)  # type: ignore[method-assign]  # a patch
