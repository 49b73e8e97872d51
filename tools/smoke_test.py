"""Install each file of a release into an empty environment; record and report a small training there, without
the packages of the extras and with them.

    python tools/smoke_test.py dist/*

Torch and the other requirements are those of this environment, so that nothing is downloaded; an editable
install beside them is left out. Exit code 1 says what is wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

TRAINING = """
import torch, unstarve
print(unstarve.__file__)
for batch in torch.utils.data.DataLoader(list(range(64)), batch_size=2, num_workers=1):
    batch.sum()
"""


EXTRAS = {
    "plot": ("matplotlib", ["whatif", "train.unstarve", "--plot", "whatif.png"]),
    "prometheus": ("prometheus_client", ["report", "train.unstarve", "--prometheus", "-"]),
    "tensorboard": ("tensorboard", ["report", "train.unstarve", "--tensorboard", "events"]),
}
"""By extra: a package of it, and a command that needs it."""
HIDDEN = [
    *(package for package, _ in EXTRAS.values()),
    "libcst",
    "starlette",
    "uvicorn",
    "PIL",
    "safetensors",
]
HIDE = "import os, sys; sys.modules.update(dict.fromkeys(os.environ.get('HIDDEN', '').split()))"
"""A line of a .pth file: importing what the variable names fails as if it were not installed."""


def main() -> None:
    """Try every file that is named on the command line."""
    for file in map(Path, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as folder:
            try_out(file.resolve(), Path(folder).resolve())
        print(f"{file.name}: installs, records and reports")


def try_out(file: Path, folder: Path) -> None:
    """Install a file into a new environment in a folder and use it from there."""
    home = folder / "environment"
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(folder, python, "-c", asked).strip())
    # Only the folder is added: its own .pth files, an editable install among them, are not followed.
    (packages / "requirements.pth").write_text(f"{sysconfig.get_path('purelib')}\n{HIDE}\n")
    install = ["install", "-qq", "--no-index", "--no-deps", "--no-build-isolation", "--ignore-installed"]
    run(folder, sys.executable, "-m", "pip", "--python", python, *install, file)
    (folder / "train.py").write_text(TRAINING)
    unstarve = home / "bin" / "unstarve"
    run(folder, python, "-c", "import unstarve._native")
    for hidden in (HIDDEN, []):
        said = run(folder, unstarve, "run", "-q", "-f", "-o", "train.unstarve", "train.py", hidden=hidden)
        where = Path(said.strip())
        if home not in where.parents:
            sys.exit(f"{file.name}: another unstarve was imported, from {where}")
        report = json.loads(run(folder, unstarve, "report", "train.unstarve", "--json", "-", hidden=hidden))
        if not report["schema"].startswith("unstarve."):
            sys.exit(f"{file.name}: not a report: {report}")
        for extra, (_, words) in EXTRAS.items():
            said = run(folder, unstarve, *words, hidden=hidden, exit_code=2 if hidden else 0)
            if hidden and f"unstarve[{extra}]" not in said:
                sys.exit(f"{file.name}: {words[0]} without the extra {extra} says: {said}")


def run(folder: Path, *words: str | Path, hidden: Sequence[str] = (), exit_code: int = 0) -> str:
    """What a command printed, on standard error if it has to fail; another exit code ends everything."""
    # CMake and Ninja, which build the source distribution, are in this environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [str(one) for one in words],
        cwd=folder,
        env={**os.environ, "PATH": path, "HIDDEN": " ".join(hidden)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != exit_code:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}exit code {done.returncode}")
    return done.stderr if exit_code else done.stdout


if __name__ == "__main__":
    main()
