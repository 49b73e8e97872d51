"""What the rules about delivery, timing and cores say, and for which engines they say nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fake_forecaster import with_forecaster
from fakes import diagnosis_of
from unstarve.advise.all_rules import Rule, advise
from unstarve.advise.diagnosis_facts import stock_loader
from unstarve.advise.loader_call import code_for
from unstarve.advise.proposal import Proposal
from unstarve.advise.rules import batch_delivery, batch_timing, worker_count
from unstarve.model import Advice, Cause, Diagnosis, Share, SlowSample, State

SPAWN = {"multiprocessing_context": "spawn"}
KEPT = {"persistent_workers": True}
LARGE = {"largest_attribute": "self.images", "largest_bytes": 10**9}
ROWS = {"columns_in_memory": True}
THREADS = {"engine": "threads"}


def advised(d: Diagnosis) -> dict[str, Advice]:
    return {one.id: one for one in advise(with_forecaster(d))[0]}


@pytest.mark.parametrize("engine", ["threads", "views", "gather"])
@pytest.mark.parametrize("cause", list(Cause))
def test_nobody_is_asked_for_workers_that_an_engine_does_not_have(engine: str, cause: Cause) -> None:
    d = diagnosis_of(
        cause, workers=0, cpu_s=0.05, remote_s=0.2, collate_s=0.05, handoff_s=0.1, epochs=5, tail=9.0,
        cores=8, config={"engine": engine, "num_workers": 4, **SPAWN}, dataset={**LARGE, **ROWS},
    )  # fmt: skip
    settings = {"num_workers", "persistent_workers", "prefetch_factor", "in_order"}
    for one in advised(d).values():
        assert not settings & one.change.keys()
        assert "worker" not in one.title


def test_a_setting_that_an_engine_ignores_is_rejected_by_name() -> None:
    _, rejected = advise(with_forecaster(diagnosis_of(Cause.CPU, workers=0, cpu_s=0.1, config=THREADS)))
    assert [(one.id, one.why) for one in rejected][:1] == [
        ("use-workers", "changes nothing: the threads engine has no workers")
    ]


def test_settings_that_are_set_are_rejected() -> None:
    kept = advise(with_forecaster(diagnosis_of(Cause.STARTUP, workers=2, epochs=5, config=KEPT)))[1]
    assert ("persistent-workers", "is set already") in {(one.id, one.why) for one in kept}


def test_our_engine_takes_the_place_of_the_users_call_or_of_none() -> None:
    source = "DataLoader(ds, batch_size=bs, num_workers=2)"
    d = diagnosis_of(Cause.HANDOFF, workers=2, cpu_s=0.05, handoff_s=0.1, source=source)
    d = dataclasses.replace(d, command=("train.py", "--data", "my files"))
    one = advised(d)["ring-engine"]
    assert one.code == "import unstarve\n\nunstarve.DataLoader(ds, batch_size=bs, num_workers=2)"
    assert one.command == "unstarve run --engine auto train.py --data 'my files'"
    summary = dataclasses.replace(d.loaders[0], kind="MyLoader")
    own_class = advised(dataclasses.replace(d, loaders=(summary,)))["ring-engine"]
    assert own_class.code == ""
    assert own_class.command == one.command


def test_memory_is_kept_by_the_commands_environment() -> None:
    d = diagnosis_of(Cause.COLLATE, workers=0, collate_s=0.05, batch_bytes=77 << 20)
    one = advised(d)["keep-large-memory"]
    assert one.code == ""
    assert one.command.startswith("MALLOC_MMAP_THRESHOLD_=")
    assert one.command.endswith(" python train.py")
    launched = advised(dataclasses.replace(d, command=("torchrun", "train.py")))["keep-large-memory"]
    assert launched.command.endswith(" torchrun train.py")


def test_contention_is_counted_as_in_the_budget() -> None:
    d = diagnosis_of(Cause.CONTENTION, workers=8, cpu_s=0.1, queued_s=0.3, cores=2)
    d = dataclasses.replace(d, budget=(Share(Cause.CONTENTION, 4.3, 0.43),))
    one = advised(d)["fewer-workers"]
    assert one.change == {"num_workers": 2}
    assert one.why == "8 workers and the step share 2 cores: training waits for a free core 43% of the time"


def test_a_fed_training_whose_steps_have_no_cores_is_told_to_use_fewer_workers() -> None:
    d = diagnosis_of(Cause.CONTENTION, workers=8, cpu_s=0.1, queued_s=0.3, cores=2, state=State.FED)
    assert "fewer-workers" in advised(d)
    assert "fewer-workers" not in advised(dataclasses.replace(d, system={"cores": 16}))


def test_threads_of_workers_are_limited_without_touching_those_of_the_step() -> None:
    given = {"workers": 2, "cpu_s": 0.1, "queued_s": 0.1, "cores": 2}
    one = advised(diagnosis_of(Cause.CONTENTION, helped_s=0.1, **given))["one-thread-per-worker"]
    assert one.speedup is None
    assert " OMP_NUM_THREADS" not in one.command
    assert one.command.endswith(" python train.py")
    crowd = diagnosis_of(Cause.CONTENTION, helped_s=0.1, **given)
    assert worker_count.more_cores(crowd) is None  # nobody else is in the way
    assert "one-thread-per-worker" not in advised(diagnosis_of(Cause.CONTENTION, helped_s=0.01, **given))


def test_a_custom_collate_function_is_named() -> None:
    config = {"collate_fn": "pad_batch"}
    d = diagnosis_of(Cause.COLLATE, workers=2, collate_s=0.2, config=config)
    assert "pad_batch()" in advised(d)["cheaper-collate"].title


def test_the_attribute_that_makes_a_dataset_large_is_named() -> None:
    d = diagnosis_of(Cause.STARTUP, workers=2, epochs=5, config=SPAWN, dataset=LARGE)
    one = batch_timing.lighter_dataset(d)
    assert one is not None
    assert "self.images" in one.title
    assert "1.0 GB" in one.why


def test_slow_samples_are_named() -> None:
    d = diagnosis_of(Cause.ORDER, workers=4, cpu_s=0.05, tail=9.0)
    one = batch_timing.level_samples(dataclasses.replace(d, slow_samples=(SlowSample(17, 912.0),)))
    assert one is not None
    assert "17 (912 ms)" in one.why


@pytest.mark.parametrize(
    ("rule", "cause", "given"),
    [
        (batch_delivery.cheaper_collate, Cause.COLLATE, {"collate_s": 0.2}),
        (batch_delivery.cheaper_sampler, Cause.SAMPLER, {"sampler_s": 0.2}),
        (batch_timing.lighter_dataset, Cause.STARTUP, {"config": SPAWN, "dataset": LARGE}),
        (batch_timing.level_samples, Cause.ORDER, {}),
        (batch_timing.lighter_loop, Cause.HOST, {}),
        (worker_count.more_cores, Cause.CONTENTION, {}),
    ],
)
def test_a_change_that_only_the_user_can_write_comes_without_code(
    rule: Rule, cause: Cause, given: dict[str, Any]
) -> None:
    d = diagnosis_of(cause, **given)
    found = rule(d)
    assert isinstance(found, Proposal)
    assert code_for(stock_loader(d), found.edit) == ""
    assert found.command == ""
