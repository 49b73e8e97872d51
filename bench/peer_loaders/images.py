"""Other projects that decode images, each set up as its own documentation recommends for a random crop."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from peer_loaders.spdl import Pipelined
from unstarve.benchmark.bench_plan import BenchEntry
from unstarve.benchmark.optional_packages import installed
from unstarve.model import Kind

_SIZE = 224
_THREADS = 2
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _dali(images: Any) -> Any:
    dali = installed("nvidia.dali")
    fn, plugin = installed("nvidia.dali.fn"), installed("nvidia.dali.plugin.pytorch")
    pipeline = dali.Pipeline(batch_size=images.batch_size, num_threads=_THREADS, device_id=None)
    with pipeline:
        encoded, labels = fn.readers.file(file_root=str(images.root), random_shuffle=True, name="files")
        decoded = fn.decoders.image_random_crop(encoded, device="cpu", output_type=dali.types.RGB)
        resized = fn.resize(decoded, resize_x=_SIZE, resize_y=_SIZE)
        finished = fn.crop_mirror_normalize(
            resized, dtype=dali.types.FLOAT, output_layout="CHW", mirror=fn.random.coin_flip(),
            mean=[255 * value for value in _MEAN], std=[255 * value for value in _STD],
        )  # fmt: skip
        pipeline.set_outputs(finished, labels)
    return plugin.DALIGenericIterator(
        [pipeline], ["image", "label"], reader_name="files", auto_reset=True,
        last_batch_policy=plugin.LastBatchPolicy.PARTIAL,
    )  # fmt: skip


def _in_threads(decode: Any, images: Any) -> Any:
    """Let SPDL's threads call a decoder that releases the GIL."""
    paths = sorted(Path(images.root).rglob("*.jpg"))
    load = partial(_cut, decode, installed("cv2"), paths)
    return Pipelined(load, len(paths), images.batch_size, os.cpu_count() or 1)


def _cut(decode: Any, cv2: Any, paths: list[Path], index: int) -> torch.Tensor:
    from unstarve.fixes.datasets.images.crop_recipe import RATIO, SCALE
    from unstarve.fixes.datasets.images.random_cuts import RandomBoxes, draw_cuts

    pixels = decode(paths[index].read_bytes())
    (drawn,) = draw_cuts([pixels.shape[:2]], RandomBoxes(SCALE, RATIO), 0.5, torch.Generator())
    box: Any = drawn.box
    part = pixels[box.top : box.top + box.height, box.left : box.left + box.width]
    part = cv2.resize(part, (_SIZE, _SIZE), interpolation=cv2.INTER_AREA)
    if drawn.is_flipped:
        part = part[:, ::-1]
    mean, std = np.array(_MEAN, np.float32), np.array(_STD, np.float32)
    values = (part.astype(np.float32) / 255 - mean) / std
    return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))


def _simplejpeg(images: Any) -> Any:
    return _in_threads(installed("simplejpeg").decode_jpeg, images)


def _opencv(images: Any) -> Any:
    cv2 = installed("cv2")

    def decode(data: bytes) -> Any:
        return cv2.cvtColor(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)

    return _in_threads(decode, images)


IMAGE_PEERS = (
    BenchEntry("DALI on the CPU", Kind.PEER, _dali),
    BenchEntry("simplejpeg + OpenCV, SPDL", Kind.PEER, _simplejpeg),
    BenchEntry("OpenCV, SPDL", Kind.PEER, _opencv),
)
