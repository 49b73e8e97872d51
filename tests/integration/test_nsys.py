"""`unstarve nsys` with a stand-in for nsys, and without any."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

from profiler_files import write_nsys

OLD_HELP = "--trace= --trace-fork-before-exec= --sample= --export= --force-overwrite= --output="
NSYS = """#!{python}
import itertools, pathlib, subprocess, sys
if sys.argv[1:] == ["profile", "--help"]:
    print({help!r})
    sys.exit()
options = list(itertools.takewhile(lambda word: word.startswith("--"), sys.argv[2:]))
pathlib.Path("options").write_text("\\n".join(options))
output = next(word.partition("=")[2] for word in options if word.startswith("--output="))
code = subprocess.run(sys.argv[2 + len(options):]).returncode
pathlib.Path(output + ".sqlite").write_bytes(pathlib.Path("made.sqlite").read_bytes())
sys.exit(code)
"""


def with_nsys(project, help_text: str = OLD_HELP) -> dict[str, str]:
    folder = project.folder / "bin"
    folder.mkdir()
    nsys = folder / "nsys"
    nsys.write_text(NSYS.format(python=sys.executable, help=help_text))
    nsys.chmod(0o755)
    write_nsys(project.folder / "made.sqlite")
    return {"PATH": f"{folder}:{Path(sys.executable).parent}:/usr/bin:/bin"}


def test_the_command_runs_under_nsys_and_its_export_is_imported(project) -> None:
    project.write("train.py", "import sys; print('trained'); sys.exit(3)")
    done = project.unstarve("nsys", "--json", "r.json", "train.py", "--lr", "1", env=with_nsys(project))
    assert done.returncode == 3, done.stderr
    assert done.stdout == "trained\n"
    report = json.loads((project.folder / "r.json").read_text())
    assert report["profile"]["source"] == "nsys"
    assert (project.folder / "train-nsys.unstarve").exists()
    options = (project.folder / "options").read_text().split()
    assert "--trace-fork-before-exec=true" in options
    assert not any(option.startswith(("--pytorch", "--osrt-file-access")) for option in options)


MARKED = """
import torch
from torch.utils.data import DataLoader
class Nvtx:
    def rangeStartA(self, name): print("+" + name); return 1
    def rangeEnd(self, number): pass
torch._C._nvtx = Nvtx()
for x in DataLoader(torch.ones(1, 2, requires_grad=True)):
    x.sum().backward()
"""


def test_steps_and_phases_are_marked_while_nsys_profiles(project) -> None:
    project.write("train.py", MARKED)
    names = [f"+unstarve.{name}" for name in ("step", "data", "forward", "backward", "step", "data")]
    done = project.unstarve("nsys", "train.py", env=with_nsys(project))
    assert [word for word in done.stdout.split() if word.startswith("+unstarve")] == names, done.stderr
    assert not list(project.folder.glob("*.ended"))
    # A user may also run unstarve under nsys.
    done = project.unstarve("run", "-o", "r.unstarve", "train.py", env={"NSYS_PROFILING_SESSION_ID": "1"})
    assert done.stdout.split() == names, done.stderr
    assert project.unstarve("run", "-o", "s.unstarve", "train.py").stdout == ""


def test_print_runs_nothing(project) -> None:
    project.write("train.py", "raise SystemExit('it ran')")
    done = project.unstarve("nsys", "--print", "train.py", env=with_nsys(project))
    assert done.returncode == 0
    assert shlex.split(done.stdout)[:2] == ["nsys", "profile"]
    assert shlex.split(done.stdout)[-2:] == [sys.executable, "train.py"]
    assert not (project.folder / "options").exists()


def test_without_nsys_the_command_for_another_machine_is_printed(project) -> None:
    project.write("train.py", "raise SystemExit('it ran')")
    done = project.unstarve("nsys", "train.py", env={"PATH": "/nowhere"})
    assert done.returncode == 3
    assert "nsys is not installed" in done.stderr
    assert "--osrt-file-access=true" in done.stderr
    assert "unstarve import train-nsys.sqlite" in " ".join(done.stderr.split())
