"""What becomes of an image's bytes on their way into the batch: left alone, or scaled and normalized."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from unstarve.errors import UsageError

DTYPES = (torch.uint8, torch.float32, torch.float16, torch.bfloat16)
CHANNELS = 3


@dataclass(frozen=True)
class Finish:
    """How 0–255 end up in the batch.

    With neither mean nor std they stay as they are, whatever the batch's type. With one of them each value
    becomes (value / 255 - mean) / std, where a missing mean is 0 and a missing std is 1. One number serves
    all three channels.
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    @property
    def is_scaling(self) -> bool:
        """Whether values change at all."""
        return self.mean is not None or self.std is not None

    def scaling(self) -> torch.Tensor:
        """Return mean and std of each channel, float32 [2, 3]."""
        return torch.stack([_channels(self.mean, 0.0, "mean"), _channels(self.std, 1.0, "std")])

    @lru_cache(maxsize=32)  # noqa: B019  # few and small; each is made for every image otherwise
    def table(self, dtype: torch.dtype) -> torch.Tensor | None:
        """Return what each channel makes of each byte, [3, 256] of `dtype`; None where bytes stay bytes.

        A byte has 256 values, so that what torch makes of them is looked up: the same numbers to the last
        bit, whoever decodes. All callers share it: it is not to be written to.
        """
        if dtype not in DTYPES:
            raise UsageError(f"images are written as uint8, float32, float16 or bfloat16, not as {dtype}")
        if not self.is_scaling:
            values = torch.arange(256, dtype=torch.float32).expand(CHANNELS, 256)
            return None if dtype == torch.uint8 else values.to(dtype).contiguous()
        if dtype == torch.uint8:
            raise UsageError("mean and std make fractions of bytes: choose a floating-point type, not uint8")
        scaling = self.scaling()
        mean, std = scaling[0], scaling[1]
        if (std == 0).any():
            raise UsageError("std is 0 in a channel, and nothing can be divided by it")
        values = torch.arange(256, dtype=torch.float32).div(255)
        return ((values - mean[:, None]) / std[:, None]).to(dtype).contiguous()

    @lru_cache(maxsize=32)  # noqa: B019  # as above
    def entries(self, dtype: torch.dtype) -> bytes:
        """Return the table's memory as compiled code takes it: nothing where bytes stay bytes."""
        table = self.table(dtype)
        return b"" if table is None else _bytes_of(table)

    @lru_cache(maxsize=32)  # noqa: B019  # as above
    def factors(self, dtype: torch.dtype) -> bytes:
        """Return `scaling` as compiled code takes it, where it may compute the table's values from that."""
        return _bytes_of(self.scaling()) if dtype == torch.float32 and self.is_scaling else b""


def _channels(numbers: tuple[float, ...] | None, default: float, name: str) -> torch.Tensor:
    given = (default,) if numbers is None else tuple(numbers)
    if len(given) not in (1, CHANNELS):
        raise UsageError(f"{name} needs one number or one for each of 3 channels, not {len(given)}")
    return torch.tensor(given, dtype=torch.float32).expand(CHANNELS)


def _bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.view(torch.uint8).numpy().tobytes()
