"""Check that a wheel brings its own libjpeg-turbo: unpack it, decode a JPEG with it, see whose library did.

    python tools/check_wheel.py [dist/unstarve-….whl]

The wheel is unpacked and imported from there, with the other packages of this environment: an editable
install beside it is left out. Without a wheel, the one that is installed here is checked. Exit code 1 says
what is wrong.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

PROBE = """
import io, sys
sys.path[:0] = sys.argv[1:]
import numpy as np, torch
from PIL import Image
import unstarve
from unstarve.fixes.datasets.images import image_codec
from unstarve.native import why_not_native

assert unstarve.__file__.startswith(sys.argv[1]), unstarve.__file__
assert why_not_native() is None, why_not_native()
pixels = np.arange(48 * 64 * 3, dtype=np.uint8).reshape(48, 64, 3)
file = io.BytesIO()
Image.fromarray(pixels).save(file, "JPEG", quality=95)
out = torch.zeros(1, 3, 16, 16, dtype=torch.uint8)
box = image_codec.Box(8, 8, 32, 32)
cuts, values = [image_codec.Cut(box)], image_codec.PixelValues()
failures = image_codec.decode_cuts([file.getvalue()], cuts, out, values, threads=1)
assert failures == [None] and out.any(), failures
libraries = {line.split()[-1] for line in open("/proc/self/maps") if "_native" in line or "libjpeg" in line}
own = [path for path in libraries if "unstarve.libs" in path and "libjpeg" in path]
assert own, f"libjpeg-turbo does not come from the wheel: {sorted(libraries)}"
print("decoded by", own[0].removeprefix(sys.argv[1]).lstrip("/"))
"""


def main() -> None:
    """Check the wheel that is named on the command line, or else what is installed."""
    if not sys.argv[1:]:
        packages = sysconfig.get_path("platlib")
        names = map(str, Path(packages).glob("unstarve-*.dist-info/**/*.txt"))
        sys.exit(check("what is installed", packages, names))
    (wheel,) = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        sys.exit(check(Path(wheel).name, folder, archive.namelist()))


def check(what: str, folder: str, names: Iterable[str]) -> int:
    """Check what lies in a folder, whose files are `names`; return the exit code."""
    if not any(name.endswith("licenses/libjpeg-turbo.txt") for name in names):
        print(f"{what} has libjpeg-turbo in it, but not its licence", file=sys.stderr)
        return 1
    # -S: the environment's .pth files, an editable install among them, are not followed.
    command = [sys.executable, "-S", "-c", PROBE, folder, sysconfig.get_path("purelib")]
    found = subprocess.run(command, check=False)
    print(f"{what}: {'sound' if found.returncode == 0 else 'broken'}")
    return min(found.returncode, 1)


if __name__ == "__main__":
    main()
