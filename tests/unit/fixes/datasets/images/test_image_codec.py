"""Each claim holds for the native decoder and for Pillow; the last ones compare the two."""

from __future__ import annotations

import io
import mmap
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from sample_images import image, with_size
from unstarve.errors import ImageError, MissingExtraError, UsageError
from unstarve.fixes.datasets.images import image_codec
from unstarve.fixes.datasets.images.image_codec import (
    Box,
    Cut,
    PixelValues,
    cut,
    decode_cuts,
    decode_whole,
    measure,
)
from unstarve.native import native

has_decoder = hasattr(native(), "decode_cuts")
needs_decoder = pytest.mark.skipif(not has_decoder, reason="built without libjpeg-turbo")

IMAGENET = PixelValues((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

JPEGS: dict[str, bytes] = {
    "4:4:4": image(67, 101, subsampling=0, quality=90),
    "4:2:2": image(67, 101, subsampling=1, quality=90),
    "4:2:0": image(67, 101, subsampling=2, quality=75),
    "progressive": image(67, 101, progressive=True, quality=95),
    "grey": image(67, 101, mode="L"),
    "optimized": image(67, 101, optimize=True),
}
OTHERS: dict[str, bytes] = {
    "cmyk": image(67, 101, mode="CMYK"),
    "png": image(67, 101, "png"),
    "palette": image(67, 101, "png", mode="P"),
    "alpha": image(67, 101, "png", mode="RGBA"),
    "webp": image(67, 101, "webp"),
    "bmp": image(67, 101, "bmp"),
}
ALL = JPEGS | OTHERS


def cuts(
    images: list[bytes], boxes: list[Box | None], flip: bool = False, size: tuple[int, int] = (24, 31)
) -> torch.Tensor:
    out = torch.zeros((len(images), 3, *size), dtype=torch.uint8)
    errors = decode_cuts(images, [Cut(box, flip) for box in boxes], out, PixelValues(), threads=2)
    assert errors == [None] * len(images)
    return out


def as_array(file: bytes) -> np.ndarray:
    return np.frombuffer(file, np.uint8)


def upright(file: bytes) -> Image.Image:
    return ImageOps.exif_transpose(Image.open(io.BytesIO(file))).convert("RGB")


def expected(file: bytes, box: Box | None, flip: bool, size: tuple[int, int]) -> torch.Tensor:
    image = upright(file)
    if box is not None:
        image = image.crop((box.left, box.top, box.left + box.width, box.top + box.height))
    image = image.resize(size[::-1], Image.Resampling.BILINEAR)
    made = np.array(ImageOps.mirror(image) if flip else image)
    return torch.from_numpy(made).permute(2, 0, 1)


def assert_close(one: torch.Tensor, other: torch.Tensor) -> None:
    """Hold two decoders to the bound that the codec states."""
    difference = (one.int() - other.int()).abs()
    assert difference.max() <= 2
    assert difference.float().mean() <= 0.5


@pytest.mark.usefixtures("implementation")
class TestBoth:
    @pytest.mark.parametrize("kind", ALL)
    def test_every_kind_of_image_is_measured_decoded_and_cut(self, kind: str) -> None:
        file = ALL[kind]
        assert measure([file]) == [(67, 101)]
        assert_close(decode_whole(file), torch.from_numpy(np.array(upright(file))))
        for box in (None, Box(0, 0, 67, 101), Box(13, 40, 30, 50), Box(66, 100, 1, 1), Box(5, 0, 60, 3)):
            for flip in (False, True):
                assert_close(cuts([file], [box], flip)[0], expected(file, box, flip, (24, 31)))

    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_images_are_upright(self, orientation: int) -> None:
        file = image(40, 60, orientation=orientation)
        size = (60, 40) if orientation >= 5 else (40, 60)
        assert measure([file]) == [size]
        assert_close(decode_whole(file), torch.from_numpy(np.array(upright(file))))
        box = Box(7, 4, 25, 33)
        assert_close(cuts([file], [box], True)[0], expected(file, box, True, (24, 31)))

    @pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
    @pytest.mark.parametrize("orientation", [2, 3, 6])
    def test_images_are_as_stored_where_that_is_wanted(self, kind: str, orientation: int) -> None:
        file = image(40, 60, kind, orientation=orientation)
        stored = torch.from_numpy(np.array(Image.open(io.BytesIO(file)).convert("RGB")))
        assert measure([file], upright=False) == [(40, 60)]
        assert_close(decode_whole(file, upright=False), stored)
        out = torch.zeros((1, 3, 40, 60), dtype=torch.uint8)
        assert decode_cuts([file], [Cut()], out, PixelValues(), threads=1, upright=False) == [None]
        assert_close(out[0], stored.permute(2, 0, 1))

    @pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 50), (50, 1), (3, 2), (17, 16), (2, 300)])
    def test_small_and_odd_images(self, height: int, width: int) -> None:
        file = image(height, width)
        assert decode_whole(file).shape == (height, width, 3)
        for size in ((1, 1), (7, 5), (40, 33)):
            assert_close(cuts([file], [None], size=size)[0], expected(file, None, False, size))

    def test_random_boxes_of_a_photograph_sized_image(self) -> None:
        random = np.random.default_rng(3)
        file = image(375, 500, quality=90)
        for _ in range(12):
            height, width = (int(side) for side in random.integers(1, (376, 501)))
            box = Box(
                int(random.integers(0, 376 - height)), int(random.integers(0, 501 - width)), height, width
            )
            assert_close(cuts([file], [box], size=(64, 64))[0], expected(file, box, False, (64, 64)))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
    @pytest.mark.parametrize(
        "finish", [PixelValues(), IMAGENET, PixelValues(mean=(0.5,)), PixelValues(std=(0.25,))]
    )
    def test_bytes_are_finished_as_torch_would(
        self, dtype: torch.dtype, layout: torch.memory_format, finish: PixelValues
    ) -> None:
        files = [ALL["4:2:0"], ALL["png"]]
        raw = cuts(files, [None, None], True).float()
        out = torch.empty((2, 3, 24, 31), dtype=dtype, memory_format=layout)
        assert decode_cuts(files, [Cut(None, True)] * 2, out, finish, threads=1) == [None, None]
        if finish != PixelValues():
            mean = torch.tensor(finish.mean or (0.0,)).view(-1, 1, 1)
            raw = (raw / 255 - mean) / torch.tensor(finish.std or (1.0,)).view(-1, 1, 1)
        torch.testing.assert_close(out, raw.to(dtype), rtol=0, atol=0)

    def test_decoded_pixels_are_cut_like_files(self) -> None:
        files = list(ALL.values())
        boxes: list[Box | None] = [Box(i, 2 * i, 40, 50) for i in range(len(files))]
        wholes = [decode_whole(file) for file in files]
        for layout in (torch.contiguous_format, torch.channels_last):
            out = torch.zeros((len(files), 3, 24, 31), dtype=torch.uint8).contiguous(memory_format=layout)
            assert not any(cut(wholes, [Cut(box, True) for box in boxes], out, PixelValues(), threads=2))
            assert torch.equal(out, cuts(files, boxes, True))

    @pytest.mark.parametrize(
        "keep", [bytes, bytearray, memoryview, lambda file: np.frombuffer(file, np.uint8)]
    )
    def test_a_file_may_lie_in_any_buffer(self, keep: Any) -> None:
        file = ALL["4:2:0"]
        assert measure([keep(file)]) == [(67, 101)]
        assert torch.equal(decode_whole(keep(file)), decode_whole(file))

    def test_a_file_may_be_mapped(self) -> None:
        file = ALL["4:2:0"]
        with mmap.mmap(-1, len(file)) as mapped:
            mapped.write(file)
            out = torch.zeros((1, 3, 24, 31), dtype=torch.uint8)
            assert decode_cuts([mapped], [Cut()], out, PixelValues(), threads=1) == [None]
        assert torch.equal(out, cuts([file], [None]))

    def test_more_threads_than_images_and_none_at_all(self) -> None:
        files = [ALL["4:2:0"], ALL["png"], ALL["progressive"]] * 4
        all_cuts = [Cut(Box(i, i, 30, 40)) for i in range(len(files))]
        alone = torch.zeros((len(files), 3, 8, 8))
        together = torch.zeros_like(alone)
        decode_cuts(files, all_cuts, alone, IMAGENET, threads=1)
        decode_cuts(files, all_cuts, together, IMAGENET, threads=50)
        assert torch.equal(alone, together)
        assert decode_cuts([], [], torch.empty((0, 3, 8, 8)), IMAGENET, threads=4) == []
        assert measure([]) == []

    @pytest.mark.parametrize(
        "file",
        [b"", b"\xff", b"no image", b"\xff\xd8\xff", ALL["4:2:0"][:100], ALL["4:2:0"][:-1],
         ALL["png"][:200], ALL["progressive"][:-500], b"\xff\xd8\xff" + bytes(500),
         with_size(ALL["4:2:0"], 65500, 65500), with_size(ALL["4:2:0"], 0, 10)],
        ids=["empty", "one byte", "text", "start", "header", "no end", "png", "progressive", "zeros", "giant",
             "no height"],
    )  # fmt: skip
    def test_a_damaged_file_is_named_by_its_place_and_the_others_are_decoded(self, file: bytes) -> None:
        good = ALL["4:2:0"]
        out = torch.zeros((3, 3, 24, 31), dtype=torch.uint8)
        errors = decode_cuts([good, file, good], [Cut(Box(0, 0, 1, 1))] * 3, out, PixelValues(), threads=2)
        assert isinstance(errors[1], ImageError)
        assert str(errors[1])
        assert errors[0] is errors[2] is None
        assert torch.equal(out[0], out[2])
        with pytest.raises(ImageError):
            decode_whole(file)
        assert measure([good, file, good])[::2] == [(67, 101)] * 2

    @pytest.mark.parametrize("file", [b"", b"no image", with_size(ALL["4:2:0"], 65500, 65500)])
    def test_what_has_no_usable_header_cannot_be_measured(self, file: bytes) -> None:
        assert isinstance(measure([file])[0], ImageError)

    @pytest.mark.parametrize("kind", ["4:2:0", "png"])
    @pytest.mark.parametrize(
        "box",
        [Box(0, 0, 68, 10), Box(0, 0, 10, 102), Box(-1, 0, 5, 5), Box(0, -1, 5, 5), Box(0, 0, 0, 5),
         Box(0, 0, 5, 0), Box(67, 0, 1, 1), Box(0, 0, -1, -1), Box(2**62, 2**62, 2**62, 2**62)],
    )  # fmt: skip
    def test_a_box_outside_the_image_is_its_error(self, kind: str, box: Box) -> None:
        out = torch.zeros((1, 3, 8, 8), dtype=torch.uint8)
        whole = decode_whole(ALL[kind])
        for (error,) in (
            decode_cuts([ALL[kind]], [Cut(box)], out, PixelValues(), threads=1),
            cut([whole], [Cut(box)], out, PixelValues(), threads=1),
        ):
            assert str(error) == (
                f"the box of {box.height}×{box.width} pixels at row {box.top}, column {box.left} "
                "is not within the image of 67×101"
            )

    def test_calls_that_make_no_sense_are_refused(self) -> None:
        file, out = ALL["4:2:0"], torch.zeros((1, 3, 8, 8))
        for some, to, finish, threads in [
            ([], out, PixelValues(), 1),
            ([Cut()], out, PixelValues(), 0),
            ([Cut()], out[0], PixelValues(), 1),
            ([Cut()], torch.zeros((1, 4, 8, 8)), PixelValues(), 1),
            ([Cut()], torch.zeros((2, 3, 8, 8)), PixelValues(), 1),
            ([Cut()], torch.zeros((1, 3, 0, 8)), PixelValues(), 1),
            ([Cut()], torch.zeros((1, 3, 8, 16))[..., ::2], PixelValues(), 1),
            ([Cut()], out.double(), PixelValues(), 1),
            ([Cut()], out.to(torch.uint8), IMAGENET, 1),
            ([Cut()], out, PixelValues(mean=(0.5, 0.5)), 1),
            ([Cut()], out, PixelValues(std=(0.5, 0.0, 0.5)), 1),
        ]:
            with pytest.raises(UsageError):
                decode_cuts([file], some, to, finish, threads=threads)
        for whole in (torch.zeros(5, 5, 3), torch.zeros(3, 5, 5, dtype=torch.uint8),
                      torch.zeros(5, 10, 3, dtype=torch.uint8)[:, ::2]):  # fmt: skip
            with pytest.raises(UsageError):
                cut([whole], [Cut()], out, PixelValues(), threads=1)


@needs_decoder
def test_the_decoders_agree_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [
        image(height, width, seed=seed, quality=quality, subsampling=seed % 3, progressive=seed % 2 == 0)
        for seed, (height, width, quality) in enumerate(
            [(375, 500, 90), (333, 500, 75), (500, 375, 95), (123, 457, 85), (64, 64, 60), (31, 700, 90)]
        )
    ]
    boxes: list[Box | None] = [
        Box(1, 3, 30, 60),
        None,
        Box(100, 77, 320, 200),
        Box(60, 5, 63, 452),
        None,
        None,
    ]
    compiled = cuts(files, boxes, size=(48, 48)), [decode_whole(file) for file in files]
    monkeypatch.setattr(image_codec, "native", lambda: None)
    by_pillow = cuts(files, boxes, size=(48, 48)), [decode_whole(file) for file in files]
    assert_close(compiled[0], by_pillow[0])
    for one, other in zip(compiled[1], by_pillow[1], strict=True):
        assert_close(one, other)


def test_a_module_without_a_decoder_leaves_the_files_to_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_codec, "native", SimpleNamespace)
    assert measure([ALL["4:2:0"]]) == [(67, 101)]
    assert decode_whole(ALL["4:2:0"]).shape == (67, 101, 3)


@needs_decoder
def test_jpegs_need_no_pillow_and_others_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "PIL"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert decode_whole(ALL["4:2:0"]).shape == (67, 101, 3)
    for kind in ("png", "cmyk"):
        with pytest.raises(MissingExtraError, match=r"pip install 'unstarve\[images\]'"):
            decode_whole(ALL[kind])
