"""A diff that tools take, and a file that is changed only where nothing is lost by it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from unstarve.advise.patch.files import FilePatch, file_digest, make_patch, write_patches
from unstarve.advise.patch.wish import Wish
from unstarve.errors import NotPatchableError
from unstarve.model import Place

BEFORE = "import torch\n\nx = DataLoader(ds)  # mine\n"
AFTER = "import torch\n\nx = DataLoader(ds, num_workers=4)  # mine\n"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(BEFORE)
    return tmp_path / "train.py"


def patch_of(script: Path, digest: str | None = None, line: int = 3) -> FilePatch:
    return make_patch(script, digest, [Wish(Place(str(script), line), "DataLoader", {"num_workers": 4})])


def git(*words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], check=True, capture_output=True)


def test_the_diff_is_one_that_git_applies(script: Path) -> None:
    patch = patch_of(script, file_digest(script))
    assert patch.diff.startswith("--- a/train.py\n+++ b/train.py\n")
    subprocess.run(["git", "apply", "-"], input=patch.diff, text=True, check=True, cwd=script.parent)
    assert script.read_text() == AFTER


def test_a_file_without_a_last_line_end_has_a_diff_that_says_so(script: Path) -> None:
    script.write_text("x = DataLoader(ds)")
    patch = patch_of(script, line=1)
    assert patch.diff.count("\\ No newline at end of file\n") == 2
    subprocess.run(["git", "apply", "-"], input=patch.diff, text=True, check=True, cwd=script.parent)
    assert script.read_text() == "x = DataLoader(ds, num_workers=4)"


def test_writing_replaces_the_file_and_keeps_its_mode_and_encoding(script: Path) -> None:
    script.write_bytes("# -*- coding: latin-1 -*-\r\n\r\nx = DataLoader(é)\r\n".encode("latin-1"))
    script.chmod(0o750)
    write_patches([patch_of(script)])
    assert (
        script.read_bytes()
        == "# -*- coding: latin-1 -*-\r\n\r\nx = DataLoader(é, num_workers=4)\r\n".encode("latin-1")
    )
    assert script.stat().st_mode & 0o777 == 0o750
    assert list(script.parent.iterdir()) == [script]


def test_a_link_stays_one(script: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.py"
    link.symlink_to(script)
    write_patches([patch_of(link)])
    assert link.is_symlink()
    assert script.read_text() == AFTER


def test_a_file_that_changed_since_the_run_is_refused(script: Path) -> None:
    digest = file_digest(script)
    script.write_text(BEFORE + "y = 1\n")
    with pytest.raises(NotPatchableError, match=r"train\.py has changed since it was run"):
        patch_of(script, digest)


def test_a_file_that_changes_at_the_last_moment_is_refused(script: Path) -> None:
    patch = patch_of(script)
    script.write_text("")
    with pytest.raises(NotPatchableError, match="changed just now"):
        write_patches([patch])
    assert script.read_text() == ""


def test_what_git_has_committed_is_changed_and_what_it_has_not_is_refused(script: Path) -> None:
    git("init", "-q")
    with pytest.raises(NotPatchableError, match="not committed"):
        write_patches([patch_of(script)])
    git("add", "train.py")
    git("commit", "-qm", "mine")
    script.write_text(BEFORE + "y = 1\n")
    with pytest.raises(NotPatchableError, match="not committed"):
        write_patches([patch_of(script)])
    assert script.read_text() == BEFORE + "y = 1\n"
    git("checkout", "-q", "train.py")
    write_patches([patch_of(script)])
    assert script.read_text() == AFTER


def test_no_file_is_changed_when_one_must_not_be(script: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(BEFORE)
    patches = [patch_of(script), patch_of(other)]
    other.write_text("")
    with pytest.raises(NotPatchableError):
        write_patches(patches)
    assert script.read_text() == BEFORE


@pytest.mark.parametrize("content", [None, b"\xff\xfe = 1", b"# coding: klingon\n"])
def test_what_cannot_be_read_is_one_sentence(script: Path, content: bytes | None) -> None:
    script.unlink()
    if content is not None:
        script.write_bytes(content)
    with pytest.raises(NotPatchableError, match=r"train\.py"):
        patch_of(script)


def test_the_line_is_named_where_a_call_cannot_be_changed(script: Path) -> None:
    script.write_text("x = DataLoader(*a)\n")
    with pytest.raises(NotPatchableError, match=r"train\.py, line 1: num_workers may be hidden"):
        patch_of(script, line=1)
