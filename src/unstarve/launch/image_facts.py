"""Facts about image datasets: whether ours can replace them, and with which arguments.

They come from `fixes`, which `collect` does not know.
"""

from __future__ import annotations

from typing import Any

from unstarve.collect.dataset_facts import inside
from unstarve.errors import UsageError


def image_facts(dataset: Any) -> dict[str, Any]:
    """What is known of a dataset whose transform is one of torchvision's; empty for any other.

    ``recipe``
        The arguments of a `DecodeCrop` that does the same to an image file, as text: ``size=96, mean=…``.
    ``like``
        True if `ImageFolderDataset.like` accepts the dataset.
    ``like_not``
        Why it does not accept this `ImageFolder`: ``its transforms (…) cannot be replaced: …``.
    """
    own = inside(dataset)
    transform = getattr(own, "__dict__", {}).get("transform")
    if not type(transform).__module__.startswith("torchvision."):
        return {}
    # Only now: a training without torchvision's transforms imports nothing of this.
    from unstarve.fixes.datasets.images.torchvision_folder import (
        arguments_of,
        arguments_of_transform,
        is_folder,
    )

    facts: dict[str, Any] = {}
    reason = ""
    try:
        facts["recipe"] = _recipe(arguments_of_transform(transform))
        if is_folder(own):
            arguments_of(own)
    except UsageError as error:
        reason = str(error)
    if is_folder(own):
        if not reason and own.extensions is None:
            reason = "its is_valid_file is not known"
        facts |= {"like_not": reason} if reason else {"like": True}
    return facts


def _recipe(arguments: dict[str, Any]) -> str:
    """Arguments of a `DecodeCrop` as text, without those that are its defaults. Raises UsageError."""
    from unstarve.fixes.datasets.images.crop_recipe import RATIO, SCALE
    from unstarve.fixes.datasets.images.decode_crop import DecodeCrop

    DecodeCrop(**arguments)
    flip = 0.5 if arguments["crop"] == "random_resized" else 0.0
    usual = {"crop": "random_resized", "scale": SCALE, "ratio": RATIO, "flip": flip}
    plain = {name: _plain(value) for name, value in arguments.items()}
    shown = {name: value for name, value in plain.items() if value != usual.get(name)}
    if isinstance(shown["size"], tuple) and len(set(shown["size"])) == 1:
        shown["size"] = shown["size"][0]
    ordered = sorted(shown, key=lambda name: name != "size")
    return ", ".join(f"{name}={shown[name]!r}" for name in ordered) + ", exif=False"


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_plain(one) for one in value)
    return value if isinstance(value, (int, str)) else float(value)
