"""Which indices the rest of an epoch consists of.

A sampler that saves its own state is asked for it after each batch of indices. Any other is iterated from the
start of the epoch, with the generators as they were then, and what was given already is dropped: indices are
drawn, samples are not read.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Self

from unstarve.fixes.loader.resume.progress import progress_of
from unstarve.fixes.loader.resume.protocol import sampler_states


def _nothing() -> None:
    pass


class ReplayedIndices:
    """An index sampler whose first epoch is the rest of one that began elsewhere; later epochs are whole.

    `given` batches of it reached the user; the sampler was asked for `asked` batches.
    """

    def __init__(self, sampler: Any, given: int, asked: int) -> None:
        self.sampler = sampler
        self.caught_up: Callable[[], None] = _nothing
        """Called when the generators are where they were when the epoch was interrupted."""
        self._given = given
        self._asked = max(asked, given)
        self._rest: RestOfEpoch | None = None
        self._is_settled = False

    def __iter__(self) -> Iterator[Any]:
        if self._is_settled:
            return iter(self.sampler)
        self._rest = RestOfEpoch(iter(self.sampler), self._given, self._asked, self._catch_up)
        return self._rest

    def _catch_up(self) -> None:
        self.caught_up()
        self.caught_up = _nothing

    def settle(self) -> None:
        """Let the epoch that has begun draw what had been drawn; later epochs are whole."""
        self._is_settled = True
        if self._rest is not None:
            self._rest.catch_up()

    def __len__(self) -> int:
        return len(self.sampler)


class RestOfEpoch:
    """The indices of an epoch from the batch after the first `given`.

    Before the first index it draws `asked` batches of indices, drops those given, and calls `caught_up`.
    """

    def __init__(self, source: Iterator[Any], given: int, asked: int, caught_up: Callable[[], None]) -> None:
        self._source = source
        self._given = given
        self._asked = asked
        self._caught_up = caught_up
        self._drawn: deque[Any] | None = None

    def catch_up(self) -> deque[Any]:
        """Draw what had been drawn, once; return the batches of indices among it that are still to come."""
        if self._drawn is None:
            deque(islice(self._source, self._given), maxlen=0)
            self._drawn = deque(islice(self._source, self._asked - self._given))
            self._caught_up()
        return self._drawn

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        drawn = self._drawn
        if drawn is None:
            drawn = self.catch_up()
        return drawn.popleft() if drawn else next(self._source)


class NotedIndices:
    """An index sampler that keeps the states of stateful samplers, one for each batch not yet given."""

    def __init__(self, loader: Any, sampler: Any) -> None:
        self.sampler = sampler
        self._loader = weakref.ref(loader)
        self._states: deque[tuple[int, dict[str, Any]]] = deque()
        self._first = 0
        self.caught_up: Callable[[], None] = _nothing
        """Called before the first index of an epoch is drawn."""

    def begin_at(self, given: int) -> None:
        """Let the next epoch be the rest of one of which `given` batches reached the user."""
        self._first = given

    def settle(self) -> None:
        """Let the epochs after the one that has begun be whole ones."""
        self._first = 0
        self.caught_up = _nothing

    def __iter__(self) -> Iterator[Any]:
        self._states.clear()
        return self._noted(iter(self.sampler), self._first)

    def _noted(self, source: Iterator[Any], drawn: int) -> Iterator[Any]:
        self.caught_up()
        for item in source:
            drawn += 1
            loader = self._loader()
            if loader is not None:
                given = progress_of(loader).given
                while self._states and self._states[0][0] < given:
                    self._states.popleft()
                self._states.append((drawn, sampler_states(loader)))
            yield item

    def after(self, given: int) -> dict[str, Any] | None:
        """Return the samplers' states after `given` batches of indices; None if they were not kept."""
        return next((states for drawn, states in self._states if drawn == given), None)

    def __len__(self) -> int:
        return len(self.sampler)
