"""``unstarve.check(loader)``: find what will go wrong with a loader before it does.

The checks, one function each, and what runs them:

    objects/    a loader and its first batches, before the run
    source/     source that nobody has run
    evidence/   a recorded run; the report's health section

Ids, reasons and severities are in `model.checks`. No check guesses: what cannot be known is not reported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unstarve.model.finding import Finding


class _Callable(ModuleType):
    """This package is what users call, too: ``unstarve.check(loader)``."""

    def __call__(
        self, target: Any, *, batches: int = 2, samples: int = 0, ignore: Sequence[str] = ()
    ) -> list[Finding]:
        """See `unstarve.check.one_target.check`."""
        from unstarve.check.one_target import check

        return check(target, batches=batches, samples=samples, ignore=ignore)


sys.modules[__name__].__class__ = _Callable
