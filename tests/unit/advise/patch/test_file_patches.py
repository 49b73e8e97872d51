"""A diff that tools take, and a file that is changed only where nothing is lost by it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from unstarve.advise.patch.file_patches import FilePatch, file_digest, make_patch, write_patches
from unstarve.advise.patch.user_files import CallChange
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
    return make_patch(
        script, digest, [CallChange(Place(str(script), line), "DataLoader", {"num_workers": 4})]
    )


def git(*words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], check=True, capture_output=True)


TOOLS = {"git": ["git", "apply", "-"], "patch": ["patch", "-p1", "--quiet"]}
both_tools = pytest.mark.parametrize("tool", TOOLS)


def apply(tool: str, patch: FilePatch, folder: Path) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    subprocess.run(TOOLS[tool], input=patch.diff, check=True, cwd=folder)


@both_tools
@pytest.mark.parametrize("name", ["train.py", "my  train.py", 'a"b\\c\td.py', "é.py", "sub folder/train.py"])
@pytest.mark.parametrize(
    "content",
    [
        BEFORE.encode(),
        b"\n\nx = DataLoader(ds)",
        b"# \x0c\r\n\r\nx = DataLoader(ds)\r\n",
        b"\xef\xbb\xbfimport torch\n\nx = DataLoader(ds)\n",
        b"# coding: latin-1\n# \xe9 \x85\nx = DataLoader(ds)\n",
    ],
    ids=["plain", "no last line end", "CRLF", "BOM", "latin-1"],
)
def test_the_diff_applies_from_the_working_folder(script: Path, tool: str, name: str, content: bytes) -> None:
    path = script.parent / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    patch = patch_of(path, file_digest(path))
    apply(tool, patch, script.parent)
    assert path.read_bytes() == patch.after
    assert b"DataLoader(ds, num_workers=4)" in patch.after


@both_tools
def test_in_a_repository_the_diff_applies_from_its_top(
    script: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    git("init", "-q")
    below = script.parent / "my sub"
    below.mkdir()
    script.rename(below / "train.py")
    monkeypatch.chdir(below)
    patch = patch_of(below / "train.py")
    assert patch.diff.startswith(b"diff --git a/my sub/train.py b/my sub/train.py\n--- a/my sub/train.py\t\n")
    apply(tool, patch, script.parent)
    assert (below / "train.py").read_text() == AFTER


def test_git_applies_the_diff_from_a_folder_of_the_repository(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git("init", "-q")
    (script.parent / "sub").mkdir()
    script.rename(script.parent / "sub" / "train.py")
    monkeypatch.chdir(script.parent / "sub")
    apply("git", patch_of(Path.cwd() / "train.py"), Path.cwd())
    assert Path("train.py").read_text() == AFTER


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
    with pytest.raises(NotPatchableError, match="changed in the meantime"):
        write_patches([patch])
    assert script.read_text() == ""


def test_what_git_has_committed_is_changed_and_what_it_has_not_is_refused(script: Path) -> None:
    git("init", "-q")
    with pytest.raises(NotPatchableError, match="not committed"):
        write_patches([patch_of(script)])
    git("add", "train.py")
    git("commit", "-qm", "mine")
    script.write_text(BEFORE + "y = 1\n")
    with pytest.raises(NotPatchableError, match="has uncommitted changes"):
        write_patches([patch_of(script)])
    assert script.read_text() == BEFORE + "y = 1\n"
    git("checkout", "-q", "train.py")
    write_patches([patch_of(script)])
    assert script.read_text() == AFTER


def test_a_file_that_git_ignores_or_overlooks_is_refused(script: Path) -> None:
    git("init", "-q")
    (script.parent / ".gitignore").write_text("train.py\n")
    with pytest.raises(NotPatchableError, match="git does not track it"):
        write_patches([patch_of(script)])
    git("add", "-f", "train.py")
    git("commit", "-qm", "mine")
    git("update-index", "--assume-unchanged", "train.py")
    script.write_text(BEFORE + "y = 1\n")
    with pytest.raises(NotPatchableError, match="told to ignore"):
        write_patches([patch_of(script)])
    assert script.read_text() == BEFORE + "y = 1\n"


def test_a_file_that_no_listing_of_git_shows_is_refused(script: Path) -> None:
    git("init", "-q")
    git("config", "status.showUntrackedFiles", "no")
    with pytest.raises(NotPatchableError, match="not committed"):
        write_patches([patch_of(script)])


def test_where_git_refuses_to_answer_nothing_is_written(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git("init", "-q")
    git("add", "train.py")
    git("commit", "-qm", "mine")
    patch = patch_of(script)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own switch, for "dubious ownership"
    with pytest.raises(NotPatchableError, match=r"git cannot tell .* dubious ownership .* nothing"):
        write_patches([patch])
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(NotPatchableError, match="git cannot be started"):
        write_patches([patch])
    assert script.read_text() == BEFORE


def test_a_name_that_git_would_take_for_a_pattern_is_a_name(script: Path) -> None:
    git("init", "-q")
    git("add", "train.py")
    git("commit", "-qm", "mine")
    odd = script.with_name("*.py")
    odd.write_text(BEFORE)
    with pytest.raises(NotPatchableError, match="not committed"):
        write_patches([patch_of(odd)])


def test_what_became_another_users_file_is_not_written(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patch = patch_of(script)
    monkeypatch.setattr(os, "geteuid", lambda: script.stat().st_uid + 1)
    with pytest.raises(NotPatchableError, match="belongs to another user, so nothing was written"):
        write_patches([patch])


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
