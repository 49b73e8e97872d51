"""A folder for work in progress that somebody else has prepared harms no other file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packed_samples import mixed
from unstarve import PackedDataset, PackedWriter
from unstarve.errors import UsageError
from unstarve.fixes.datasets.packed.packed_partial import parse_journal


def begin(path: Path, count: int = 5) -> dict[str, Any]:
    """Pack a few samples and stop; the journal."""
    writer = PackedWriter(path, resume=True)
    for sample in mixed(count):
        writer.append(sample)
    assert writer.leave() == count
    journal: dict[str, Any] = json.loads((partial(path) / "journal.json").read_text())
    return journal


def partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("precious")
    return path


@pytest.mark.parametrize(
    "name", ["../../victim", "{folder}/victim", "../victim", "lock/../../../victim", "x"]
)
def test_a_journal_reaches_no_file_outside_of_its_folder(tmp_path: Path, victim: Path, name: str) -> None:
    path = tmp_path / "data" / "x.packed"
    path.parent.mkdir()
    (path.parent / "victim").write_text("precious")
    journal = begin(path)
    journal["sizes"][name.format(folder=tmp_path)] = 0
    (partial(path) / "journal.json").write_text(json.dumps(journal))
    with PackedWriter(path, resume=True) as writer:
        assert writer.count == 0  # begun anew
        writer.append(1)
    assert PackedDataset(path)[0] == 1
    assert victim.read_text() == (path.parent / "victim").read_text() == "precious"


@pytest.mark.parametrize("name", ["records", "journal.json", "journal.json.new", "column-00"])
@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to], ids=["link", "hard link"])
def test_a_planted_link_is_removed_and_never_written_through(
    tmp_path: Path, victim: Path, name: str, plant: Callable[[Path, Path], None]
) -> None:
    path = tmp_path / "a"
    begin(path)
    (partial(path) / name).unlink(missing_ok=True)
    plant(partial(path) / name, victim)
    with PackedWriter(path, resume=True) as writer:
        for sample in mixed(5)[writer.count :]:
            writer.append(sample)
    assert len(PackedDataset(path, verify=True)) == 5
    assert victim.read_text() == "precious"
    assert sorted(tmp_path.iterdir()) == [path, victim]


def test_a_planted_lock_is_refused(tmp_path: Path, victim: Path) -> None:
    partial(tmp_path / "a").mkdir()
    (partial(tmp_path / "a") / "lock").symlink_to(victim)
    with pytest.raises(
        UsageError, match="partial/lock is a symbolic link; remove it, or choose another name"
    ):
        PackedWriter(tmp_path / "a")


@pytest.mark.parametrize("kind", ["link", "file", "fifo", "stranger's"])
def test_a_folder_that_is_not_ours_is_refused(
    tmp_path: Path, victim: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    begin(path)
    if kind == "stranger's":
        stranger = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: stranger)
    else:
        partial(path).rename(tmp_path / "elsewhere")
        {"link": lambda at: at.symlink_to("elsewhere"), "file": Path.touch, "fifo": os.mkfifo}[kind](
            partial(path)
        )
    for resume in (False, True):
        with pytest.raises(UsageError, match=r"a cannot be written: .*a\.partial .*choose another name"):
            PackedWriter(path, resume=resume)
    monkeypatch.undo()
    kept = partial(path) if kind == "stranger's" else tmp_path / "elsewhere"
    assert parse_journal((kept / "journal.json").read_bytes()) is not None


@pytest.mark.parametrize("name", ["thesis.tex", "records/thesis.tex"])
def test_what_is_not_ours_is_not_removed_although_a_lock_is_there(tmp_path: Path, name: str) -> None:
    other = partial(tmp_path / "a") / name
    other.parent.mkdir(parents=True)
    other.write_text("precious")
    (partial(tmp_path / "a") / "lock").touch()
    with pytest.raises(UsageError, match="holds other files"):
        PackedWriter(tmp_path / "a")
    assert other.read_text() == "precious"


def test_work_in_progress_is_for_its_owner_alone(tmp_path: Path) -> None:
    umask = os.umask(0o002)
    try:
        with PackedWriter(tmp_path / "a") as writer:
            writer.append(1)
            assert partial(tmp_path / "a").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o664  # as any other file of this user
    finally:
        os.umask(umask)


def test_a_folder_that_is_renamed_meanwhile_takes_nobody_elses_files_along(tmp_path: Path) -> None:
    writer = PackedWriter(tmp_path / "a")
    writer.append(1)
    writer.checkpoint()
    partial(tmp_path / "a").rename(tmp_path / "moved")
    partial(tmp_path / "a").mkdir()
    (partial(tmp_path / "a") / "records").write_text("precious")
    writer.append("text")
    writer.discard()
    assert (partial(tmp_path / "a") / "records").read_text() == "precious"
    assert list((tmp_path / "moved").iterdir()) == []


ODD: dict[str, Any] = {
    "no journal": None,
    "a list": [],
    "text": "sizes",
    "a negative size": {"sizes": {"checksums": -4}},
    "a size that is none": {"sizes": {"checksums": 20.0}},
    "a truth for a size": {"samples": True},
    "more samples than checksums": {"samples": 6},
    "sizes that are a list": {"sizes": []},
    "other names": {"named": "yes"},
    "words that are none": {"about": []},
    "a schema that is none": {"schemas": [["object"]]},
    "columns of another shape": {"columns": [["tensor", "float32", 3], [[2]]]},
    "columns that nobody filled": {"columns": [["int"], [[]]]},
    "records that are missing": {"sizes": {"checksums": 20}},
}


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_journal_means_to_begin_anew(tmp_path: Path, kind: str) -> None:
    journal = begin(tmp_path / "a")
    file = partial(tmp_path / "a") / "journal.json"
    assert parse_journal(file.read_bytes()) is not None
    odd = {**journal, **ODD[kind]} if isinstance(ODD[kind], dict) else ODD[kind]
    file.write_text(json.dumps(odd))
    with PackedWriter(tmp_path / "a", resume=True) as writer:
        assert writer.count == 0
        writer.append("new")
    assert PackedDataset(tmp_path / "a")[0] == "new"


@pytest.mark.parametrize("text", [b"", b"{", b"[" * 100_000, b"\xff"])
def test_a_damaged_journal_is_no_journal(text: bytes) -> None:
    assert parse_journal(text) is None
