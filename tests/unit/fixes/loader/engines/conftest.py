"""What holds for every engine: it leaves no thread behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from thread_rows import reading_threads


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    if reading_threads():
        gc.collect()  # which takes its time
    assert reading_threads() == []
