"""What comes next: a sampler that is pulled a little ahead, or a guess from a steady stride."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from torch.utils.data import Sampler


class Order(Iterator[Any]):
    """An iterator over a sampler that can be asked what it is about to give.

    It gives the same items and raises the same errors at the same places. Items are pulled early only while
    somebody looks `ahead`, never from another thread, and never more than `most` of them in all; None is
    no limit.
    """

    def __init__(self, items: Iterable[Any], most: int | None = None) -> None:
        self._items = iter(items)
        self._most = most
        self._pulled: deque[Any] = deque()
        self._ended = False
        self._error: Exception | None = None
        self.current: Any = None
        """The item given last."""
        self.given = 0

    def __next__(self) -> Any:
        if self._pulled:
            self.current = self._pulled.popleft()
        elif self._error is not None:
            error, self._error = self._error, None
            raise error
        else:
            self.current = next(self._items)
        self.given += 1
        return self.current

    def ahead(self) -> Iterator[Any]:
        """The items to come, in order, each pulled when it is looked at."""
        at = 0
        while at < len(self._pulled) or self._pull():
            yield self._pulled[at]
            at += 1

    def _pull(self) -> bool:
        if self._ended or (self._most is not None and self.given + len(self._pulled) >= self._most):
            return False
        try:
            self._pulled.append(next(self._items))
        except StopIteration:
            self._ended = True
        except Exception as error:  # raised in its turn, when the items before it have been given
            self._ended, self._error = True, error
        return not self._ended


class Followed(Sampler[Any]):
    """A sampler, or batch sampler, that tells a dataset about each of its iterations."""

    def __init__(self, sampler: Iterable[Any], begin: Callable[[Order], None]) -> None:
        self._sampler = sampler
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        order = Order(self._sampler)
        self._begin(order)
        return order

    def __len__(self) -> int:
        return len(self._sampler)  # type: ignore[arg-type] # as long as the sampler is, and a TypeError where it has no length

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_sampler":
            raise AttributeError(name)
        return getattr(self._sampler, name)


class Stride:
    """Guesses from accesses that advance steadily: one index after the other, one batch after the other."""

    def __init__(self) -> None:
        self._last: list[int] = []
        self._step = 0
        self._sure = False

    def see(self, indices: Sequence[Any]) -> None:
        """Note what is being asked for."""
        now = [i for i in indices if type(i) is int]
        if not now or len(now) != len(indices):
            self._last, self._step, self._sure = [], 0, False
            return
        step = now[0] - self._last[0] if self._last else 0
        steady = len(self._last) >= len(now) and all(
            b - a == step for a, b in zip(self._last, now, strict=False)
        )
        # Two single indices are always a stride: it takes a third one to believe it.
        self._sure = steady and step != 0 and (len(now) > 1 or step == self._step)
        self._last, self._step = now, step

    def ahead(self, count: int | None) -> Iterator[list[int]]:
        """The accesses to come, without end, or within a dataset of `count` samples."""
        if not self._sure:
            return
        batch = self._last
        while batch:
            batch = [
                i + self._step
                for i in batch
                if i + self._step >= 0 and (count is None or i + self._step < count)
            ]
            yield batch
