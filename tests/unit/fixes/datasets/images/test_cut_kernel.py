"""The CUDA kernel, compiled for the CPU: its pixels are the codec's, and it reads its table as written."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cut_cases import CUTS, MEAN, STD, picture
from unstarve.fixes.datasets.images import cut_kernel, image_codec
from unstarve.fixes.datasets.images.cut_kernel import cut_images
from unstarve.fixes.datasets.images.device_cut import turned_upright
from unstarve.fixes.datasets.images.image_codec import Cut, PixelValues

COMPILER = shutil.which(os.environ.get("CXX", "c++"))
pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")

CUDA = r"""
#include <algorithm>
#include <cmath>
using std::max;
using std::min;
#define __device__ static
#define __global__
struct Place { int x, y, z; };
static Place blockIdx, blockDim, threadIdx;
"""
LAUNCH = r"""
#define LAUNCHED(kernel, type) \
    extern "C" void launch_##kernel(int x, int y, int z, int i, int j, int k, const wide* table, type* out, \
                                    const float* values, int height, int width, int by_image, \
                                    int by_channel, int by_row, int by_column) { \
        blockIdx = {x, y, z}; \
        threadIdx = {i, j, k}; \
        kernel(table, out, values, height, width, by_image, by_channel, by_row, by_column); \
    } \
    extern "C" void block_##kernel(int x, int y, int z) { blockDim = {x, y, z}; }
LAUNCHED(cut_to_bytes, byte)
LAUNCHED(cut_to_floats, float)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("kernel")
    (folder / "kernel.cpp").write_text(CUDA + cut_kernel._SOURCE + LAUNCH)
    command = [str(COMPILER), "-std=c++17", "-O2", "-shared", "-fPIC", "-o", "kernel.so", "kernel.cpp"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernel.so"))


@pytest.fixture
def on_the_cpu(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(device: torch.device, name: str) -> Callable[..., None]:
        def launch(grid: Any, block: Any, args: Any) -> None:
            getattr(library, f"block_{name}")(*block)
            values = [ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else a for a in args]
            for place in itertools.product(*map(range, grid)):
                for thread in itertools.product(*map(range, block)):
                    getattr(library, f"launch_{name}")(*place, *thread, *values)

        return launch

    monkeypatch.setattr(cut_kernel, "_kernel", kernel)


WHOLES = [picture(seed) for seed in range(len(CUTS))]


def by_the_codec(
    wholes: list[torch.Tensor], cuts: list[Cut], like: torch.Tensor, values: Any
) -> torch.Tensor:
    out = torch.empty(like.shape, dtype=like.dtype)
    assert image_codec.cut(wholes, cuts, out, values, threads=1) == [None] * len(cuts)
    return out


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_cut_is_the_codecs_within_a_grey_level(layout: Any) -> None:
    out = torch.empty(len(CUTS), 3, 24, 30, dtype=torch.uint8).to(memory_format=layout)
    cut_images([whole.permute(2, 0, 1) for whole in WHOLES], CUTS, out, PixelValues())
    difference = (out.int() - by_the_codec(WHOLES, CUTS, out, PixelValues()).int()).abs()
    assert difference.max() <= 1
    assert difference.float().mean() < 0.25  # the codec rounds between rows and columns


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_same_bytes_become_the_same_numbers(dtype: torch.dtype) -> None:
    values, out = PixelValues(MEAN, STD), torch.empty(1, 3, 60, 80, dtype=dtype)
    cut_images([WHOLES[3].permute(2, 0, 1).contiguous()], [Cut()], out, values)
    assert torch.equal(out, by_the_codec([WHOLES[3]], [Cut()], out, values))


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("orientation", range(2, 9))
def test_images_that_lie_otherwise_in_memory_are_cut_as_they_are_seen(orientation: int) -> None:
    seen = turned_upright(WHOLES[2].permute(2, 0, 1), orientation)
    out = torch.empty(1, 3, 17, 19, dtype=torch.uint8)
    cut_images([seen], [Cut()], out, PixelValues())
    expected = by_the_codec([seen.permute(1, 2, 0).contiguous()], [Cut()], out, PixelValues())
    assert (out.int() - expected.int()).abs().max() <= 1
