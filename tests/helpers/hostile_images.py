"""Images made to hurt a decoder: small files that ask for much, and files that lie about themselves."""

from __future__ import annotations

import io
import struct
import zlib

from PIL import Image

from sample_images import image, with_size

_EXIF = b"Exif\x00\x00"
_XMP = b"http://ns.adobe.com/xap/1.0/\x00"


def flat(height: int, width: int, kind: str = "jpeg", mode: str = "RGB") -> bytes:
    """Return an image of one colour: next to no bytes, however large it is."""
    file = io.BytesIO()
    Image.new(mode, (width, height), 1).save(file, kind)
    return file.getvalue()


def many_scans(height: int, width: int, scans: int) -> bytes:
    """Return a grey progressive JPEG that says in each scan but the first that nothing is to be added."""
    sides = struct.pack(">HH", height, width)
    blocks = -(-height // 8) * -(-width // 8)
    nothing = "0" + "1" * 14  # leaves out 32767 blocks, or all that there are
    file = [
        b"\xff\xd8",
        _segment(0xDB, bytes(1) + bytes([1]) * 64),
        _segment(0xC2, b"\x08" + sides + b"\x01" + b"\x01\x11\x00"),
        _segment(0xC4, b"\x00" + _one_code(0x00)),
        _segment(0xC4, b"\x10" + _one_code(0xE0)),
        _segment(0xDA, b"\x01\x01\x00" + b"\x00\x00\x00"),
        bytes(-(-blocks // 8)),
    ]
    coded = _bits(nothing * -(-blocks // 32767))
    for _ in range(scans - 1):
        file += [_segment(0xDA, b"\x01\x01\x00" + b"\x01\x3f\x00"), coded]
    return b"".join([*file, b"\xff\xd9"])


def with_app1(jpeg: bytes, *segments: bytes) -> bytes:
    """Return a JPEG that begins with these segments of metadata."""
    return jpeg[:2] + b"".join(_segment(0xE1, segment) for segment in segments) + jpeg[2:]


def exif(orientation: int, kind: int = 3, count: int = 1, order: str = "<") -> bytes:
    """Return EXIF that states an orientation; `kind` is the type of the number, 3 for 16 bits."""
    size = {1: "B", 3: "H", 4: "L", 6: "b", 8: "h", 9: "l", 11: "f"}.get(kind, "H")
    value = struct.pack(order + size, orientation).ljust(4, b"\x00")
    entry = struct.pack(order + "HHL", 0x0112, kind, count) + value
    start = b"II*\x00" if order == "<" else b"MM\x00*"
    return _EXIF + start + struct.pack(order + "LH", 8, 1) + entry + bytes(4)


def xmp(orientation: int | str) -> bytes:
    """Return XMP that states an orientation."""
    return _XMP + f'<x:xmpmeta><rdf:Description tiff:Orientation="{orientation}"/></x:xmpmeta>'.encode()


def png(height: int, width: int, *chunks: tuple[bytes, bytes], pixels: bytes = b"") -> bytes:
    """Return a grey PNG with this header, these chunks before its pixels, and these compressed pixels."""
    header = struct.pack(">LLBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", pixels), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, parts))


def tiff(*entries: tuple[int, int, int, int]) -> bytes:
    """Return a TIFF of these entries alone: tag, type, count, value or offset."""
    listed = b"".join(struct.pack("<HHLL", *entry) for entry in entries)
    return b"II*\x00" + struct.pack("<LH", 8, len(entries)) + listed + bytes(4)


def bad_images() -> dict[str, bytes]:
    """Images that must not be decoded, by their defect."""
    jpeg = image(67, 101)
    bomb = zlib.compress(bytes(80_000_000))
    giant = b"\xff" * 4
    sides = [(256, 4, 1, 40), (257, 4, 1, 40)]
    return {
        "empty": b"",
        "text": b"no image",
        "program for Ghostscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 40 40\n%%EndComments\n"
        b"{} loop\n%%EOF\n",
        "start of a jpeg": jpeg[:3],
        "half a jpeg": jpeg[: len(jpeg) // 2],
        "jpeg of 4 billion pixels": with_size(jpeg, 65500, 65500),
        "jpeg of more pixels than its bytes can hold": with_size(jpeg, 13000, 13000),
        "jpeg of 600 scans": many_scans(16, 16, 600),
        "progressive jpeg cut short": image(67, 101, progressive=True)[:-300],
        "half a png": image(67, 101, "png")[:900],
        "png of 4 billion pixels": png(65535, 65535),
        "png of a side too long": png(1, 2**20 + 1),
        "png without pixels": png(40, 40),
        "png whose text is a bomb": png(40, 40, (b"zTXt", b"text\x00\x00" + bomb)),
        "png whose header is cut short": b"\x89PNG\r\n\x1a\n" + _chunk((b"IHDR", b"\x00\x00")),
        "gif of 4 billion pixels": b"GIF89a" + giant + bytes(3) + b"," + bytes(4) + giant + b"\x00\x02\x00;",
        "half a gif": image(67, 101, "gif")[:700],
        "half a webp": image(67, 101, "webp")[:300],
        "half a bmp": image(67, 101, "bmp")[:300],
        "half a tiff": image(67, 101, "tiff")[:3000],
        "tiff whose tag has 4 billion numbers": tiff(*sides, (273, 4, 2**32 - 1, 8)),
        "tiff whose strips lie nowhere": tiff(*sides, (258, 3, 1, 8), (262, 3, 1, 1), (273, 4, 1, 2**31)),
        "tiff that leads to itself": tiff(*sides, (34665, 4, 1, 8)),
    }


def _segment(marker: int, content: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content


def _chunk(part: tuple[bytes, bytes]) -> bytes:
    name, content = part
    return struct.pack(">L", len(content)) + name + content + struct.pack(">L", zlib.crc32(name + content))


def _one_code(symbol: int) -> bytes:
    """Return the Huffman table in which a single 0 means the symbol."""
    return bytes([1, *[0] * 15, symbol])


def _bits(bits: str) -> bytes:
    """Return coded data: filled up with ones, and a zero after each byte of ones."""
    filled = bits.ljust(-(-len(bits) // 8) * 8, "1")
    return int(filled, 2).to_bytes(len(filled) // 8, "big").replace(b"\xff", b"\xff\x00")
