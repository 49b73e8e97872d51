"""Build the targets of the Dockerfile without Docker, each in its own folder, and run commands in them.

    sudo python tools/chroot_images.py FOLDER                             # FOLDER/unstarve, FOLDER/webapp …
    sudo python tools/chroot_images.py FOLDER webapp unstarve --version   # a command, as that target's user
    sudo python tools/chroot_images.py FOLDER --bind /wheels              # pip finds packages there, too

The base is Debian bookworm from debootstrap, not the image that FROM names: this shows that the instructions
work, as the users they name, with Debian's Python. Needs root, debootstrap and unshare. A target that was
built is kept; delete its folder to build it anew.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).parents[1]
BASE = "python3-dev,python3-venv,ca-certificates"
IGNORED = shutil.ignore_patterns("__pycache__", "*.so")  # as .dockerignore has them
PASSED_ON = ("PIP_", "TORCH_INDEX")
"""Variables of this process that the instructions see: where pip finds packages."""


@dataclass
class Target:
    """A target's folder, and what its instructions say about commands in it."""

    root: Path
    bound: list[Path]
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "0"
    folder: str = "/"

    def run(self, command: str) -> int:
        """Run a shell line in it, with this machine's /dev and the bound folders; the exit code."""
        mounts = [["mount", "--rbind", str(one), f"{self.root}{one}"] for one in (Path("/dev"), *self.bound)]
        mounts.append(["mount", "-t", "proc", "proc", f"{self.root}/proc"])
        line = f"cd {self.folder} && {command}"
        enter = ["exec", "chroot", f"--userspec={self.user}:{self.user}", str(self.root), "sh", "-c", line]
        for one in self.bound:
            Path(f"{self.root}{one}").mkdir(parents=True, exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        environment |= {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": "/tmp",
            "LANG": "C.UTF-8",
        }
        script = " && ".join(map(shlex.join, [*mounts, enter]))
        inside = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]
        return subprocess.run(inside, env=environment | self.environment, check=False).returncode

    def follow(self, word: str, rest: str, *, build: bool) -> None:
        """Follow an instruction. Those that change files do so only if the target is being built."""
        if word == "ENV":
            for one in shlex.split(rest):
                name, _, value = one.partition("=")
                self.environment[name] = value.replace(
                    "$PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
                )
        elif word == "USER":
            self.user = rest
        elif word == "WORKDIR":
            self.folder = rest
        elif word == "COPY" and build:
            self.copy(rest.split())
        elif word == "RUN" and build:
            print(f"{self.root.name}: {rest[:90]}", flush=True)
            if code := self.run(rest):
                sys.exit(f"{self.root.name}: exit code {code} of RUN {rest}")

    def copy(self, words: list[str]) -> None:
        """Copy from the checkout, or from the target that --from names."""
        origin, ignored = SOURCE, IGNORED
        if words[0].startswith("--from="):
            origin, ignored = self.root.parent / words.pop(0).removeprefix("--from="), None
        *names, place = words
        for name in names:
            source, target = Path(f"{origin}/{name.lstrip('/')}"), Path(f"{self.root}{place}")
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, ignore=ignored, dirs_exist_ok=True)
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)


def targets() -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """By name of a target: what it starts from, and its own instructions."""
    text = re.sub(r"^#.*\n", "", (SOURCE / "Dockerfile").read_text(), flags=re.MULTILINE)
    found: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    for line in filter(None, text.replace("\\\n", " ").splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found[name] = (base, [])
        else:
            found[name][1].append((word, rest.strip()))
    return found


def target(folder: Path, name: str, bound: list[Path], *, build: bool) -> Target:
    """A target, built anew or as it was built."""
    start, instructions = targets()[name]
    if start in targets():
        found = target(folder, start, bound, build=False)
        found.root = folder / name
    else:
        found = Target(folder / name, bound)
    if build:
        origin = folder / (start if start in targets() else "base")
        shutil.rmtree(found.root, ignore_errors=True)
        subprocess.run(["cp", "-a", "--reflink=auto", str(origin), str(found.root)], check=True)
        (found.root / ".built").unlink(missing_ok=True)  # that of the target it starts from
    for word, rest in instructions:
        found.follow(word, rest, build=build)
    return found


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bind", type=Path, action="append", default=[], metavar="FOLDER")
    parser.add_argument("target", nargs="?", choices=list(targets()))
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    if asked.target:
        sys.exit(target(folder, asked.target, asked.bind, build=False).run(shlex.join(asked.command)))
    base = folder / "base"
    if not base.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={BASE}", "bookworm", str(base)], check=True
        )
        (base / "usr/local/bin/python").symlink_to("/usr/bin/python3")  # as the image of FROM has it
    for name in targets():
        if not (folder / name / ".built").exists():
            target(folder, name, asked.bind, build=True)
            (folder / name / ".built").touch()


if __name__ == "__main__":
    main()
