"""Install each file of a release into an empty environment, and record and report a small training there.

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
from pathlib import Path

TRAINING = """
import torch, unstarve
print(unstarve.__file__)
for batch in torch.utils.data.DataLoader(list(range(64)), batch_size=4, num_workers=1):
    batch.sum()
"""


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
    (packages / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = ["install", "-qq", "--no-index", "--no-deps", "--no-build-isolation", "--ignore-installed"]
    run(folder, sys.executable, "-m", "pip", "--python", python, *install, file)
    (folder / "train.py").write_text(TRAINING)
    unstarve = home / "bin" / "unstarve"
    said = run(folder, unstarve, "run", "-q", "-o", "train.unstarve", "train.py")
    where = Path(said.strip())
    if home not in where.parents:
        sys.exit(f"{file.name}: another unstarve was imported, from {where}")
    run(folder, python, "-c", "import unstarve._native")
    report = json.loads(run(folder, unstarve, "report", "train.unstarve", "--json", "-"))
    if not report["schema"].startswith("unstarve."):
        sys.exit(f"{file.name}: not a report: {report}")


def run(folder: Path, *words: str | Path) -> str:
    """What a command printed; ends everything if it fails."""
    # CMake and Ninja, which build the source distribution, are in this environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [str(one) for one in words],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}exit code {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    main()
