"""A list whose values are in shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import eq as equal
from operator import index as as_index
from typing import Any, NoReturn

from unstarve.fixes.memory.region import SharedRegion
from unstarve.fixes.memory.shared.columns import column_of
from unstarve.fixes.memory.shared.layouts import Layout

_AT_ONCE = 512
"""Values that an iteration reads at once."""


def read_only(what: str) -> TypeError:
    """Return the error for a write."""
    return TypeError(
        f"a shared {what} is read-only: make the {what} again and share it,"
        " or name its attribute in unstarve.share(dataset, skip=[…])"
    )


class SharedList(Sequence[Any]):
    """Reads like the list or tuple that it replaces; its values are new objects each time.

    A child process gets a handle to the memory, however it is started. Slices and `copy` are plain lists.
    """

    __slots__ = ("__weakref__", "_at", "_count", "_layout", "_like", "_region", "_some")

    def __init__(self, region: SharedRegion, layout: Layout, count: int, like: type[Any] = list) -> None:
        column = column_of(region, layout)
        self._at, self._some = column.at, column.some
        self._region, self._layout, self._count, self._like = region, layout, count, like

    @property
    def shared_bytes(self) -> int:
        """The memory of everything that was shared together with this list."""
        return self._region.size

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if index.__class__ is not int:
            if isinstance(index, slice):
                return self._like(self._slice(index))
            index = self._position(index)
        if index < 0:
            index += self._count
        if 0 <= index < self._count:
            return self._at(index)
        raise IndexError(f"{self._like.__name__} index out of range")

    def _position(self, index: Any) -> int:
        try:
            return as_index(index)
        except TypeError:
            kinds = f"{self._like.__name__} indices must be integers or slices, not {type(index).__name__}"
            raise TypeError(kinds) from None

    def _slice(self, wanted: slice) -> list[Any]:
        positions = range(self._count)[wanted]
        if positions.step == 1:
            return self._some(positions.start, max(positions.start, positions.stop))
        return [self._at(position) for position in positions]

    def __iter__(self) -> Iterator[Any]:
        for chunk in self._chunks(0, self._count):
            yield from chunk

    def __reversed__(self) -> Iterator[Any]:
        return map(self._at, reversed(range(self._count)))

    def _chunks(self, begin: int, end: int) -> Iterator[list[Any]]:
        for start in range(begin, end, _AT_ONCE):
            yield self._some(start, min(start + _AT_ONCE, end))

    def __contains__(self, value: object) -> bool:
        return any(value in chunk for chunk in self._chunks(0, self._count))

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Return the first position of a value; ValueError if there is none."""
        within = range(self._count)[start:stop]
        position = within.start
        for chunk in self._chunks(within.start, within.stop):
            if value in chunk:
                return position + chunk.index(value)
            position += len(chunk)
        raise ValueError(f"{value!r} is not in {self._like.__name__}")

    def count(self, value: Any) -> int:
        """Return how often a value occurs."""
        return sum(chunk.count(value) for chunk in self._chunks(0, self._count))

    def copy(self) -> Any:
        """Return a plain list (or tuple) of all values."""
        return self._like(self._some(0, self._count))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        kind = other._like if isinstance(other, SharedList) else type(other)
        if not issubclass(kind, self._like) or not isinstance(other, Sequence):
            return NotImplemented
        return len(other) == self._count and all(map(equal, self, other))

    __hash__ = None  # type: ignore[assignment]  # as for lists

    def __add__(self, other: Any) -> Any:
        return self.copy() + (other.copy() if isinstance(other, SharedList) else other)

    def __radd__(self, other: Any) -> Any:
        return other + self.copy()

    def __mul__(self, times: Any) -> Any:
        return self.copy() * times

    __rmul__ = __mul__

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3])) + (", …" if self._count > 3 else "")
        return f"<shared {self._like.__name__} of {self._count:,}: {shown}>"

    def __copy__(self) -> SharedList:
        return self  # it never changes

    def __deepcopy__(self, memo: Any) -> SharedList:
        return self

    def __reduce__(self) -> Any:
        return SharedList, (self._region, self._layout, self._count, self._like)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise read_only(self._like.__name__)

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse
