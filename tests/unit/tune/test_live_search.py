"""What is measured of the settings that a search asks for."""

from __future__ import annotations

from unstarve.model import LoaderSettings
from unstarve.tune.bounds import WorkerLimits
from unstarve.tune.index_stream import IndexStream
from unstarve.tune.live_search import WARM_UP, LiveSearch, Options
from unstarve.tune.tunability import Tunability


def test_what_the_training_process_does_once_is_not_measured_where_it_has_no_workers() -> None:
    own = LoaderSettings(0)
    measured = LiveSearch(own, own, WorkerLimits(2, 16), Tunability(), Options(), set(), uses_ring=False)
    measured.start_crew(own, (), 0, 0.0)
    now, complete, batches = 0.0, False, 0
    while not complete:
        took_s = 0.2 if batches < WARM_UP else 0.001
        complete = measured.add(now + 0.002, now + 0.002 + took_s, None, IndexStream(iter(())))
        now += 0.002 + took_s
        batches += 1
    assert measured.trials
    assert round(1 / measured.trials[0].samples_per_s, 6) == 0.003
