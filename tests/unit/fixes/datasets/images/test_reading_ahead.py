"""Files are read one by one while they are in memory, and on threads where that would wait for each."""

from __future__ import annotations

import threading

import pytest

from unstarve.fixes.datasets.images import image_files
from unstarve.fixes.datasets.images.image_files import Image, get_all
from unstarve.fixes.samples.random_streams import RandomStream, use_stream_in_thread


@pytest.mark.parametrize(
    ("cold_from", "slow_from", "threads", "by_others"),
    [(99, 99, 2, 0), (3, 99, 2, 6), (99, 4, 2, 6), (0, 0, 1, 0)],
)
def test_what_takes_long_is_read_on_threads_and_comes_in_order(
    cold_from: int, slow_from: int, threads: int, by_others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = [0]
    monkeypatch.setattr(image_files, "_blocks_read", lambda: blocks[0])
    readers: list[threading.Thread] = []

    def get(position: int) -> Image:
        readers.append(threading.current_thread())
        blocks[0] += position >= cold_from
        return bytes([position])

    use_stream_in_thread(RandomStream(None, lambda: threads))
    try:
        got = get_all(get, range(10), lambda position: position >= slow_from)
    finally:
        use_stream_in_thread(None)
    assert got == [bytes([position]) for position in range(10)]
    assert sum(reader is not threading.current_thread() for reader in readers) == by_others
