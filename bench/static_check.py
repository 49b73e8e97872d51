"""How long `unstarve check --static` takes on 1,000 files.

    python bench/static_check.py [FOLDER]

Without a folder it makes them: 1,000 modules of the installed torch, each with a dataset and a loader added,
so that none of them can be skipped.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from unstarve.checks.source.all_checks import check_paths

_FILES = 1000
_BAR_S = 10.0
_ADDED = b"""
from torch.utils.data import DataLoader, Dataset
class Added(Dataset):
    def __init__(self): self.rows = list(range(10))
    def __getitem__(self, i): return self.rows[i]
added = DataLoader(Added(), num_workers=4)
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, help="a folder of Python files")
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as made:
        if folder is None:
            _copy_torch(Path(made))
        began = time.perf_counter()
        checked = check_paths([folder or Path(made)])
        took_s = time.perf_counter() - began
    print(f"{checked.files} files in {took_s:.2f} s, {len(checked.findings)} findings")
    print(f"bar: {_FILES} files in at most {_BAR_S:.0f} s")


def _copy_torch(folder: Path) -> None:
    found = find_spec("torch")
    if found is None or found.origin is None:
        sys.exit("torch is not installed: name a folder")
    for number, path in enumerate(islice(Path(found.origin).parent.rglob("*.py"), _FILES)):
        (folder / f"module_{number}.py").write_bytes(path.read_bytes() + _ADDED)


if __name__ == "__main__":
    main()
