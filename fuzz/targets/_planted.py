"""A reader with every fault that is looked for, of which the input names one: for tests of the fuzzer."""

from __future__ import annotations

import ctypes
from pathlib import Path

from unstarve.errors import DataFileError


def run(data: bytes, folder: Path) -> None:
    match data.split(b" ")[0]:
        case b"refuse":
            raise DataFileError("input is damaged; write it anew")
        case b"raise":
            raise KeyError("input")
        case b"spin":
            while True:
                pass
        case b"allocate":
            bytearray(100 << 20)
        case b"crash":
            ctypes.string_at(0)
