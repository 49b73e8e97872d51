"""Other projects are measured beside ours, in parts that exist."""

from __future__ import annotations

import peers
from peer_loaders import PEERS

from unstarve.benchmark.run_benchmark import PARTS
from unstarve.model import Kind


def test_every_peer_serves_a_part_that_there_is() -> None:
    assert set(PEERS) <= {part.name for part in PARTS}
    assert {entry.kind for entries in PEERS.values() for entry in entries} == {Kind.PEER}


def test_the_script_that_measures_them_loads() -> None:
    assert callable(peers.main)
