"""A rule about images that are decoded in full and then mostly cropped away."""

from __future__ import annotations

from collections.abc import Iterable

from unstarve.advise.diagnosis_facts import matters, stock_loader
from unstarve.advise.proposal import Edit, Proposal
from unstarve.model import Cause, Diagnosis, FunctionCost, Scenario
from unstarve.words import duration, percent

_DECODERS = ("/PIL/ImageFile.py", "/PIL/JpegImagePlugin.py", "/torchvision/io/")
_LIBRARIES = ("/PIL/", "/torchvision/")
_REPLACED = frozenset({
    "load", "copy", "convert", "crop", "_crop", "resize", "transpose", "tobytes", "__array_interface__",
    "pil_loader", "RandomResizedCrop", "RandomHorizontalFlip", "Resize", "CenterCrop", "ToTensor", "ToImage",
    "Normalize", "get_params", "resized_crop", "center_crop", "hflip", "to_tensor", "pil_to_tensor",
    "to_image", "to_dtype", "convert_image_dtype", "normalize", "resize_image", "horizontal_flip_image",
})  # fmt: skip
"""Functions and classes of these libraries whose work `ImageFolderDataset` takes over."""
_WORTH_DECODING = 0.1
_WORTH = 0.3
"""Smallest shares of the time spent making batches for which the rule applies."""

# Shares left of decoding, and of cropping and converting: measured by `unstarve bench --part images`.
_LIKELY = (0.5, 0.2)
_IN_TORCHS_LOADER = (0.7, 0.4)
_KEPT_DECODED = (0.0, 0.2)


def decode_only_the_crop(d: Diagnosis) -> Proposal | None:
    """Pillow decodes whole images, one by one, into memory that is thrown away."""
    demand, loader = d.demand, stock_loader(d)
    if demand is None or loader is None or not matters(d, Cause.CPU, Cause.CONTENTION):
        return None
    if not decodes_images(d):
        return None
    decoding, cutting = _shares(d)
    is_folder = loader.config.get("dataset") == "ImageFolder"
    own = "ImageFolderDataset" if is_folder else "DecodeCrop"
    finished = Scenario(left={"cpu": _left(d, *_LIKELY), "collate": 0.0, "handoff": 0.05})
    as_transform = Scenario(left={"cpu": _left(d, *_IN_TORCHS_LOADER)})
    kept = Scenario(left={"cpu": _left(d, *_KEPT_DECODED), "collate": 0.0, "handoff": 0.05})
    return Proposal(
        "decode-crop",
        f"unstarve.{own}",
        f"Decode only what the crop needs, without the GIL: unstarve.{own}",
        f"decoding takes {percent(decoding)} and cropping, resizing and converting {percent(cutting)} of the "
        f"{duration(demand.fetch_s)} that fetching a batch takes",
        Edit(dataset="unstarve.ImageFolderDataset.like({})", engine=True)
        if is_folder
        else Edit(before=_TRANSFORM_CODE),
        finished if is_folder else as_transform,
        worst=as_transform,
        best=kept,
    )


def decodes_images(d: Diagnosis) -> bool:
    """Whether much of the work on samples is decoding and cropping images."""
    decoding, cutting = _shares(d)
    return decoding >= _WORTH_DECODING and decoding + cutting >= _WORTH


def _shares(d: Diagnosis) -> tuple[float, float]:
    """Shares of making batches: decoding images, and other work on them that our decoder takes over."""
    sampled = [cost for cost in d.functions if cost.where is Cause.CPU and _is_of(cost, _LIBRARIES)]
    decoding = [cost for cost in sampled if _is_of(cost, _DECODERS)]
    cutting = [cost for cost in sampled if cost not in decoding and _REPLACED & set(cost.name.split("."))]
    return sum(cost.share for cost in decoding), sum(cost.share for cost in cutting)


def _is_of(cost: FunctionCost, files: Iterable[str]) -> bool:
    path = cost.file.replace("\\", "/")
    return any(part in path for part in files)


def _left(d: Diagnosis, of_decoding: float, of_cutting: float) -> float:
    """The share of a fetch's CPU time that is left."""
    decoding, cutting = _shares(d)
    return max(0.0, 1 - decoding * (1 - of_decoding) - cutting * (1 - of_cutting))


_TRANSFORM_CODE = (
    "decode_crop = unstarve.DecodeCrop(224, mean=MEAN, std=STD)",
    "image = decode_crop(path)   # in __getitem__; path or bytes",
    "# instead of Image.open, convert, RandomResizedCrop, flip, ToTensor, …",
)
