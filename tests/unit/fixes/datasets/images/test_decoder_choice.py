"""UNSTARVE_JPEG=turbo leaves our own decoder out, and no pixel differs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from unstarve.native import native

SCRIPT = """
import zlib
from sample_images import image
from unstarve.fixes.datasets.images.image_codec import decode_whole
for mode in ("RGB", "L"):
    print(zlib.crc32(decode_whole(image(67, 101, mode=mode)).numpy().tobytes()))
"""


@pytest.mark.skipif(native() is None, reason="there is no choice without the native part")
def test_both_decoders_give_the_same_pixels() -> None:
    printed = set()
    for chosen in ("", "turbo"):
        environment = os.environ | {"UNSTARVE_JPEG": chosen, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
        )
        assert len(done.stdout.split()) == 2
        printed.add(done.stdout)
    assert len(printed) == 1
