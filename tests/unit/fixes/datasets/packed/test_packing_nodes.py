"""Packing on machines that hold different files; here, machines are folders."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from unstarve import PackedDataset
from unstarve.errors import UsageError
from unstarve.fixes.datasets.packed.packing_job import PackOrder, pack


class Machines:
    """Each holds some of the files of a folder, and fails where it is asked for another."""

    def __init__(self, folder: Path, held: dict[str, str]) -> None:
        self.folder = folder
        self.held = held
        """By machine: the first letters of its files."""
        self.ran: list[str] = []

    def on_each(self, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        return {name: self.on(name, lambda: function(*arguments)) for name in self.held}

    def map(
        self, function: Callable[..., Any], items: Sequence[Any], where: Sequence[frozenset[str] | None]
    ) -> Iterator[Any]:
        for item, names in zip(items, where, strict=True):
            name = sorted(names or self.held)[0]
            self.ran.append(name)
            yield self.on(name, lambda item=item: function(item))

    def on(self, name: str, call: Callable[[], Any]) -> Any:
        """Call a function while only this machine's files are there."""
        hidden = [path for path in self.folder.iterdir() if path.name[0] not in self.held[name]]
        for path in hidden:
            path.rename(self.folder.with_name(path.name))
        try:
            return call()
        finally:
            for path in hidden:
                self.folder.with_name(path.name).rename(path)


class Silent:
    def reach(self, done: int, total: int | None) -> None: ...

    def note(self, text: str) -> None: ...


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "machines" / "files"
    folder.mkdir(parents=True)
    return folder


def packed(machines: Machines, source: str, to: Path, **options: Any) -> PackedDataset:
    pack(PackOrder((source,), to, **options), Silent(), machines)
    return PackedDataset(to)


def test_files_are_packed_where_they_are_in_the_order_of_their_names(folder: Path, tmp_path: Path) -> None:
    for letter in "abc":
        for number in range(3):
            (folder / f"{letter}{number}").write_bytes(f"{letter}{number}".encode())
    machines = Machines(folder, {"one": "ac", "two": "bc"})
    found = packed(machines, str(folder), tmp_path / "all.packed")
    assert list(found.names) == [f"{letter}{number}" for letter in "abc" for number in range(3)]
    assert [bytes(found[at]).decode() for at in range(9)] == list(found.names)
    assert machines.ran == ["one", "one", "two", "one"]  # the first sample alone, then a, b and c


def test_shards_are_read_where_they_are(folder: Path, tmp_path: Path) -> None:
    for letter in "ab":
        with tarfile.open(folder / f"{letter}.tar", "w") as tar:
            for number in range(2):
                member = tarfile.TarInfo(f"{letter}{number}.cls")
                member.size = 1
                tar.addfile(member, BytesIO(str(number).encode()))
    machines = Machines(folder, {"one": "b", "two": "a"})
    found = packed(machines, f"{folder}/*.tar", tmp_path / "all.packed")
    assert list(found.names) == ["a0", "a1", "b0", "b1"]
    assert [found[at]["cls"] for at in range(4)] == [0, 1, 0, 1]


def test_files_that_no_machine_has_are_told(folder: Path, tmp_path: Path) -> None:
    machines = Machines(folder, {"one": "a", "two": "b"})
    with pytest.raises(UsageError, match=r"no files in .* \(on any node\)"):
        packed(machines, str(folder), tmp_path / "all.packed")
    assert list(tmp_path.glob("all*")) == []


def test_work_that_was_begun_here_is_resumed_there(folder: Path, tmp_path: Path) -> None:
    for number in range(4):
        (folder / f"a{number}").write_bytes(b"1")
    (folder / "a2").unlink()
    (folder / "a2").symlink_to("nowhere")
    order = PackOrder((str(folder),), tmp_path / "all.packed")
    with pytest.raises(Exception, match="2 samples are kept"):
        pack(order, Silent())
    (folder / "a2").unlink()
    (folder / "a2").write_bytes(b"1")
    done = pack(order, Silent(), Machines(folder, {"one": "a"}))
    assert (done.samples, done.resumed_from) == (4, 2)
