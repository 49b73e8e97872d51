"""Indices and seeds that crews share."""

from __future__ import annotations

from unstarve.tune.index_stream import IndexStream, Seeds


def test_indices_given_back_are_the_next_again() -> None:
    stream = IndexStream(iter([[0, 1], [2, 3], [4]]))
    stream.look_ahead()
    stream.begin_taking()
    taken = [next(stream), next(stream)]
    stream.undo_taking()
    assert [next(stream), next(stream)] == taken == [[0, 1], [2, 3]]
    stream.give_back(taken)
    assert list(stream) == [[0, 1], [2, 3], [4]]
    assert (stream.batches, stream.samples) == (3, 5)


def test_the_first_crew_has_torchs_seed_and_the_others_their_own() -> None:
    seeds = [next(numbers) for numbers in [Seeds(42)] for _ in range(4)]
    assert seeds[0] == 42
    assert len(set(seeds)) == 4
    again = Seeds(42)
    assert seeds == [next(again) for _ in range(4)]
