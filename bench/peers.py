"""`unstarve bench` with other projects' loaders beside ours, in the same rounds.

    python bench/peers.py [--part A,B…] [--quick]

Measured if installed: tensordict, webdataset, litdata, SPDL, DALI, ffcv, simplejpeg, OpenCV.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from peer_loaders import PEERS
from rich.console import Console

from unstarve.benchmark.bench_plan import QUICK, BenchPlan, Sizes
from unstarve.benchmark.run_benchmark import PARTS, run
from unstarve.cli.bench import BenchProgress
from unstarve.present.terminal.bench_table import print_summary

PACKAGES = (
    "unstarve", "tensordict", "webdataset", "litdata", "spdl", "ffcv", "nvidia-dali-cuda130",
    "torchvision", "pillow", "simplejpeg", "opencv-python-headless",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--part", default="", help="letters or names [default: all parts with a peer]")
    parser.add_argument("--quick", action="store_true", help="little data, few rounds")
    options = parser.parse_args()
    parts = [replace(p, entries=(*p.entries, *PEERS[p.name])) for p in PARTS if p.name in PEERS]
    words = tuple(word for word in options.part.split(",") if word)
    plan = BenchPlan(words, sizes=QUICK if options.quick else Sizes(), quick=options.quick, memory=False)
    with BenchProgress(Console(), Console(stderr=True), tables=True) as shown:
        print_summary(run(plan, shown, parts, PACKAGES), Console())


if __name__ == "__main__":
    main()
