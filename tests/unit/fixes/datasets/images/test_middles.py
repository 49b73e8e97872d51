"""The middle of a resized image: computed alone, with the pixels that it has in the whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sample_images import image
from unstarve.fixes.datasets.images import image_codec, pillow_decoder
from unstarve.fixes.datasets.images.crop_recipe import middle_of
from unstarve.fixes.datasets.images.image_codec import (
    Cut,
    PixelValues,
    Resized,
    cut,
    decode_cuts,
    decode_whole,
)

SIZES = [(67, 101), (101, 67), (30, 30), (9, 200), (300, 5), (1, 40), (3, 1), (480, 640)]


def made(file: bytes, to: Cut, height: int, width: int, **options: Any) -> torch.Tensor:
    out = torch.zeros((1, 3, height, width), dtype=torch.uint8)
    assert decode_cuts([file], [to], out, PixelValues(), threads=1, **options) == [None]
    return out[0]


def in_whole(file: bytes, part: Resized, height: int, width: int) -> torch.Tensor:
    whole = made(file, Cut(), part.height, part.width)
    return whole[:, part.top : part.top + height, part.left : part.left + width]


def kinds(height: int, width: int) -> list[bytes]:
    return [
        image(height, width, quality=90),
        image(height, width, progressive=True, orientation=6),
        image(height, width, orientation=3),
        image(height, width, "png"),
    ]


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("size", SIZES)
class TestBoth:
    def test_it_has_the_pixels_that_it_has_in_the_whole(self, size: tuple[int, int]) -> None:
        for file in kinds(*size):
            (measured,) = image_codec.measure([file])
            assert isinstance(measured, tuple)
            for shorter, height, width in ((40, 32, 40), (64, 24, 31)):
                part = middle_of(measured, shorter, height, width)
                expected = in_whole(file, part, height, width)
                assert torch.equal(made(file, Cut(None, False, part), height, width), expected)
                assert torch.equal(made(file, Cut(None, True, part), height, width), expected.flip(-1))

    def test_decoded_pixels_are_cut_like_files(self, size: tuple[int, int]) -> None:
        file = image(*size)
        to = Cut(None, True, middle_of(size, 40, 24, 31))
        out = torch.zeros((1, 3, 24, 31), dtype=torch.uint8)
        assert cut([decode_whole(file)], [to], out, PixelValues(), threads=1) == [None]
        assert torch.equal(out[0], made(file, to, 24, 31))


@pytest.mark.parametrize("size", SIZES)
def test_where_the_whole_would_be_too_large_pillow_computes_the_part_alone(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_codec, "native", lambda: None)
    file = image(*size, "png")
    part = middle_of(size, 40, 24, 31)
    expected = in_whole(file, part, 24, 31)
    monkeypatch.setattr(pillow_decoder, "_MOST_RESIZED_PIXELS", 0)
    difference = (made(file, Cut(None, False, part), 24, 31).int() - expected.int()).abs()
    assert difference.max() <= 1
    assert difference.float().mean() < 0.05


def test_a_part_that_is_not_within_the_resized_image_is_refused() -> None:
    if not hasattr(image_codec.native(), "decode_cuts"):
        pytest.skip("built without libjpeg-turbo")
    for part in (Resized(40, 40, 0, 10), Resized(40, 40, -1, 0), Resized(8, 40, 0, 0), Resized(0, 40, 0, 0)):
        with pytest.raises(ValueError, match="must be within"):
            made(image(30, 30), Cut(None, False, part), 24, 31)
