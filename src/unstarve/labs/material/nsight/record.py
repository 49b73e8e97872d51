"""Stands in for nsys, which needs a GPU: writes the export of the training that was drawn for you.

python record.py slow     slow.sqlite: the training as it is
python record.py fast     fast.sqlite: the same training with the remedy for the bottleneck in answers.toml
"""

import sys
import tomllib
from pathlib import Path

from unstarve.labs.nsys_recording import BOTTLENECKS, write_export
from unstarve.labs.started import started_in

HERE = Path(__file__).parent


def main():
    version = sys.argv[1] if len(sys.argv) == 2 else ""
    if version not in ("slow", "fast"):
        raise SystemExit("usage: python record.py slow|fast")
    remedy = None
    if version == "fast":
        remedy = tomllib.loads((HERE / "answers.toml").read_text()).get("bottleneck")
        if remedy not in BOTTLENECKS:
            raise SystemExit(f"write your bottleneck into answers.toml first: {', '.join(BOTTLENECKS)}")
    write_export(HERE / f"{version}.sqlite", started_in(HERE).seed, remedy)
    print(f"{version}.sqlite is written; read it with: unstarve import {version}.sqlite")


if __name__ == "__main__":
    main()
