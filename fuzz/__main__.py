"""``python -m fuzz``: see the package."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

import fuzz
from fuzz.driver import Effort, Tally, table
from fuzz.driver import fuzz as fuzz_target
from fuzz.runner import Limits, Runner
from fuzz.targets import NAMES

NATIVE = {"native_formats": ("pt", "npy", "safetensors"), "native_jpeg": ("jpeg",)}
"""The programs under sanitizers, and whose inputs they are fed."""
_NATIVE_LIMITS = Limits(cpu_s=20, memory_mb=1200)


def main() -> int:
    given = _arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing stays behind either way
    jobs = [(name, name) for name in given.targets if name in NAMES]
    jobs += [(job, name) for job in given.targets for name in NATIVE.get(job, ())]
    effort = Effort(given.inputs, given.seconds / len(jobs))
    tallies: list[Tally] = []
    runners: dict[Path | None, Runner] = {}
    try:
        for job, name in jobs:
            program = given.native / f"fuzz_{job.removeprefix('native_')}" if job in NATIVE else None
            label = f"{name} natively" if program else name
            if program not in runners:  # one child serves all targets that it can
                runners[program] = Runner(program, _NATIVE_LIMITS if program else None)
            runner = runners[program]
            tallies.append(Tally(label))
            fuzz_target(name, runner, effort, given.seed, given.keep, tallies[-1])
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    finally:
        for runner in runners.values():
            runner.close()
    print(table(tallies))
    return 1 if any(tally.findings for tally in tallies) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m fuzz", description=fuzz.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"{', '.join((*NAMES, *NATIVE))}")
    parser.add_argument("--seconds", type=float, default=240, help="for all targets together (240)")
    parser.add_argument(
        "--inputs", type=int, help="for each target, instead of seconds; always the same ones"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=fuzz.ROOT / "build" / "fuzz", help="where findings go")
    parser.add_argument(
        "--native", type=Path, help="build folder with the sanitized programs; without it they are left out"
    )
    given = parser.parse_args()
    known = [*NAMES, *(NATIVE if given.native else ())]
    given.targets = given.targets or known
    unknown = [name for name in given.targets if name not in known]
    if unknown:
        parser.error(f"{unknown[0]} is none of {', '.join(known)}")
    return given


if __name__ == "__main__":
    sys.exit(main())
