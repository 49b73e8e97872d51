"""A CUDA kernel that cuts, resizes, flips and scales a whole batch of decoded images in one launch.

A launch per image would keep the GIL from training, which needs it to launch its own kernels. torch compiles
the kernel with NVRTC when it is first used; where torch cannot, `device_cut` does the same with tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from unstarve.fixes.datasets.images.image_codec import CHANNELS, Cut, PixelValues

_BLOCK = (32, 8, 1)

# A row of `table`: address of the pixels; their strides by channel, row and column; top, left, height and
# width of the box; height and width that it is resized to, and where the part of the batch begins; flipped.
_SOURCE = r"""
typedef unsigned char byte;
typedef long long wide;

struct Taps { int begin, end; float center, support, sum; };

__device__ Taps taps_at(wide at, wide pixels, wide resized) {
    Taps taps;
    const float scale = (float)pixels / (float)resized;
    taps.support = scale < 1.0f ? 1.0f : scale;
    taps.center = ((float)at + 0.5f) * scale;
    taps.begin = max(0, (int)floorf(taps.center - taps.support + 0.5f));
    taps.end = min((int)pixels, (int)floorf(taps.center + taps.support + 0.5f));
    taps.sum = 0.0f;
    for (int i = taps.begin; i < taps.end; ++i)
        taps.sum += fmaxf(0.0f, 1.0f - fabsf((float)i + 0.5f - taps.center) / taps.support);
    return taps;
}

__device__ float weight(const Taps& taps, int i) {
    return fmaxf(0.0f, 1.0f - fabsf((float)i + 0.5f - taps.center) / taps.support) / taps.sum;
}

template <typename T>
__device__ void cut(const wide* table, T* out, const float* values, int height, int width, int by_image,
                    int by_channel, int by_row, int by_column) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const wide* const row = table + (wide)blockIdx.z * 13;
    const byte* const pixels = (const byte*)row[0] + row[4] * row[2] + row[5] * row[3];
    const Taps down = taps_at(row[10] + y, row[6], row[8]);
    const Taps across = taps_at(row[11] + (row[12] ? width - 1 - x : x), row[7], row[9]);
    float sums[3] = {0.0f, 0.0f, 0.0f};
    for (int i = down.begin; i < down.end; ++i) {
        float line[3] = {0.0f, 0.0f, 0.0f};
        const byte* const there = pixels + i * row[2];
        for (int j = across.begin; j < across.end; ++j) {
            const float share = weight(across, j);
            for (int c = 0; c < 3; ++c) line[c] += share * (float)there[c * row[1] + j * row[3]];
        }
        const float share = weight(down, i);
        for (int c = 0; c < 3; ++c) sums[c] += share * line[c];
    }
    T* const to = out + (wide)blockIdx.z * by_image + (wide)y * by_row + (wide)x * by_column;
    for (int c = 0; c < 3; ++c) {
        const int grey = min(255, max(0, (int)rintf(sums[c])));
        to[(wide)c * by_channel] = values ? (T)values[c * 256 + grey] : (T)grey;
    }
}

#define NAMED(name, type, table_of_values) \
    extern "C" __global__ void name(const wide* table, type* out, const float* values, int height, \
                                    int width, int by_image, int by_channel, int by_row, int by_column) { \
        cut<type>(table, out, table_of_values, height, width, by_image, by_channel, by_row, by_column); \
    }
NAMED(cut_to_bytes, byte, nullptr)
NAMED(cut_to_floats, float, values)
"""


def can_cut(device: torch.device) -> bool:
    """Whether the kernel compiles for this device. The first call takes about a second."""
    return _kernel(device, "cut_to_floats") is not None


def cut_images(
    images: Sequence[torch.Tensor], cuts: Sequence[Cut], out: torch.Tensor, values: PixelValues
) -> None:
    """Do what `device_cut.cut_on_device` does, for images whose pixels are on the device of `out`."""
    table = torch.from_numpy(_table(images, cuts, out)).to(out.device, non_blocking=True)
    target = out if out.dtype in (torch.uint8, torch.float32) else torch.empty_like(out, dtype=torch.float32)
    numbers = values.table(torch.float32) if target.dtype == torch.float32 else None
    # Bytes need no values, but the kernel takes a pointer.
    there = table if numbers is None else _on_device(values, out.device)
    name = "cut_to_bytes" if numbers is None else "cut_to_floats"
    kernel = _kernel(out.device, name)
    assert kernel is not None, "can_cut was asked"
    height, width = out.shape[2:]
    grid = -(-width // _BLOCK[0]), -(-height // _BLOCK[1]), len(images)
    kernel(grid=grid, block=_BLOCK, args=[table, target, there, height, width, *target.stride()])
    if target is not out:
        out.copy_(target)


def _table(images: Sequence[torch.Tensor], cuts: Sequence[Cut], out: torch.Tensor) -> Any:
    height, width = out.shape[2:]
    rows = []
    for image, cut in zip(images, cuts, strict=True):
        box = cut.box or (0, 0, *image.shape[1:])
        resized = cut.resized or (height, width, 0, 0)
        rows.append((image.data_ptr(), *image.stride(), *box, *resized, cut.is_flipped))
    return np.array(rows, np.int64)


@functools.lru_cache(maxsize=32)
def _on_device(values: PixelValues, device: torch.device) -> torch.Tensor:
    table = values.table(torch.float32)
    assert table is not None, "floats have one"
    return table.to(device)


@functools.cache
def _kernel(device: torch.device, name: str) -> Callable[..., None] | None:
    compile_kernel = getattr(torch.cuda, "_compile_kernel", None)  # since torch 2.9, not public yet
    if compile_kernel is None:
        return None
    assert CHANNELS == 3, "as in the kernel"
    with torch.cuda.device(device):
        try:
            kernel: Callable[..., None] = compile_kernel(_SOURCE, name)
        except Exception:  # no NVRTC, or a torch whose arguments are others
            return None
    return kernel
