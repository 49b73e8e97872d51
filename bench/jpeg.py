"""Our JPEG decoder against libjpeg-turbo's partial decode: the same random crops, CPU time per image.

    python bench/jpeg.py [--rounds 5] [--images 64]

Both decode only the rows and columns of the crop, resize it to 224×224 and write bytes; only the decoder
differs (UNSTARVE_JPEG=turbo). Each measurement runs in a separate process, and the two take turns. It prints
the median over the rounds of turbo's CPU time divided by ours, and checks that all pixels are equal.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import time
import zlib
from statistics import median

import numpy as np

from unstarve.intervals import turn_order

KINDS = ("smooth", "photo-like", "noisy")
SIZES = ((375, 500), (1500, 2000))
SIDE = 224


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        kind, height, width = given.child
        print(json.dumps(measured(kind, int(height), int(width), given.images)))
        return
    print("| image | size | ours | libjpeg-turbo | ratio |\n|---|---|---|---|---|")
    for height, width in SIZES:
        for kind in KINDS:
            print(row(kind, height, width, given.rounds, given.images), flush=True)


def row(kind: str, height: int, width: int, rounds: int, images: int) -> str:
    """Return one line of the table."""
    times_us: dict[str, list[float]] = {"": [], "turbo": []}
    digests = set()
    for number in range(rounds):
        for decoder in turn_order(("", "turbo"), number):
            child = ["--images", str(images), "--child", kind, str(height), str(width)]
            environment = os.environ | {"UNSTARVE_JPEG": decoder}
            done = subprocess.run(
                [sys.executable, __file__, *child],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            taken_us, digest = json.loads(done.stdout)
            times_us[decoder].append(taken_us)
            digests.add(digest)
    if len(digests) != 1:
        raise SystemExit(f"{kind}, {width}×{height}: the pixels of the two decoders differ")
    ratio = median(turbo / own for own, turbo in zip(times_us[""], times_us["turbo"], strict=True))
    own, turbo = (f"{median(times_us[name]):.0f} µs" for name in ("", "turbo"))
    return f"| {kind} | {width}×{height} | {own} | {turbo} | {ratio:.2f}× |"


def measured(kind: str, height: int, width: int, count: int) -> tuple[float, int]:
    """Return CPU microseconds per image, and a checksum of all pixels."""
    import torch

    from unstarve.fixes.datasets.images.crop_recipe import RATIO, SCALE
    from unstarve.fixes.datasets.images.image_codec import PixelValues, decode_cuts
    from unstarve.fixes.datasets.images.random_cuts import RandomBoxes, draw_cuts

    files = [jpeg(kind, height, width, seed) for seed in range(8)] * (count // 8)
    cuts = draw_cuts([(height, width)] * len(files), RandomBoxes(SCALE, RATIO), 0.5, torch.Generator())
    out = torch.empty((len(files), 3, SIDE, SIDE), dtype=torch.uint8)
    decode_cuts(files[:8], cuts[:8], out[:8], PixelValues(), threads=1)
    began = time.process_time()
    errors = decode_cuts(files, cuts, out, PixelValues(), threads=1)
    taken = time.process_time() - began
    assert not any(errors), errors
    return taken / len(files) * 1e6, zlib.crc32(out.numpy().tobytes())


def jpeg(kind: str, height: int, width: int, seed: int) -> bytes:
    """Return an image of quality 90, with colours at half resolution."""
    from PIL import Image

    random = np.random.default_rng(seed)
    detail = {"smooth": 1 / 64, "photo-like": 1 / 4, "noisy": 1.0}[kind]
    small = random.integers(0, 256, (max(2, int(height * detail)), max(2, int(width * detail)), 3), np.uint8)
    base = random.integers(0, 256, (6, 8, 3), np.uint8)
    layers = [
        np.asarray(Image.fromarray(layer).resize((width, height), Image.Resampling.BICUBIC), np.float32)
        for layer in (small, base)
    ]
    share = {"smooth": 0.3, "photo-like": 0.3, "noisy": 0.6}[kind]
    pixels = share * layers[0] + (1 - share) * layers[1]
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


if __name__ == "__main__":
    main()
