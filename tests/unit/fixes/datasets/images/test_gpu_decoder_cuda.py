"""Decoding on a real GPU: the same boxes, and pixels within a stated bound of the CPU's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import unstarve
from cut_cases import CUTS, MEAN, STD, picture
from image_folders import break_image, make_folder
from unstarve.fixes.datasets.images import cut_kernel, device_cut, gpu_decoder, image_codec
from unstarve.fixes.datasets.images.image_codec import PixelValues

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:decode=.cuda. waits for training"),  # tests before used CUDA
]

WHOLE_COLOUR, HALVED_COLOUR = 0, 2
"""Pillow's `subsampling`. GPUs repeat halved colours where libjpeg-turbo interpolates them."""


def on_both(dtype: torch.dtype, values: PixelValues, cut: Any, **options: Any) -> tuple[Any, Any]:
    wholes = [picture(seed) for seed in range(len(CUTS))]
    there = torch.empty(len(CUTS), 3, 24, 30, dtype=dtype, device="cuda", **options)
    cut([whole.permute(2, 0, 1).contiguous().cuda() for whole in wholes], CUTS, there, values)
    here = torch.empty(len(CUTS), 3, 24, 30, dtype=dtype)
    image_codec.cut(wholes, CUTS, here, values, threads=1)
    return there.cpu(), here


@pytest.mark.parametrize("cut", [device_cut.cut_on_device, device_cut.cut_with_tensors])
def test_a_cut_is_the_codecs_within_a_grey_level(cut: Any) -> None:
    there, here = on_both(torch.uint8, PixelValues(), cut)
    assert (there.int() - here.int()).abs().max() <= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_cut_has_the_codecs_numbers_in_any_type(dtype: torch.dtype) -> None:
    there, here = on_both(dtype, PixelValues(MEAN, STD), device_cut.cut_on_device)
    assert (there.float() - here.float()).abs().max() <= 2.5 / 255 / min(STD)


def test_the_kernel_is_compiled_here() -> None:
    if hasattr(torch.cuda, "_compile_kernel"):
        assert cut_kernel.can_cut(torch.device("cuda", 0))


@pytest.mark.parametrize(("subsampling", "most", "mean"), [(WHOLE_COLOUR, 2, 0.5), (HALVED_COLOUR, 64, 4.0)])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("crop", ["random_resized", "center", None])
def test_batches_are_those_of_the_cpus_path(
    tmp_path: Path, crop: Any, workers: int, subsampling: int, most: int, mean: float
) -> None:
    root = make_folder(tmp_path, subsampling=subsampling)
    made = []
    for decode in ("cuda", "cpu"):
        images: Any = unstarve.ImageFolderDataset(
            root, 24, crop, dtype=torch.uint8, memory_format=torch.channels_last, decode=decode
        )
        torch.manual_seed(4)
        made.append(list(unstarve.DataLoader(images, batch_size=4, shuffle=True, num_workers=workers)))
    for (ours, targets), (theirs, other_targets) in zip(*made, strict=True):
        assert ours.is_cuda
        assert torch.equal(targets, other_targets)
        assert ours.is_contiguous(memory_format=torch.channels_last)
        difference = (ours.cpu().int() - theirs.int()).abs()
        assert difference.max() <= most
        assert difference.float().mean() <= mean


def test_a_batch_comes_back_to_the_host_in_pinned_memory() -> None:
    there = torch.rand(4, 3, 24, 30, device="cuda").contiguous(memory_format=torch.channels_last)
    here = gpu_decoder.on_host(there)
    assert here.is_pinned()
    assert here.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(here, there.cpu())


def test_a_damaged_file_takes_the_cpus_way(tmp_path: Path) -> None:
    root = make_folder(tmp_path)
    damaged = next(path for path in sorted(root.rglob("*.jpg")))
    damaged.write_bytes(damaged.read_bytes()[:-300])
    images = unstarve.ImageFolderDataset(root, 24, None, decode="cuda", on_error="zeros")
    loader: Any = unstarve.DataLoader(images, batch_size=len(images))
    with pytest.warns(RuntimeWarning, match="cannot be decoded: truncated"):
        ((batch, _),) = loader
    assert images.failed == [str(damaged)]
    assert batch[images.samples.index((str(damaged), 0))].abs().max() == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_images_left_out_are_gone_before_training_reads_the_batch(tmp_path: Path, workers: int) -> None:
    root = make_folder(tmp_path, count=64)
    for path in sorted(root.rglob("*.jpg"))[::9]:
        break_image(path)
    made = []
    for decode in ("cuda", "cpu"):
        images: Any = unstarve.ImageFolderDataset(
            root, 24, None, dtype=torch.uint8, decode=decode, on_error="skip"
        )
        loader: Any = unstarve.DataLoader(images, batch_size=8, num_workers=workers)
        with pytest.warns(RuntimeWarning, match="cannot be decoded"):
            batches = [(busy(batch), targets) for batch, targets in loader]
        made.append([(batch.cpu(), targets) for batch, targets in batches])
    for (ours, targets), (theirs, other_targets) in zip(*made, strict=True):
        assert torch.equal(targets, other_targets)
        assert (ours.float() - theirs.float()).abs().mean() <= 4.0


def busy(batch: Any) -> Any:
    """Copy the batch, on a GPU behind milliseconds of other work, and let go of it."""
    if batch.is_cuda:
        a = torch.ones(4096, 4096, device="cuda")
        for _ in range(8):
            a = a @ a
    return batch.clone()


def test_workers_of_torch_get_an_error_and_no_context(tmp_path: Path) -> None:
    images = unstarve.ImageFolderDataset(make_folder(tmp_path), 24, decode="cuda")
    with pytest.raises(unstarve.errors.UsageError, match="not in worker processes"):
        next(iter(DataLoader(images, num_workers=1)))


def test_auto_says_what_it_measured(tmp_path: Path) -> None:
    images: Any = unstarve.ImageFolderDataset(make_folder(tmp_path), 23, decode="auto")
    next(iter(unstarve.DataLoader(images, batch_size=8)))
    assert images.decoder.startswith(("cuda: ", "cpu: "))
    assert "images/s" in images.decoder
    assert gpu_decoder.why_no_gpu() is None
