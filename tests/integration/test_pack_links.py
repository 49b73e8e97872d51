"""`unstarve pack` on folders with links, FIFOs and sockets in them: it ends, and says what it did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unstarve import PackedDataset
from unstarve.errors import UnstarveError, UsageError
from unstarve.fixes.datasets.packed import source_files
from unstarve.fixes.datasets.packed.packing_job import PackOrder, PackResult, pack
from unstarve.fixes.datasets.packed.source_files import find_files


class Silent:
    """Is told how the work goes."""

    def reach(self, done: int, total: int | None) -> None:
        """So far."""

    def note(self, text: str) -> None:
        """Something a person should know."""


def packed(*words: str, **options: Any) -> PackResult:
    return pack(PackOrder(words[:-1], Path(words[-1]), raw=True, **options), Silent())


def write(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(name)


def contents(name: str) -> dict[str, str]:
    dataset = PackedDataset(name)
    return {each: dataset[n].decode() for n, each in enumerate(dataset.names or ())}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


SOURCES = ["data", "data/**", "data/**/*.jpg"]


@pytest.mark.parametrize("source", [*SOURCES, "d*ta/**"])
def test_links_that_lead_in_circles_are_left_out(source: str) -> None:
    write("data/cat/1.jpg", "data/dog/2.jpg")
    Path("data/cat/up").symlink_to("..")
    Path("data/cat/here").symlink_to(".")
    Path("data/dog/top").symlink_to(Path("data").absolute())
    Path("data/dog/above").symlink_to("../..")  # where the source itself is found again
    done = packed(source, "a")
    assert sorted(contents("a").values()) == ["data/cat/1.jpg", "data/dog/2.jpg"]
    assert sorted(done.links.endless) == ["data/cat/here", "data/cat/up", "data/dog/above", "data/dog/top"]
    assert done.links.outside == []


def test_folders_that_link_to_each_other_do_not_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{number:02}" for number in range(12)]  # 12! ways to go from one to the next
    for name in names:
        write(f"data/{name}/file")
        for other in names:
            if other != name:
                Path(f"data/{name}/to-{other}").symlink_to(f"../{other}")
    read: list[str] = []
    entries = source_files._entries

    def counted(folder: str) -> list[os.DirEntry[str]]:
        read.append(folder)
        assert len(read) <= 1 + 12 + 12 * 11 * 11
        return entries(folder)

    monkeypatch.setattr(source_files, "_entries", counted)
    found = find_files(["data"], Path("a"))
    assert {name for name in found.names if name.count("/") == 1} == {f"{name}/file" for name in names}
    assert "00/to-01/file" in found.names


@pytest.mark.parametrize("source", SOURCES)
def test_links_that_lead_outside_are_followed_and_counted(source: str) -> None:
    write("elsewhere/1.jpg", "elsewhere/deep/2.jpg", "data/3.jpg")
    Path("data/1.jpg").symlink_to("../elsewhere/1.jpg")
    Path("data/deep").symlink_to("../elsewhere/deep")
    Path("data/again.jpg").symlink_to("3.jpg")
    done = packed(source, "a")
    assert contents("a") == {
        "1.jpg": "elsewhere/1.jpg",
        "3.jpg": "data/3.jpg",
        "again.jpg": "data/3.jpg",
        "deep/2.jpg": "elsewhere/deep/2.jpg",
    }
    assert sorted(done.links.outside) == ["data/1.jpg", "data/deep"]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    code = "from unstarve.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "pack", *words], capture_output=True, text=True, timeout=180, check=False
    )


def test_the_outcome_says_where_links_lead() -> None:
    write("elsewhere/1.jpg", "data/3.jpg")
    Path("data/1.jpg").symlink_to("../elsewhere/1.jpg")
    Path("data/2.jpg").symlink_to("../elsewhere/1.jpg")
    Path("data/up").symlink_to("..")
    done = run("data", "a")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:] == [
        "2 links lead out of SRC and were followed; the first is data/1.jpg",
        "1 link leads back to a folder above and was skipped: data/up",
    ]


KINDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "fifo": (os.mkfifo, "is a FIFO, not a file"),
    "broken": (lambda path: path.symlink_to("nowhere"), "is a broken link"),
    "itself": (lambda path: path.symlink_to(path.name), "is a broken link"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is a device, not a file"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", ["", ".pt", ".npy"])
def test_what_is_no_file_is_named_and_may_be_left_out(kind: str, ending: str) -> None:
    write("data/1", "data/3")
    plant, told = KINDS[kind]
    plant(Path(f"data/2{ending}"))
    for source in ("data", "data/*"):
        with pytest.raises(UnstarveError, match=rf"sample 1 \(2{ending}\) .*{told}.*--skip-bad"):
            pack(PackOrder((source,), Path("a"), force=True), Silent())
        done = pack(PackOrder((source,), Path("a"), skip_bad=True, force=True), Silent())
        assert done.left_out == (f"2{ending}",)
        assert contents("a") == {"1": "data/1", "3": "data/3"}


def test_a_fifo_given_by_name_is_refused() -> None:
    os.mkfifo("data")
    with pytest.raises(UnstarveError, match="is a FIFO"):
        packed("data", "a")


def test_a_folder_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    write("data/closed/1", "data/open/2")
    scan = os.scandir

    def refused(folder: str) -> Any:
        if folder == "data/closed":
            raise PermissionError(13, "Permission denied", folder)
        return scan(folder)

    with monkeypatch.context() as closed:
        closed.setattr(os, "scandir", refused)
        with pytest.raises(UsageError, match=r"data/closed cannot be read \(Permission denied\)"):
            packed("data", "a")
        packed("data/o*/**", "a")
    assert contents("a") == {"2": "data/open/2"}


def test_patterns_match_as_in_a_shell() -> None:
    write("data/a/1.pt", "data/a/b/2.pt", "data/3.pt", "data/4.txt", "data/.hidden/5.pt", "data/.6.pt")

    def found(pattern: str) -> list[str]:
        files = find_files([pattern], Path("a"))
        return [str((files.base / name).relative_to(Path("data").absolute())) for name in files.names]

    assert found("data/*.pt") == ["3.pt"]
    assert found("data/*/*.pt") == ["a/1.pt"]
    assert found("data/**/*.pt") == ["3.pt", "a/1.pt", "a/b/2.pt"]
    assert found("data/**/b/**") == ["a/b/2.pt"]
    assert found("data/[0-4].*") == ["3.pt", "4.txt"]
    assert found("data/.*/*.pt") == [".hidden/5.pt"]
    assert found(f"{Path.cwd()}/data/?.txt") == ["4.txt"]


def test_json_counts_links() -> None:
    write("elsewhere/1.jpg")
    Path("data").mkdir()
    Path("data/1.jpg").symlink_to("../elsewhere/1.jpg")
    Path("data/round").symlink_to(".")
    found = json.loads(run("data", "a", "--json", "-").stdout)
    assert (found["samples"], found["links_outside"], found["links_left_out"]) == (1, 1, ["data/round"])
