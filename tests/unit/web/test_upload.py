"""A run file comes in whole, checked and under a free name, or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clocked_runs import write_run
from unstarve.record import format as f
from unstarve.record.run_file import parts_folder
from unstarve.record.writer import meta_chunk
from unstarve.web import upload
from web_client import TestClient, listed


@pytest.fixture
def run(tmp_path: Path) -> bytes:
    return write_run(tmp_path / "elsewhere.unstarve").read_bytes()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_is_added_and_listed(client: TestClient, folder: Path, run: bytes) -> None:
    answer = client.put("/api/runs", params={"name": "von Köln.unstarve"}, content=run)
    assert answer.status_code == 201
    assert answer.json()["name"] == "von Köln.unstarve"
    assert (folder / "von Köln.unstarve").read_bytes() == run
    assert listed(client)["von Köln.unstarve"]["summary"]["state"] == "starved"
    assert client.get(f"/run/{answer.json()['id']}").status_code == 200


def test_nothing_is_ever_replaced(client: TestClient, folder: Path, run: bytes) -> None:
    (folder / "a.unstarve").write_bytes(b"mine")
    parts_folder(folder / "a-2.unstarve").mkdir()  # a leftover whose events would be taken for the new run's
    added = [client.put("/api/runs?name=a.unstarve", content=run).json()["name"] for _ in range(2)]
    assert added == ["a-3.unstarve", "a-4.unstarve"]
    assert (folder / "a.unstarve").read_bytes() == b"mine"


@pytest.mark.parametrize(
    "name",
    ["", "a", "a.txt", ".unstarve", ".a.unstarve", "../a.unstarve", "/tmp/a.unstarve", "a/b.unstarve",
     "a\\b.unstarve", "a\n.unstarve", "a\x00.unstarve", "a\u202e.unstarve", "x" * 300 + ".unstarve",
     "a.unstarve.parts"],
)  # fmt: skip
def test_an_invalid_name_is_refused(client: TestClient, folder: Path, run: bytes, name: str) -> None:
    answer = client.put("/api/runs", params={"name": name}, content=run)
    assert answer.status_code == 400
    assert "name" in answer.json()["error"]
    assert names(folder) == []
    assert names(folder.parent) == ["elsewhere.unstarve", "runs"]


def test_a_file_that_is_not_a_run_is_refused_and_leaves_nothing(client: TestClient, folder: Path) -> None:
    broken = f.header() + meta_chunk(0, "launch", {"kind": 1}) + meta_chunk(0, "process", {})
    for content in (b"", b"hello", b"UNSTARVE", f.HEADER.pack(f.MAGIC, 99, 0, 0), broken):
        answer = client.put("/api/runs?name=a.unstarve", content=content)
        assert answer.status_code == 422
        assert ".uploading" not in answer.text
        assert str(folder) not in answer.text
    assert names(folder) == []


def test_more_than_the_limit_is_refused_announced_or_not(
    client_for: Callable[..., TestClient], folder: Path, run: bytes
) -> None:
    client = client_for(upload_bytes=len(run) - 1)

    def pieces() -> Iterator[bytes]:
        yield run[:100]
        yield run[100:]

    for content in (run, pieces()):
        answer = client.put("/api/runs?name=a.unstarve", content=content)
        assert answer.status_code == 413
        assert "--max-upload" in answer.json()["error"]
    assert names(folder) == []
    assert client_for(upload_bytes=len(run)).put("/api/runs?name=a.unstarve", content=run).status_code == 201


def test_a_folder_that_cannot_be_written_is_reported(
    client: TestClient, run: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, mode: str = "r") -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    answer = client.put("/api/runs?name=a.unstarve", content=run)
    assert answer.status_code == 507
    assert "the disk is full" in answer.json()["error"]


def test_an_upload_larger_than_the_free_disk_is_refused(
    client: TestClient, folder: Path, run: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "RESERVE_BYTES", shutil.disk_usage(folder).total)
    answer = client.put("/api/runs?name=a.unstarve", content=run)
    assert answer.status_code == 507
    assert "the disk is full" in answer.json()["error"]
    assert names(folder) == []
