"""What to set, in the words of the library that makes the loader, where its source must not be changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from unstarve.advise.patch.project import is_installed, package_of
from unstarve.model.saved import IMAGES, Setting

WITHOUT_CHANGE = "save it with --save FILE.toml and run with it: unstarve run --with FILE.toml CMD…"
_LIGHTNING = ("lightning", "pytorch_lightning", "lightning_fabric")


def what_to_set(path: Path, line: int, settings: Mapping[str, Setting]) -> str:
    """For a loader that a line of `path` makes; a sentence without its end."""
    if settings.get(IMAGES):  # no library has an argument for it
        return WITHOUT_CHANGE
    arguments = _arguments(settings)
    package = package_of(path)
    if package in ("transformers", "accelerate"):
        trainer = f"TrainingArguments({_arguments(settings, 'dataloader_')})"
        own = f", or {arguments} in the DataLoader that you give to accelerator.prepare"
        advice = f"with transformers.Trainer set {trainer}{own if package == 'accelerate' else ''}"
    elif package == "timm":
        workers = settings.get("num_workers")
        advice = (
            f"start timm's script with --workers {workers}, or set num_workers={workers} in create_loader(…)"
        )
    elif package in _LIGHTNING:
        advice = f"set {arguments} in the DataLoader of your LightningModule or LightningDataModule"
    elif is_installed(path):
        advice = f"set {arguments} where your code calls {package}"
    else:
        advice = f"set {arguments} in its line {line} yourself"
    return f"{advice}, or {WITHOUT_CHANGE}"


def _arguments(settings: Mapping[str, Setting], prefix: str = "") -> str:
    return ", ".join(f"{prefix}{name}={value!r}" for name, value in settings.items())
