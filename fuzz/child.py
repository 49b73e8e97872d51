"""The process that runs inputs of Python targets: ``python -m fuzz.child CPU_SECONDS MEMORY_MB FOLDER``.

Standard input brings, for each input, its length (32 bits, little-endian) and its bytes, which begin with the
target's name and a newline. For each there is a line of JSON on standard output: `refused`, or `finding` and
`detail`, where the input was not read, and the CPU seconds and memory that it took.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import sys
import traceback
import warnings
from pathlib import Path
from typing import IO, Any

from fuzz import ROOT
from fuzz.targets import Target, load
from unstarve.errors import UnstarveError

MB = 1 << 20


def main() -> None:
    cpu_seconds, memory_mb, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a target prints is for the log
    faulthandler.enable()
    faulthandler.register(signal.SIGXCPU, chain=True)  # says where the time went, then ends the process
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print("ready", file=answers, flush=True)
    os.chdir(folder)
    while (item := _next_input(sys.stdin.buffer)) is not None:
        name, _, data = item.partition(b"\n")
        answer = _run(name.decode(), data, Path(folder, name.decode()), cpu_seconds, memory_mb)
        print(json.dumps(answer), file=answers, flush=True)


def _next_input(pipe: IO[bytes]) -> bytes | None:
    head = pipe.read(4)
    return pipe.read(int.from_bytes(head, "little")) if len(head) == 4 else None


def _run(name: str, data: bytes, folder: Path, cpu_seconds: int, memory_mb: int) -> dict[str, Any]:
    target = _loaded(name, folder, memory_mb)
    started_s = _cpu_s()
    _limit(resource.RLIMIT_CPU, int(started_s) + cpu_seconds + 1)
    before = _reset_peak()
    answer: dict[str, Any] = {}
    try:
        target.run(data, folder)
    except UnstarveError as error:
        answer["refused"] = f"{type(error).__name__}: {str(error)[:500]}"
    except BaseException as error:  # whatever it is, it is what we are looking for
        answer |= {"finding": _signature(error), "detail": traceback.format_exc()[-6000:]}
    used_s, used_bytes = _cpu_s() - started_s, max(_status("VmHWM") - before, 0)
    if "finding" not in answer and used_s > cpu_seconds:
        answer |= {
            "finding": "too much time",
            "detail": f"{used_s:.1f} s on a CPU, allowed are {cpu_seconds}",
        }
    if "finding" not in answer and used_bytes > memory_mb * MB:
        detail = f"{used_bytes / MB:.0f} MB, allowed are {memory_mb}"
        answer |= {"finding": "too much memory", "detail": detail}
    return answer | {"cpu_s": used_s, "bytes": used_bytes}


def _loaded(name: str, folder: Path, memory_mb: int) -> Target:
    """The target; what is imported for it does not count for its inputs."""
    if not folder.exists():
        _limit(resource.RLIMIT_AS, resource.getrlimit(resource.RLIMIT_AS)[1])
        folder.mkdir()
        load(name)
        _limit(resource.RLIMIT_AS, _status("VmSize") + 3 * memory_mb * MB)
    return load(name)


def _signature(error: BaseException) -> str:
    """The exception's type and the last place in our own code."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(str(ROOT))]
    where = f" in {Path(frames[-1].filename).name}:{frames[-1].name}" if frames else ""
    return f"{type(error).__name__}{where}"


def _limit(what: int, soft: int) -> None:
    resource.setrlimit(what, (soft, resource.getrlimit(what)[1]))


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _reset_peak() -> int:
    """The resident bytes, from which the peak counts from now on."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    raise LookupError(field)


if __name__ == "__main__":
    main()
