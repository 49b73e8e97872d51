"""Loader arguments in the words of the framework that creates the loader, for advice and for patches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unstarve.model import LoaderSummary, Maker


@dataclass(frozen=True, slots=True)
class _Words:
    call: str
    """What the user writes, with the arguments in place of ``{}``."""
    names: Mapping[str, str]
    """The framework's name for each argument of DataLoader that it passes on."""
    dataset: str | None = None
    """Where the user passes the dataset, in place of ``{}``."""


_TABLE = {
    "transformers": _Words(
        "TrainingArguments({})",
        {
            "num_workers": "dataloader_num_workers",
            "prefetch_factor": "dataloader_prefetch_factor",
            "persistent_workers": "dataloader_persistent_workers",
            "pin_memory": "dataloader_pin_memory",
            "drop_last": "dataloader_drop_last",
            "batch_size": "per_device_train_batch_size",
        },
        "Trainer(…, train_dataset={})",
    ),
    "timm": _Words(
        "create_loader(…, {})",
        {name: name for name in ("num_workers", "persistent_workers", "pin_memory", "batch_size")},
        "create_loader({}, …)",
    ),
    "fastai": _Words(
        "dls = ….dataloaders(…, {})",
        {name: name for name in ("num_workers", "pin_memory", "drop_last")} | {"batch_size": "bs"},
    ),
}

_MODULE = "your LightningModule or LightningDataModule"
_OWN_CALL = {
    "lightning": _MODULE,
    "pytorch_lightning": _MODULE,
    "lightning_fabric": "the call that you pass to fabric.setup_dataloaders",
    "accelerate": "the call that you pass to accelerator.prepare",
}
"""Frameworks that use the user's own call of DataLoader, and where it stands."""


def framework_call(
    loader: LoaderSummary, change: Mapping[str, Any], plain_call: str | None = None
) -> str | None:
    """What to write so that the framework creates this loader with `change`; None for the user's own loader.

    `change` names arguments of DataLoader. A comment names each that the framework cannot set. A loader that
    the user creates in a method for Lightning is changed there: the name of the method comes before
    `plain_call`, the changed call of DataLoader.
    """
    return None if loader.maker is None else words_of(loader.maker, change, plain_call)


def words_of(maker: Maker, change: Mapping[str, Any], plain_call: str | None = None) -> str:
    """The same for the maker of a loader."""
    own_call = _OWN_CALL.get(maker.framework)
    if own_call is not None:
        call = plain_call or f"DataLoader(…, {as_arguments(change)})"
        return f"# in {maker.function or own_call}\n{call}"
    words = _TABLE.get(maker.framework)
    if words is None:
        return f"# where your code calls {maker.framework}\n{as_arguments(change)}"
    names = dict(words.names)
    if _evaluates(maker):
        names["batch_size"] = names["batch_size"].replace("_train_", "_eval_")
    lines = []
    rest = dict(change)
    if maker.option is not None and "num_workers" in rest:
        lines.append(f"{maker.option} {rest.pop('num_workers')}")
    known = {names[name]: value for name, value in rest.items() if name in names}
    if known:
        lines.append(words.call.format(as_arguments(known)))
    missing = [name for name in rest if name not in names]
    if missing:
        lines.append(f"# {maker.framework} cannot set {', '.join(missing)}")
    return "\n".join(lines)


def how_to_set(name: str, maker: Maker | None, change: Mapping[str, Any]) -> str:
    """The change of a loader's arguments in one line, in the words of its maker, without a full stop."""
    made = None if maker is None else words_of(maker, change)
    if made is not None and "\n" not in made and not made.startswith("#"):
        return f"Write {made}"
    return f"Pass {' and '.join(f'{key}={value!r}' for key, value in change.items())} to {name}"


def wrapped_dataset(maker: Maker, template: str) -> str:
    """How the user wraps the dataset of a loader that a framework creates; `template` has ``{}`` for it."""
    words = _TABLE.get(maker.framework)
    if words is None or words.dataset is None:
        return f"# and pass {template.format('dataset')} to {maker.framework}"
    if maker.framework != "transformers":
        return words.dataset.format(template.format("dataset"))
    name = "eval_dataset" if _evaluates(maker) else "train_dataset"
    return words.dataset.replace("train_dataset", name).format(template.format(name))


def _evaluates(maker: Maker) -> bool:
    return "eval" in (maker.function or "") or "test" in (maker.function or "")


def as_arguments(change: Mapping[str, Any]) -> str:
    """``num_workers=8, prefetch_factor=4``."""
    return ", ".join(f"{name}={value!r}" for name, value in change.items())
