"""Every verb that writes a file of the user's choice takes a pipe, and says in a sentence why it cannot."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from run_files import slow_loading_run, write_run
from unstarve.cli import main
from unstarve.record.run_file import claim, finish

WRITERS = {
    "page": ["report", "run.unstarve", "--html"],
    "metrics": ["report", "run.unstarve", "--prometheus"],
    "trace": ["trace", "run.unstarve", "-o"],
    "comparison": ["compare", "run.unstarve", "run.unstarve", "--html"],
    "curve": ["whatif", "run.unstarve", "--workers", "1,2", "--plot"],
}
every_writer = pytest.mark.parametrize("words", WRITERS.values(), ids=WRITERS)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run.unstarve", slow_loading_run())
    return tmp_path


def call(*words: str) -> int:
    """The exit code."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


@every_writer
def test_a_pipe_gets_the_output_and_stays_a_pipe(folder: Path, words: list[str]) -> None:
    pipe = folder / "pipe.png"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert call(*words, str(pipe)) == 0
    reader.join(timeout=120)
    assert len(found[0]) > 500
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@every_writer
@pytest.mark.parametrize(
    ("target", "why"), [("sub.png", "it is a folder"), ("no/a.png", "there is no folder")]
)
def test_what_cannot_be_written_is_one_sentence_and_exit_code_2(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], target: str, why: str
) -> None:
    (folder / "sub.png").mkdir()
    assert call(*words, target) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"unstarve: cannot write {target}: {why}")
    assert error.count("\n") == 1


@pytest.mark.parametrize("kind", ["page", "metrics", "trace", "comparison"])
def test_a_dash_is_standard_output(folder: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    assert call(*WRITERS[kind], "-") == 0
    printed = capsys.readouterr()
    assert len(printed.out) > 500
    assert printed.err == ""
    assert not (folder / "-").exists()


@pytest.mark.parametrize(
    "words",
    [
        [*WRITERS["page"], "-", "--json", "-"],
        [*WRITERS["metrics"], "-", "--markdown"],
        ["run", "-o", "-", "train.py"],
        ["run", "--html", "-", "train.py"],
        ["tune", "--save", "-", "train.py"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_printed_says_so_and_writes_no_file(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    (folder / "train.py").touch()
    before = sorted(folder.iterdir())
    assert call(*words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "standard output" in printed.err
    assert sorted(folder.iterdir()) == before


def test_a_packed_file_that_is_replaced_keeps_its_mode_and_its_link(folder: Path) -> None:
    (folder / "real").touch(0o600)
    (folder / "train.packed").symlink_to("real")
    (folder / "samples").mkdir()
    (folder / "samples" / "a.bin").write_bytes(b"1")
    assert call("pack", "--force", "samples", "train.packed") == 0
    assert (folder / "train.packed").is_symlink()
    assert stat.S_IMODE((folder / "real").stat().st_mode) == 0o600
    assert call("pack", "--verify", "real") == 0


def test_a_run_file_that_is_replaced_keeps_its_mode(folder: Path) -> None:
    run = folder / "run.unstarve"
    run.chmod(0o600)
    claim(run, ["train.py"], "run", force=True)
    assert finish(run, 0) is None
    assert stat.S_IMODE(run.stat().st_mode) == 0o600
