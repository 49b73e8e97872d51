"""Images that say how they were held: as Pillow's `exif_transpose` turns them, or not at all."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from hostile_images import exif, with_app1, xmp
from sample_images import ORIENTATION, image
from unstarve.fixes.datasets.images.image_codec import Cut, PixelValues, decode_cuts, decode_whole, measure

# Files as libjpeg-turbo and our own decoder read them, with and without a density in front of the metadata,
# which decides when Pillow reads EXIF.
PLAIN = image(20, 40)
FILES = {
    "baseline": PLAIN,
    "progressive": image(20, 40, progressive=True),
    "no density": PLAIN[:2] + PLAIN[20:],
}
RATIO = exif(26, 5) + struct.pack("<LL", 12, 2)

STATED: dict[str, tuple[bytes, ...]] = {
    "nothing": (),
    "exif": (exif(6),),
    "xmp": (xmp(6),),
    "exif before xmp": (exif(3), xmp(6)),
    "exif after xmp": (xmp(6), exif(3)),
    "xmp twice": (xmp(6), xmp(3)),
    "second xmp says nothing": (xmp(6), xmp("none")),
    "xmp says nine": (xmp(9),),
    "exif twice": (exif(6), exif(3)),
    "exif in two segments": (exif(6)[:20], b"Exif\x00\x00" + exif(6)[20:]),
    "exif named twice": (b"Exif\x00\x00" + exif(6),),
    "exif says one, xmp six": (exif(1), xmp(6)),
    "exif says nine, xmp six": (exif(9), xmp(6)),
    "exif without numbers, xmp": (exif(6, count=0), xmp(8)),
    "exif of a type that nobody knows, xmp": (exif(6, 99), xmp(8)),
    "no exif but its name, xmp": (b"Exif\x00\x00", xmp(8)),
    "exif is no tiff, xmp": (b"Exif\x00\x00XX*\x00" + bytes(20), xmp(6)),
    "exif of a tiff of 64 bits, xmp": (b"Exif\x00\x00II+\x00" + bytes(20), xmp(6)),
    "exif is cut short, xmp": (exif(6)[:13], xmp(6)),
    "exif is cut short in its entry, xmp": (exif(6)[:20], xmp(8)),
    "exif elsewhere": (exif(200), xmp(5)),
    "big-endian": (exif(6, order=">"),),
    "byte": (exif(6, 1),),
    "32 bits": (exif(6, 4),),
    "signed": (exif(6, 8),),
    "negative": (exif(-6, 8),),
    "real": (exif(6, 11),),
    "ratio": (RATIO,),
    "two numbers": (exif(6, count=2),),
    "a thousand numbers, xmp": (exif(6, count=1000), xmp(5)),
    "not exif": (b"Exif\x00" + exif(6)[5:],),
    "extended xmp": (b"http://ns.adobe.com/xmp/extension/\x00" + xmp(6)[29:],),
}


def by_pillow(file: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(file))
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # what Pillow cannot read turns nothing
        return image


def stated_to_pillow(file: bytes) -> object:
    """Return what `exif_transpose` goes by, which itself fails where it cannot write the other EXIF."""
    try:
        return Image.open(io.BytesIO(file)).getexif().get(ORIENTATION)
    except Exception:
        return None


def pixels(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image.convert("RGB")))


def assert_close(one: torch.Tensor, other: torch.Tensor) -> None:
    assert one.shape == other.shape
    assert (one.int() - other.int()).abs().max() <= 2


@pytest.mark.usefixtures("implementation")
@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # Pillow's, of damaged EXIF
class TestBoth:
    @pytest.mark.parametrize("kind", FILES)
    @pytest.mark.parametrize("what", STATED)
    def test_images_are_turned_as_pillow_turns_them(self, what: str, kind: str) -> None:
        file = with_app1(FILES[kind], *STATED[what])
        expected = by_pillow(file)
        assert measure([file]) == [(expected.height, expected.width)]
        assert_close(decode_whole(file), pixels(expected))

    @pytest.mark.parametrize("kind", FILES)
    @pytest.mark.parametrize("what", STATED)
    def test_nothing_is_turned_where_that_is_not_wanted(self, what: str, kind: str) -> None:
        file = with_app1(FILES[kind], *STATED[what])
        stored = pixels(Image.open(io.BytesIO(file)))
        assert measure([file], upright=False) == [(20, 40)]
        assert_close(decode_whole(file, upright=False), stored)
        out = torch.zeros((1, 3, 20, 40), dtype=torch.uint8)
        assert decode_cuts([file], [Cut()], out, PixelValues(), threads=1, upright=False) == [None]
        assert_close(out[0], stored.permute(2, 0, 1))

    def test_damaged_exif_is_read_as_pillow_reads_it(self) -> None:
        random = np.random.default_rng(5)
        parts = [exif(6), exif(3, order=">"), RATIO, exif(8, 4), xmp(5)]
        turned = 0
        for _ in range(400):
            damaged = [bytearray(parts[at]) for at in random.integers(0, len(parts), 2)]
            for segment in damaged:
                for _ in range(int(random.integers(0, 3))):
                    segment[int(random.integers(6, len(segment)))] = int(random.choice([0, 1, 6, 8, 42, 255]))
            file = with_app1(FILES[list(FILES)[int(random.integers(0, 3))]], *map(bytes, damaged))
            is_turned = stated_to_pillow(file) in (5, 6, 7, 8)
            assert measure([file]) == [(40, 20) if is_turned else (20, 40)], damaged
            turned += is_turned
        assert 100 < turned < 300

    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_a_tiff_is_as_pillow_decodes_it(self, orientation: int) -> None:
        file = io.BytesIO()
        Image.open(io.BytesIO(PLAIN)).save(file, "tiff", tiffinfo={ORIENTATION: orientation})
        for upright in (True, False):
            decoded = decode_whole(file.getvalue(), upright=upright)
            assert torch.equal(decoded, pixels(Image.open(io.BytesIO(file.getvalue()))))
            assert measure([file.getvalue()], upright=upright) == [decoded.shape[:2]]
