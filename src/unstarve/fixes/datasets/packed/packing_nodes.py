"""Packing on several machines: each loads and encodes samples of the files it holds, one writes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from unstarve.errors import UsageError
from unstarve.fixes.datasets.packed.source_files import Links, SourceFiles, find_files

T = TypeVar("T")
R = TypeVar("R")


class Nodes(Protocol):
    """Machines that run functions."""

    def on_each(self, function: Callable[..., R], *arguments: Any) -> dict[str, R]:
        """Call a function on every machine; results by the machine's id."""
        ...

    def map(
        self, function: Callable[[T], R], items: Sequence[T], where: Sequence[frozenset[str] | None]
    ) -> Iterator[R]:
        """Call a function on each item on one of the machines of `where`; None for any. Yield in order."""
        ...


class HeldFiles:
    """The files that the machines hold; a path that several have is one file."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._holders: Mapping[Path, frozenset[str]] = {}

    def find(self, words: Sequence[str], leave_out: Path) -> SourceFiles:
        """Find the files that the words name, on all machines. Raises UsageError if none has any."""
        whole = [str(Path(word).absolute()) for word in words]
        listed = self._nodes.on_each(_listed, whole, leave_out.absolute())
        found = [one for one in listed.values() if isinstance(one, SourceFiles)]
        if not found:
            raise UsageError(f"{next(iter(listed.values()))} (on any node)")
        holders: dict[Path, frozenset[str]] = {}
        for node, one in listed.items():
            for path in _paths(one) if isinstance(one, SourceFiles) else ():
                holders[path] = holders.get(path, frozenset()) | {node}
        self._holders = holders
        base = found[0].base
        if any(one.base != base for one in found):
            base = Path(os.path.commonpath([path.parent for path in holders]))
        names = {path.relative_to(base).as_posix() for path in holders}
        links = Links(
            sorted({link for one in found for link in one.links.outside}),
            sorted({link for one in found for link in one.links.endless}),
        )
        return SourceFiles(base, sorted(names, key=lambda name: name.split("/")), links)

    def read(self, function: Callable[[Path], R], paths: Sequence[Path]) -> Iterable[R]:
        """Call a function on each path, where the file is."""
        return self._nodes.map(function, paths, [self.holders(path) for path in paths])

    def load(
        self,
        function: Callable[[Sequence[int]], list[R]],
        numbers: range,
        file: Callable[[int], Path | None],
        most: int,
    ) -> Iterator[R]:
        """Call a function on groups of at most `most` numbers, on machines that hold all files of a group."""
        groups: list[list[int]] = []
        where: list[frozenset[str] | None] = []
        for number in numbers:
            holders = self.holders(file(number))
            if not groups or len(groups[-1]) == most or where[-1] != holders:
                groups.append([])
                where.append(holders)
            groups[-1].append(number)
        for group in self._nodes.map(function, groups, where):
            yield from group

    def holders(self, path: Path | None) -> frozenset[str] | None:
        """The machines that hold a file; None if that is not known."""
        return None if path is None else self._holders.get(path)


def _paths(files: SourceFiles) -> list[Path]:
    return [files.base / name for name in files.names]


def _listed(words: Sequence[str], leave_out: Path) -> SourceFiles | str:
    """The files of one machine, or why there are none."""
    try:
        return find_files(words, leave_out)
    except UsageError as error:
        return str(error)
