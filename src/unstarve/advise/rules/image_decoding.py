"""Rules about images that are decoded in full and then mostly cropped away."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from unstarve.advise.diagnosis_facts import matters, stock_loader, usable_cores
from unstarve.advise.gain import likely_speedup
from unstarve.advise.proposal import Edit, Proposal
from unstarve.advise.sample_facts import collates_by_default, fits_into_memory, takes_engine, text_fact
from unstarve.model import Cause, Diagnosis, FunctionCost, LoaderSummary, Rejected, Scenario
from unstarve.words import duration, percent, size, times

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
_ON_GPU = (0.03, 0.0)
"""65 µs of 4.4 ms an image on an H200, and reading the file."""
_KEPT_DECODED = (0.0, 0.2)
_DECODED = 16.0
"""Bytes of decoded pixels per byte of an image file; 10 is usual."""
_ENOUGH = 0.95
"""Share of the possible speed that leaves the GPU nothing to gain from decoding."""
_KEPT = "unstarve.ImageFolderDataset with cache='ram'"
_GPU = "unstarve.ImageFolderDataset with decode='cuda'"


_SAME_BOXES = (
    "The same seed gives the same crops and flips; pixels differ by less than one of 255 grey levels on "
    "average."
)


def decode_only_the_crop(d: Diagnosis) -> Proposal | Rejected | None:
    """Pillow decodes whole images, one by one, into memory that is thrown away."""
    demand, loader = d.demand, stock_loader(d)
    if demand is None or loader is None or not matters(d, Cause.CPU, Cause.CONTENTION):
        return None
    if not decodes_images(d):
        return None
    facts = loader.dataset
    reason = facts.get("like_not")
    if reason:
        return Rejected("decode-crop", "unstarve.ImageFolderDataset", str(reason).partition(": ")[0])
    is_folder = bool(facts.get("like")) and collates_by_default(loader)
    recipe = _keywords(text_fact(loader, "recipe") or "")
    if not is_folder and not recipe:
        return None  # its crop and normalization are not known
    own = "ImageFolderDataset" if is_folder else "DecodeCrop"
    finished = _finished(d)
    as_transform = Scenario(left={"cpu": _left(d, *_IN_TORCHS_LOADER)})
    kept = Scenario(left={"cpu": _left(d, *_KEPT_DECODED), "collate": 0.0, "handoff": 0.05})
    return Proposal(
        "decode-crop",
        f"unstarve.{own}",
        f"Decode only what the crop needs, without the GIL: unstarve.{own}",
        _measured(d, demand.fetch_s),
        Edit(dataset="unstarve.ImageFolderDataset.like({})", engine=True)
        if is_folder
        else Edit(before=_transform_code(loader, recipe)),
        finished if is_folder else as_transform,
        worst=as_transform,
        best=_on_all_cores(d, kept) if is_folder else finished,
        note=_SAME_BOXES,
    )


def decode_on_the_gpu(d: Diagnosis) -> Proposal | None:
    """A GPU that waits for images can decode them itself."""
    loader, like = stock_loader(d), decode_only_the_crop(d)
    if not isinstance(like, Proposal) or loader is None or d.device != "cuda":
        return None
    if not loader.dataset.get("like") or not takes_engine(loader):
        return None
    on_cpu = likely_speedup(d, _on_all_cores(d, _finished(d)))
    if d.headroom is None or on_cpu is None or on_cpu >= _ENOUGH * d.headroom.speedup:
        return None
    return Proposal(
        "decode-gpu",
        _GPU,
        f"Decode the images on the GPU: {_GPU}",
        f"{like.why}; if the CPU decoded only what the crop needs, the forecast is {times(on_cpu)} of the "
        f"{times(d.headroom.speedup)} that would be possible",
        Edit(dataset="unstarve.ImageFolderDataset.like({}, decode='cuda')", engine=True),
        Scenario(left={"cpu": _left(d, *_ON_GPU), "collate": 0.0, "handoff": 0.05}),
        worst=_finished(d),
        note="Batches are then on the GPU. It needs torchvision with CUDA; make the dataset before the model."
        " The same seed gives the same crops and flips; colours at sharp edges differ slightly.",
    )


def keep_decoded(d: Diagnosis) -> Proposal | Rejected | None:
    """Decoded images in memory are neither read nor decoded again: only the crop is random."""
    demand, loader = d.demand, stock_loader(d)
    if demand is None or loader is None or not loader.dataset.get("like"):
        return None
    reads = matters(d, Cause.DISK, Cause.REMOTE)
    if not collates_by_default(loader) or not (reads or decode_only_the_crop(d) is not None):
        return None
    length, each = loader.dataset.get("length"), loader.dataset.get("file_bytes")
    if not isinstance(length, int) or not isinstance(each, int) or not each:
        return None
    decoded_bytes = float(length) * each * _DECODED
    if not fits_into_memory(d, decoded_bytes):
        return Rejected("keep-decoded", _KEPT, f"decoded images need about {size(decoded_bytes)}")
    unread = {"disk": 0.0, "remote": 0.0}
    left = {"cpu": _left(d, *_KEPT_DECODED), "collate": 0.0, "handoff": 0.05}
    return Proposal(
        "keep-decoded",
        _KEPT,
        f"Keep the decoded images in memory: {_KEPT}",
        f"fetching a batch takes {duration(demand.fetch_s)}, and every epoch decodes the same images",
        Edit(dataset="unstarve.ImageFolderDataset.like({}, cache='ram')", engine=True),
        Scenario(left=unread | left),
        best=_on_all_cores(d, Scenario(left=unread | left)),
        worst=Scenario(left=unread | {"cpu": _left(d, *_LIKELY)}),
        note=f"It pays off from the second epoch on. {_SAME_BOXES}",
    )


def _finished(d: Diagnosis) -> Scenario:
    """Our decoder makes whole batches in threads."""
    return Scenario(left={"cpu": _left(d, *_LIKELY), "collate": 0.0, "handoff": 0.05})


def _measured(d: Diagnosis, fetch_s: float) -> str:
    decoding, cutting = _shares(d)
    return (
        f"decoding takes {percent(decoding)} and cropping, resizing and converting {percent(cutting)} of the "
        f"{duration(fetch_s)} that fetching a batch takes"
    )


def _on_all_cores(d: Diagnosis, scenario: Scenario) -> Scenario:
    """The same, where the threads of our loader split each batch: torch had no workers to share the work."""
    cores = usable_cores(d)
    if d.demand is None or d.demand.workers or cores is None:
        return scenario
    return replace(scenario, left={**scenario.left, "cpu": scenario.left["cpu"] / cores})


def _transform_code(loader: LoaderSummary, recipe: list[ast.keyword]) -> tuple[str, ...]:
    """The transform with the recorded arguments, and where it belongs."""
    opened = text_fact(loader, "opened") or "path"
    arguments = [f"    {one.arg}={ast.unparse(one.value)}," for one in recipe]
    return (
        "decode_crop = unstarve.DecodeCrop(",
        *arguments,
        ")",
        "# In __getitem__, opening the image and all its transforms become:",
        f"# decode_crop({opened})",
    )


def _keywords(recipe: str) -> list[ast.keyword]:
    """The arguments in a recorded recipe; none if one of them is not plain data."""
    try:
        call = ast.parse(f"f({recipe})", mode="eval").body
        found = call.keywords if isinstance(call, ast.Call) else []
        for one in found:
            ast.literal_eval(one.value)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # run files are untrusted input
        return []
    return found


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
