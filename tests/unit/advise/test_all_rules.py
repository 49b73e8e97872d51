"""Every rule speaks when it should and is silent when it should not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fake_forecaster import with_forecaster
from fakes import copies_of, diagnosis_of
from unstarve.advise.all_rules import HOST_RULES, RULES, advise
from unstarve.advise.gain import both
from unstarve.model import Advice, Cause, Diagnosis, FunctionCost, Gain, Scenario, State
from unstarve.predict.forecast import LoaderModel, model_loader, what_if


def advised(d: Diagnosis) -> dict[str, Advice]:
    return {one.id: one for one in advise(with_forecaster(d))[0]}


SPAWN = {"multiprocessing_context": "spawn"}
KEPT = {"persistent_workers": True}
PINNED = {"pin_memory": True}
LARGE = {"largest_attribute": "self.images", "largest_bytes": 10**9}
ROWS = {"columns_in_memory": True}
FIRES: list[tuple[str, Cause, dict[str, Any]]] = [
    ("more-workers", Cause.REMOTE, {"workers": 2, "remote_s": 0.3}),
    ("more-workers", Cause.REMOTE, {"workers": 0, "remote_s": 0.1}),
    ("use-workers", Cause.CPU, {"workers": 0, "cpu_s": 0.1, "cores": 4}),
    ("use-workers", Cause.DISK, {"workers": 0, "disk_s": 0.1, "cores": 4}),
    ("fill-cores", Cause.CPU, {"workers": 2, "cpu_s": 0.2, "cores": 8}),
    ("cheaper-work", Cause.CPU, {"workers": 4, "cpu_s": 0.4, "cores": 4}),
    ("cheaper-work", Cause.CPU, {"workers": 2, "cpu_s": 0.4, "cores": 8, "system": {"quota_cores": 2.0}}),
    ("fewer-workers", Cause.CONTENTION, {"workers": 8, "cpu_s": 0.1, "queued_s": 0.3, "cores": 2}),
    ("cheaper-work", Cause.CONTENTION, {"workers": 8, "cpu_s": 0.1, "queued_s": 0.3, "cores": 2}),
    ("more-cores", Cause.CONTENTION,
     {"workers": 2, "cpu_s": 0.1, "queued_s": 0.1, "cores": 2, "step_s": 0.1}),
    ("more-cores", Cause.CONTENTION,
     {"workers": 4, "cpu_s": 0.1, "queued_s": 0.1, "cores": 8, "system": {"quota_cores": 2.0}}),
    ("more-reads", Cause.DISK, {"workers": 1, "disk_s": 0.1}),
    ("local-copy", Cause.REMOTE, {"workers": 2, "remote_s": 0.2, "system": {"filesystems": {"nfs4": 9}}}),
    ("cheaper-collate", Cause.COLLATE, {"workers": 2, "collate_s": 0.2}),
    ("cheaper-collate", Cause.COLLATE, {"workers": 0, "collate_s": 0.2, "config": {"collate_fn": "pad"}}),
    ("ring-engine", Cause.HANDOFF, {"workers": 2, "cpu_s": 0.05, "handoff_s": 0.1, "batch_bytes": 10**8}),
    ("ring-engine", Cause.HANDOFF, {"workers": 2, "cpu_s": 0.05, "handoff_s": 0.1, "batch_bytes": None}),
    ("ring-engine", Cause.COLLATE, {"workers": 2, "collate_s": 0.05, "handoff_s": 0.05}),
    ("ring-engine", Cause.PIN, {"workers": 2, "cpu_s": 0.01, "pin_s": 0.05, "config": PINNED}),
    ("no-workers", Cause.HANDOFF, {"workers": 2, "cpu_s": 0.001, "handoff_s": 0.1}),
    ("keep-large-memory", Cause.COLLATE, {"workers": 0, "collate_s": 0.05, "batch_bytes": 77 << 20}),
    ("no-pinning", Cause.PIN, {"workers": 2, "cpu_s": 0.01, "pin_s": 0.05, "config": PINNED}),
    ("pin-memory", Cause.COPY, {"workers": 2, "waits": {Cause.CPU: 0.1}, "copies": copies_of(0.3)}),
    ("to-device", Cause.COPY, {"workers": 2, "waits": {Cause.CPU: 0.1}, "copies": copies_of(0.3)}),
    ("to-device", Cause.COPY,
     {"workers": 2, "waits": {Cause.CPU: 0.1}, "copies": copies_of(0.3, "pinned", blocking=False)}),
    ("cheaper-sampler", Cause.SAMPLER, {"workers": 2, "sampler_s": 0.03}),
    ("persistent-workers", Cause.STARTUP, {"workers": 2, "epochs": 5}),
    ("lighter-dataset", Cause.STARTUP, {"workers": 2, "epochs": 5, "config": SPAWN, "dataset": LARGE}),
    ("no-workers-to-start", Cause.STARTUP,
     {"workers": 2, "epochs": 5, "config": {"collate_fn": "default_collate"}, "dataset": ROWS}),
    ("any-order", Cause.ORDER, {"workers": 4, "cpu_s": 0.05, "tail": 9.0}),
    ("level-samples", Cause.ORDER, {"workers": 4, "cpu_s": 0.05, "tail": 9.0}),
    ("deeper-prefetch", Cause.ORDER, {"workers": 4, "cpu_s": 0.05, "tail": 9.0}),
    ("deeper-prefetch", Cause.CPU,
     {"workers": 4, "cpu_s": 0.06, "tail": 9.0, "step_s": 0.024, "cores": 8, "state": State.TIGHT}),
]  # fmt: skip


@pytest.mark.parametrize(("id", "cause", "given"), FIRES)
def test_a_rule_speaks_where_its_cause_is_found(id: str, cause: Cause, given: dict[str, Any]) -> None:
    d = diagnosis_of(cause, **given)
    found = advised(d)
    assert id in found
    assert d.headroom is not None
    for one in found.values():
        assert one.title
        assert one.why
        assert max((len(line) for line in one.code.splitlines()), default=0) <= 72
        assert one.speedup is not None
        assert one.speedup.low <= one.speedup.predicted <= one.speedup.high
        assert one.speedup.predicted <= d.headroom.speedup


SILENT: list[tuple[str, Cause, dict[str, Any]]] = [
    ("more-workers", Cause.CPU, {"workers": 2, "cpu_s": 0.3, "cores": 2}),
    ("more-workers", Cause.REMOTE, {"workers": 32, "remote_s": 3.0}),
    ("use-workers", Cause.CPU, {"workers": 0, "cpu_s": 0.1, "cores": 1}),
    ("use-workers", Cause.CPU, {"workers": 2, "cpu_s": 0.1, "cores": 8}),
    ("fill-cores", Cause.CPU, {"workers": 4, "cpu_s": 0.4, "cores": 4}),
    ("fill-cores", Cause.CPU, {"workers": 4, "cpu_s": 0.4, "cores": 8, "system": {"quota_cores": 2.0}}),
    ("cheaper-work", Cause.CPU, {"workers": 1, "cpu_s": 0.05, "cores": 8}),
    ("fewer-workers", Cause.CONTENTION, {"workers": 2, "cpu_s": 0.1, "queued_s": 0.1, "cores": 4}),
    ("more-cores", Cause.CONTENTION, {"workers": 8, "cpu_s": 0.1, "queued_s": 0.3, "cores": 2}),
    ("more-reads", Cause.DISK, {"workers": 0, "disk_s": 0.1}),
    ("local-copy", Cause.DISK, {"workers": 2, "disk_s": 0.2, "system": {"filesystems": {"ext4": 99}}}),
    ("ring-engine", Cause.HANDOFF, {"workers": 2, "handoff_s": 0.1, "config": {"engine": "ring"}}),
    ("ring-engine", Cause.CPU, {"workers": 2, "cpu_s": 0.1}),
    ("ring-engine", Cause.COLLATE, {"workers": 0, "collate_s": 0.1}),
    ("keep-large-memory", Cause.COLLATE, {"workers": 2, "collate_s": 0.05, "batch_bytes": 77 << 20}),
    ("keep-large-memory", Cause.COLLATE, {"workers": 0, "collate_s": 0.05, "batch_bytes": 20 << 20}),
    ("keep-large-memory", Cause.COLLATE,
     {"workers": 0, "collate_s": 0.05, "batch_bytes": 77 << 20, "tensors": 4}),
    ("keep-large-memory", Cause.COLLATE, {"workers": 0, "collate_s": 0.005, "batch_bytes": 77 << 20}),
    ("no-pinning", Cause.PIN, {"workers": 2, "pin_s": 0.05}),
    ("no-workers", Cause.HANDOFF, {"workers": 2, "cpu_s": 0.2, "handoff_s": 0.1}),
    ("pin-memory", Cause.COPY, {"workers": 2, "config": {"pin_memory": True}, "copies": copies_of(0.3)}),
    ("pin-memory", Cause.COPY, {"workers": 2, "copies": copies_of(0.3, "pinned")}),
    ("pin-memory", Cause.CPU, {"workers": 2, "cpu_s": 0.1, "copies": copies_of(0.02)}),
    ("to-device", Cause.COPY, {"workers": 2, "copies": copies_of(0.3, overlapped=True)}),
    ("to-device", Cause.CPU, {"workers": 2, "cpu_s": 0.1}),
    ("non-blocking", Cause.COPY, {"workers": 2, "copies": copies_of(0.3)}),
    ("non-blocking", Cause.COPY, {"workers": 2, "copies": copies_of(0.3, "pinned", blocking=False)}),
    ("persistent-workers", Cause.STARTUP, {"workers": 2, "epochs": 1}),
    ("persistent-workers", Cause.STARTUP, {"workers": 2, "epochs": 5, "config": KEPT}),
    ("lighter-dataset", Cause.STARTUP, {"workers": 2, "dataset": LARGE}),
    ("lighter-dataset", Cause.STARTUP, {"workers": 2, "config": SPAWN}),
    ("no-workers-to-start", Cause.STARTUP,
     {"workers": 2, "epochs": 5, "config": {"collate_fn": "pad"}, "dataset": ROWS}),
    ("any-order", Cause.ORDER, {"workers": 4, "config": {"in_order": False}}),
    ("any-order", Cause.ORDER, {"workers": 4, "torch": "2.5.1+cu124"}),
    ("deeper-prefetch", Cause.CPU, {"workers": 4, "cpu_s": 0.4, "cores": 8}),
    ("deeper-prefetch", Cause.ORDER, {"workers": 4, "config": {"prefetch_factor": 16}}),
]  # fmt: skip


@pytest.mark.parametrize(("id", "cause", "given"), SILENT)
def test_a_rule_is_silent_where_it_would_not_help(id: str, cause: Cause, given: dict[str, Any]) -> None:
    assert id not in advised(diagnosis_of(cause, **given))


@pytest.mark.parametrize("state", [State.FED, State.INCONCLUSIVE])
@pytest.mark.parametrize("cause", [Cause.CPU, Cause.REMOTE, Cause.COMPUTE, Cause.UNKNOWN])
def test_nothing_is_advised_where_data_is_not_the_problem(state: State, cause: Cause) -> None:
    assert advise(diagnosis_of(cause, workers=0, cpu_s=0.1, remote_s=0.1, state=state)) == ((), ())


def test_a_loop_busy_with_itself_is_told_what_to_move_out() -> None:
    d = diagnosis_of(Cause.HOST, workers=2, state=State.FED)
    cost = FunctionCost("log_images", "/home/me/train.py", 31, Cause.HOST, 4.0, 0.6)
    other = FunctionCost("decode", "/home/me/data.py", 7, Cause.CPU, 9.0, 0.9)
    (one,), _ = advise(dataclasses.replace(d, functions=(other, cost)))
    assert one.id == "lighter-loop"
    assert "log_images" in one.title
    assert "train.py:31" in one.why
    assert "decode" not in one.why
    assert one.speedup is None


def test_cpu_work_at_full_cores_names_the_costliest_functions_and_asks_for_no_workers() -> None:
    d = diagnosis_of(Cause.CPU, workers=4, cpu_s=0.4, cores=4)
    cost = FunctionCost("decode", "/home/me/data.py", 7, Cause.CPU, 9.0, 0.9)
    found = advised(dataclasses.replace(d, functions=(cost,)))
    assert "decode" in found["cheaper-work"].title
    assert "data.py:7" in found["cheaper-work"].why
    assert not any("num_workers" in one.change for one in found.values())


def test_latency_asks_for_more_workers_than_cores_and_keeps_the_users_call() -> None:
    source = "DataLoader(ds, batch_size=bs, num_workers=args.workers)"
    one = advised(diagnosis_of(Cause.REMOTE, workers=2, remote_s=0.3, cores=2, source=source))["more-workers"]
    assert one.change["num_workers"] > 2
    assert one.code == f"DataLoader(ds, batch_size=bs, num_workers={one.change['num_workers']})"


def test_workers_that_wait_for_each_other_are_not_asked_for_more_of() -> None:
    crowd = diagnosis_of(Cause.REMOTE, workers=3, remote_s=0.3, step_s=0.1)
    assert "lock" in advised(crowd)["more-workers"].why
    assert "more-workers" not in {one.id for one in advise(with_forecaster(crowd, waits_together=True))[0]}


def test_new_workers_are_kept_between_epochs() -> None:
    d = diagnosis_of(Cause.CPU, workers=0, cpu_s=0.1, cores=4, epochs=2)
    assert advised(d)["use-workers"].change["persistent_workers"] is True


def test_an_iterable_dataset_is_warned_about_sharing_its_samples_out() -> None:
    config = {"sampler": "_InfiniteConstantSampler"}
    found = advised(diagnosis_of(Cause.REMOTE, workers=1, remote_s=0.3, config=config))
    assert "get_worker_info" in found["more-workers"].why


def test_the_largest_gain_comes_first_and_an_argument_is_set_only_once() -> None:
    d = diagnosis_of(Cause.REMOTE, workers=1, remote_s=0.2, disk_s=0.1, cpu_s=0.1, cores=8, opens=8,
                     waits={Cause.REMOTE: 4.0, Cause.DISK: 3.0, Cause.CPU: 3.0})  # fmt: skip
    found, _ = advise(with_forecaster(d))
    gains = [one.speedup.predicted for one in found if one.speedup is not None]
    assert gains == sorted(gains, reverse=True)
    assert sum("num_workers" in one.change for one in found) == 1


def test_a_loader_whose_inside_was_not_seen_leaves_every_rule_unharmed() -> None:
    for cause in Cause:
        bare = dataclasses.replace(diagnosis_of(cause), demand=None, loaders=(), system={}, headroom=None)
        for rule in (*RULES, *HOST_RULES):
            rule(bare)


def test_advice_and_whatif_give_the_same_interval() -> None:
    d = with_forecaster(diagnosis_of(Cause.REMOTE, workers=2, remote_s=0.3, step_s=0.2, free_s=0.03))
    one = {one.id: one for one in advise(d)[0]}["more-workers"]
    assert d.whatif is not None
    (same,) = (f for f in d.whatif.curve if f.setting.workers == one.change["num_workers"])
    assert one.speedup == Gain(same.speedup, same.speedup_low, same.speedup_high)


def slow_to_start() -> Diagnosis:
    """Few workers on many cores, made anew for every short epoch."""
    given = {"workers": 2, "cpu_s": 0.2, "cores": 16, "epochs": 2, "step_s": 0.12, "free_s": 0.01}
    return diagnosis_of(Cause.CPU, waits={Cause.CPU: 6.0, Cause.STARTUP: 4.0}, **given)


def test_the_best_pair_is_offered_as_one_change() -> None:
    (first, *others), _ = advise(with_forecaster(slow_to_start()))
    assert set(first.parts) == {"fill-cores", "persistent-workers"}
    assert set(first.change) == {"num_workers", "persistent_workers"}
    assert first.code.count("DataLoader(") == 1
    assert "persistent_workers=True" in first.code
    assert first.title.startswith("Combine ")
    alone = [one.speedup.predicted for one in others if one.id in first.parts and one.speedup is not None]
    assert len(alone) == 2
    assert first.speedup is not None
    assert first.speedup.predicted > 1.05 * max(alone)


def test_changes_that_exclude_each_other_are_no_pair() -> None:
    assert both(Scenario(workers=0), Scenario(workers=8)) is None
    assert both(Scenario(workers=8), {Cause.COPY: 1.0}) is None
    same = both(Scenario(left={"cpu": 0.5, "disk": 0.5}), Scenario(workers=8, left={"cpu": 0.4}))
    assert same == Scenario(workers=8, left={"cpu": 0.4, "disk": 0.5})
    d = with_forecaster(
        diagnosis_of(
            Cause.HANDOFF,
            workers=2,
            cpu_s=0.001,
            handoff_s=0.1,
            epochs=20,
            waits={Cause.HANDOFF: 6.0, Cause.STARTUP: 4.0},
        )
    )
    found, _ = advise(d)
    assert {"no-workers", "persistent-workers"} <= {one.id for one in found}
    assert not any(one.parts for one in found)


def test_busy_cores_are_the_answer_to_who_asks_for_workers() -> None:
    _, rejected = advise(with_forecaster(diagnosis_of(Cause.CPU, workers=2, cpu_s=0.3, cores=2)))
    assert "more workers: would not help, 2 cores are busy" in [f"{one.what}: {one.why}" for one in rejected]
    advised, rejected = advise(with_forecaster(slow_to_start()))
    assert any("num_workers" in one.change for one in advised)
    assert not any("workers" in one.what for one in rejected)


def test_a_change_that_may_lose_more_than_it_gains_is_rejected_with_its_interval() -> None:
    """A step that computes on both cores, and workers beside it."""
    d = with_forecaster(diagnosis_of(Cause.CPU, workers=0, cpu_s=0.02, cores=2, step_s=0.1, free_s=0.08))
    assert isinstance(d.forecaster, LoaderModel)
    demand = dataclasses.replace(
        d.forecaster.demand,
        machine=dataclasses.replace(d.forecaster.demand.machine, step_threads=2.0),
        batches=tuple(
            one._replace(step_s=one.step_delay_s, step_delay_s=0.0) for one in d.forecaster.demand.batches
        ),
    )
    model = model_loader(demand)
    advised, rejected = advise(dataclasses.replace(d, forecaster=model, whatif=what_if(model, (0, 1, 2, 4))))
    assert not any("num_workers" in one.change for one in advised)
    (why,) = (one.why for one in rejected if "worker" in one.what)
    assert "slower" in why or "would not help" in why


def test_without_forecaster_advice_comes_without_a_gain() -> None:
    for one in advise(diagnosis_of(Cause.COLLATE, workers=2, collate_s=0.2))[0]:
        assert one.speedup is None


def test_every_rule_says_why_it_exists() -> None:
    assert all(rule.__doc__ for rule in (*RULES, *HOST_RULES))
