"""Every fault of every lab: does its reference solution pass, does a fake one fail, and how long is a check?

python bench/labs.py                        all of them; some 10 minutes
python bench/labs.py bottlenecks tune       some labs
python bench/labs.py bottlenecks:disk       one fault
python bench/labs.py --fake                 the fake solutions instead, which have to fail
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lab_solutions as solutions

from unstarve.labs.all_labs import NAMES


def check(name: str, fault: str, *, fake: bool) -> tuple[bool, float, str]:
    """Whether the check is passed, the seconds it took, and what it said."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as temporary:
        folder = Path(temporary)
        started = solutions.begin(name, fault, folder)
        if name == "training-loop":
            command = [sys.executable, "profile_training.py", "slow"]
            subprocess.run(command, cwd=folder, capture_output=True, check=True)
        answers = solutions.answers(started)
        (folder / "answers.toml").write_text(
            "".join(f"{key} = {json.dumps(answer)}\n" for key, answer in answers.items())
        )
        if fake:
            assert started.lab.edited is not None
            solutions.change(folder / started.lab.edited, solutions.FAKES[name])
        else:
            solutions.solve(started)
        began = time.monotonic()
        command = [sys.executable, "-m", "unstarve", "lab", "check", str(folder), "--json", "-"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
        told = json.loads(done.stdout) if done.stdout else {"passed": False, "lines": [done.stderr]}
        return told["passed"], seconds, " | ".join(told["lines"])


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("labs", nargs="*", default=NAMES)
    parser.add_argument("--fake", action="store_true")
    options = parser.parse_args()
    for one in options.labs:
        name, _, only = one.partition(":")
        if options.fake and name not in solutions.FAKES:
            continue
        for fault in [only] if only else solutions.SOLUTIONS[name]:
            if options.fake and not solutions.SOLUTIONS[name][fault]:
                continue
            passed, seconds, said = check(name, fault, fake=options.fake)
            print(
                f"{name:17} {fault:20} {'passed' if passed else 'failed'} {seconds:6.1f} s  {said}",
                flush=True,
            )


if __name__ == "__main__":
    main()
