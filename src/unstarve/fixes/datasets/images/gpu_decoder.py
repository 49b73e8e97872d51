"""Make batches of images on a GPU: its JPEG engines decode, the rest of the pipeline follows there.

Files are read, headers parsed and boxes drawn on the CPU, as for the CPU's path: the same seed cuts the same
boxes. What a GPU does not decode (progressive or damaged JPEGs, CMYK, other formats) is made on the CPU and
put into its place in the batch.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.utils.data import get_worker_info

from unstarve.errors import ImageError, UsageError
from unstarve.fixes.datasets.images import image_codec
from unstarve.fixes.datasets.images.crop_recipe import Recipe
from unstarve.fixes.datasets.images.device_cut import cut_on_device, turned_upright
from unstarve.fixes.datasets.images.image_codec import Cut, Header
from unstarve.fixes.memory.device_batches import use_on_this_stream
from unstarve.fixes.samples.random_streams import threads_here

if TYPE_CHECKING:
    from types import ModuleType

Encoded: TypeAlias = bytes | memoryview
Decode: TypeAlias = Callable[[Sequence[Encoded]], Sequence[torch.Tensor | None]]
"""Files to pixels, uint8 [3, h, w], or None for a file that is left to the CPU."""
Made: TypeAlias = tuple[torch.Tensor, list[ImageError | None]]
"""A batch, and an error or None for each image."""

_TRIAL_S = 0.5
_FEWEST = 8
"""Images of a batch on which "auto" decides: a GPU needs several at once."""
_WORTH = 2.0
"""How much faster "auto" wants the GPU to be, which has to train as well. Cores that are half as fast keep up
with a training that takes up to half of what the GPU could decode, and leave the GPU to it."""
_END = b"\xff\xd9"
"""What a JPEG ends with. A GPU decodes a file that has been cut off and does not say so."""
_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
"""Queues to the GPU. The decoder has 14 streams; where one of them shares a queue with training, an image
waits for all the work that training has launched. CUDA reads it when it is first used: 8 by default."""
_streams: dict[torch.device, list[torch.cuda.Stream]] = {}
"""Streams that no thread uses now. There are as many as batches were ever made at once: torch keeps memory
for each stream."""
_choosing = threading.Lock()
_chosen: dict[Recipe, tuple[str, str]] = {}
"""For recipes that leave it open: "cpu" or "cuda", and why."""


def why_no_gpu() -> str | None:
    """Say why images cannot be decoded on a GPU here; None if they can. CUDA is not initialized."""
    if torch.cuda.device_count() == 0:
        return "there is no CUDA device"
    try:
        _torchvision_io()
    except (ImportError, RuntimeError) as error:  # it raises either where its operators do not load
        return f"torchvision's CUDA decoder is missing ({error})"
    return None


def ask_for_queues() -> None:
    """Let CUDA have a queue for each stream of the decoder; call it before anything uses CUDA."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no types for it
        os.environ.setdefault(_CONNECTIONS, "32")


def describe_decoder(recipe: Recipe) -> str:
    """Say where images of this recipe are decoded, and why."""
    if recipe.decode != "auto":
        return recipe.decode
    if recipe in _chosen:
        return ": ".join(_chosen[recipe])
    return f"auto: not decided before the first batch of {_FEWEST} images or more"


def make_where_asked(
    images: Sequence[Encoded], headers: Sequence[Header | None], cuts: Sequence[Cut], recipe: Recipe
) -> Made:
    """Return a batch made on the GPU, or where `recipe.decode="auto"` finds that it is worth it.

    An image whose header is None is left out: its place in the batch is undefined. Raises UsageError for
    "cuda" where there is no GPU, and in a worker process, which must not use CUDA.
    """
    if recipe.decode == "auto":
        if get_worker_info() is not None:  # where neither the lock nor a choice of the parent counts
            return _made_on_cpu(images, headers, cuts, recipe)
        with _choosing:
            if recipe not in _chosen and (len(images) >= _FEWEST or why_no_gpu() is not None):
                _chosen[recipe] = _choose(images, headers, cuts, recipe)
        if recipe not in _chosen or _chosen[recipe][0] == "cpu":
            return _made_on_cpu(images, headers, cuts, recipe)
    if get_worker_info() is not None:
        raise UsageError(
            'decode="cuda" works in the training process, not in worker processes: use unstarve.DataLoader,'
            " or num_workers=0"
        )
    if (why := why_no_gpu()) is not None:
        raise UsageError(f'decode="cuda" cannot work here: {why}')
    return _made_on_gpu(images, headers, cuts, recipe)


def _choose(
    images: Sequence[Encoded], headers: Sequence[Header | None], cuts: Sequence[Cut], recipe: Recipe
) -> tuple[str, str]:
    """Time both ways on a batch, the CPU's with as many threads as it would have."""
    if (why := why_no_gpu()) is not None:
        return "cpu", why
    make = functools.partial(_made_on_gpu, images, headers, cuts, recipe)
    try:
        make()  # sets the decoder up
    except (UsageError, RuntimeError) as error:  # RuntimeError: what CUDA raises
        return "cpu", str(error).partition("\n")[0]
    on_gpu = len(images) / _seconds(make)
    make = functools.partial(_made_on_cpu, images, headers, cuts, recipe)
    on_cpu = len(images) / _seconds(make)
    if on_gpu >= _WORTH * on_cpu:
        return "cuda", f"{on_gpu:,.0f} images/s, {on_cpu:,.0f} on the CPU"
    return "cpu", f"{on_cpu:,.0f} images/s, {on_gpu:,.0f} on the GPU"


def _seconds(make: Callable[[], Made]) -> float:
    """Return the shortest of the times that `make` takes, called again for half a second."""
    taken: list[float] = []
    while sum(taken) < _TRIAL_S:
        begun_s = time.perf_counter()
        make()
        taken.append(time.perf_counter() - begun_s)
    return min(taken)


def _made_on_cpu(
    images: Sequence[Encoded], headers: Sequence[Header | None], cuts: Sequence[Cut], recipe: Recipe
) -> Made:
    del headers  # the codec reads them again
    batch = recipe.empty(len(images))
    errors = image_codec.decode_cuts(
        images, cuts, batch, recipe.values, threads=threads_here(), upright=recipe.upright
    )
    return batch, errors


def _made_on_gpu(
    images: Sequence[Encoded], headers: Sequence[Header | None], cuts: Sequence[Cut], recipe: Recipe
) -> Made:
    """Return the batch when it is complete; its memory is kept until the caller's stream is done with it."""
    _warn_of_few_queues()
    device = torch.device("cuda", torch.cuda.current_device())
    with beside_training(device):
        batch, errors = make_on(device, functools.partial(_decode, device), images, headers, cuts, recipe)
    use_on_this_stream(batch)
    return batch, errors


def on_host(batch: torch.Tensor) -> torch.Tensor:
    """Return a batch from the GPU in page-locked memory. The stream that trains is not waited for."""
    if not batch.is_cuda:
        return batch
    with beside_training(batch.device):
        return torch.empty_like(batch, device="cpu", pin_memory=True).copy_(batch, non_blocking=True)


@contextlib.contextmanager
def beside_training(device: torch.device) -> Iterator[None]:
    """Run work on a separate stream, and wait for its end; on the CPU, just run it.

    Nobody has to wait for that stream later, and host memory that the work reads is free again.
    """
    if device.type != "cuda":
        yield
        return
    idle = _streams.setdefault(device, [])
    try:
        stream = idle.pop()
    except IndexError:
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call] # torch has no types for it
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        done: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call] # torch has no types for it
        done.record(stream)
        done.synchronize()  # of a blocking event: waiting for the stream itself would keep a core busy
        idle.append(stream)


@functools.cache
def _warn_of_few_queues() -> None:
    if _CONNECTIONS not in os.environ:
        warnings.warn(
            f'decode="cuda" waits for training, because CUDA was in use before the dataset was made: set'
            f" {_CONNECTIONS}=32 in the environment, or make the dataset before the model",
            RuntimeWarning,
            stacklevel=2,
        )


def make_on(
    device: torch.device,
    decode: Decode,
    images: Sequence[Encoded],
    headers: Sequence[Header | None],
    cuts: Sequence[Cut],
    recipe: Recipe,
) -> Made:
    """Return a batch on `device`: of images that `decode` decodes, and of the others, made on the CPU."""
    allocate = functools.partial(_empty_on, device)
    plain = {
        at: header
        for at, (header, image) in enumerate(zip(headers, images, strict=True))
        if header is not None and header.is_plain_jpeg and bytes(image[-2:]) == _END
    }
    pixels = decode([images[at] for at in plain])
    decoded = {
        at: turned_upright(image, plain[at].orientation)
        for at, image in zip(plain, pixels, strict=True)
        if image is not None
    }
    there = recipe.empty(len(decoded), allocate)
    if decoded:
        cut_on_device([*decoded.values()], [cuts[at] for at in decoded], there, recipe.values)
    errors: list[ImageError | None] = [None] * len(images)
    if len(decoded) == len(images):
        return there, errors
    batch = recipe.empty(len(images), allocate)
    batch[[*decoded]] = there
    rest = [at for at, header in enumerate(headers) if header is not None and at not in decoded]
    if rest:
        chosen = [images[at] for at in rest], [headers[at] for at in rest], [cuts[at] for at in rest]
        here, found = _made_on_cpu(*chosen, recipe)
        batch[rest] = here.to(device)
        for at, error in zip(rest, found, strict=True):
            errors[at] = error
    return batch, errors


def _decode(device: torch.device, files: Sequence[Encoded]) -> list[torch.Tensor | None]:
    io = _torchvision_io()
    decode = functools.partial(io.decode_jpeg, mode=io.ImageReadMode.RGB, device=device)
    encoded = [_as_tensor(file) for file in files]
    try:
        return list(decode(encoded)) if encoded else []
    except RuntimeError as error:  # one of them is damaged
        _raise_out_of_memory(error)
        _check_decoder(device)
        return [_decoded_or_none(decode, file) for file in encoded]


@functools.cache
def _check_decoder(device: torch.device) -> None:
    """Raise UsageError if the decoder takes no image at all: torchvision may be built without it."""
    io = _torchvision_io()
    good = io.encode_jpeg(torch.zeros(3, 16, 16, dtype=torch.uint8))
    try:
        io.decode_jpeg([good], mode=io.ImageReadMode.RGB, device=device)
    except RuntimeError as error:
        raise UsageError(f"torchvision's CUDA decoder does not work here: {error}") from error


def _as_tensor(file: Encoded) -> torch.Tensor:
    return torch.frombuffer(bytearray(file) if isinstance(file, bytes) else file, dtype=torch.uint8)


def _decoded_or_none(
    decode: Callable[[torch.Tensor], torch.Tensor], file: torch.Tensor
) -> torch.Tensor | None:
    try:
        return decode(file)
    except RuntimeError as error:
        _raise_out_of_memory(error)
        return None


def _raise_out_of_memory(error: RuntimeError) -> None:
    if "out of memory" in str(error):  # torchvision makes another error of torch's
        raise error


def _torchvision_io() -> ModuleType:
    from importlib import import_module

    return import_module("torchvision.io")


def _empty_on(device: torch.device, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(tuple(shape), dtype=dtype, device=device)
