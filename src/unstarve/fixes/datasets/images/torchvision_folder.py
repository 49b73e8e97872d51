"""Translate torchvision's `ImageFolder` and its transforms into arguments of ours.

Nothing here imports torchvision: whoever made such a dataset has done so.
"""

from __future__ import annotations

import sys
from typing import Any

from torch.utils.data import Subset

from unstarve.errors import UsageError
from unstarve.fixes.datasets.images.crop_recipe import Decode
from unstarve.fixes.datasets.images.decode_crop import FOLDERS, DecodeCrop, FolderBatches, is_plain_folder


def is_folder(dataset: Any) -> bool:
    """Return whether it is torchvision's own `ImageFolder`, or a `Subset` of one."""
    if type(dataset) is Subset:
        return is_folder(dataset.dataset)
    folders = sys.modules.get(FOLDERS)
    return folders is not None and type(dataset) is folders.ImageFolder


def stand_in_for(dataset: Any, decode: Decode = "cpu") -> Any:
    """Return a dataset that makes batches of the samples of an `ImageFolder`, or a `Subset` of one, our way.

    Batches are on the CPU wherever they are decoded: the training loop that gets them knows nothing of this.
    It opens no file. Raises UsageError that names the part that cannot be translated.
    """
    if type(dataset) is Subset:
        return Subset(stand_in_for(dataset.dataset, decode), dataset.indices)
    arguments = arguments_of(dataset)
    del arguments["root"]
    return FolderBatches(dataset.samples, DecodeCrop(**arguments, decode=decode), to_host=True)


def arguments_of(dataset: Any) -> dict[str, Any]:
    """Return the arguments of an `ImageFolderDataset` that does the same as this `ImageFolder`.

    Raises UsageError that names the part that cannot be translated.
    """
    if not is_plain_folder(dataset) or dataset.loader is not sys.modules[FOLDERS].default_loader:
        raise UsageError("only a torchvision ImageFolder with the default loader can be replaced")
    if dataset.target_transform is not None:
        raise UsageError("its target_transform cannot be replaced: map targets in the training loop")
    return {"root": dataset.root, "exif": False} | arguments_of_transform(dataset.transform)


def arguments_of_transform(transform: Any) -> dict[str, Any]:
    """Return the arguments of a `DecodeCrop` that does the same as this `Compose` to an opened image.

    Raises UsageError that names the part that cannot be translated.
    """
    steps = getattr(transform, "transforms", None)
    if steps is None or not _is_torchvisions(transform, "Compose"):
        raise UsageError("its transform must be a Compose of known transforms")
    return _arguments_of_steps(list(steps))


def _is_torchvisions(transform: Any, name: str) -> bool:
    kind = type(transform)
    return kind.__name__ == name and kind.__module__.startswith("torchvision.")


def _arguments_of_steps(steps: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"flip": 0.0}
    order = [type(step).__name__ for step in steps if type(step).__module__.startswith("torchvision.")]
    if len(order) != len(steps) or order not in _RECIPES:
        raise UsageError(
            f"its transforms ({', '.join(type(step).__name__ for step in steps) or 'none'}) cannot be"
            " replaced: known are RandomResizedCrop or Resize and CenterCrop, then RandomHorizontalFlip,"
            " ToTensor and Normalize, in this order"
        )
    for name, step in zip(order, steps, strict=True):
        found |= _ARGUMENTS[name](step)
    return found


def _random_crop(step: Any) -> dict[str, Any]:
    _check_bilinear(step)
    return {"crop": "random_resized", "size": tuple(step.size), "scale": step.scale, "ratio": step.ratio}


def _resize(step: Any) -> dict[str, Any]:
    _check_bilinear(step)
    sizes = [step.size] if isinstance(step.size, int) else list(step.size)
    if len(sizes) != 1 or step.max_size is not None:
        raise UsageError("its Resize cannot be replaced: only one that sets the shorter side can")
    return {"resize": sizes[0]}


def _check_bilinear(step: Any) -> None:
    if getattr(step.interpolation, "value", step.interpolation) != "bilinear":
        raise UsageError(f"its {type(step).__name__} cannot be replaced: only bilinear resizing can")


def _center(step: Any) -> dict[str, Any]:
    return {"crop": "center", "size": tuple(step.size)}


def _flip(step: Any) -> dict[str, Any]:
    return {"flip": step.p}


def _to_tensor(step: Any) -> dict[str, Any]:
    return {}


def _normalize(step: Any) -> dict[str, Any]:
    return {"mean": tuple(step.mean), "std": tuple(step.std)}


_ARGUMENTS = {
    "RandomResizedCrop": _random_crop,
    "Resize": _resize,
    "CenterCrop": _center,
    "RandomHorizontalFlip": _flip,
    "ToTensor": _to_tensor,
    "Normalize": _normalize,
}
_RECIPES = [
    [*crop, *flip, "ToTensor", *normalize]
    for crop in (["RandomResizedCrop"], ["Resize", "CenterCrop"])
    for flip in ([], ["RandomHorizontalFlip"])
    for normalize in ([], ["Normalize"])
]
