"""Recording reaches Ray's workers, and Ray Train's thread counts as the one that trains."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from unstarve.collect.training_thread import set_training_thread, training_thread
from unstarve.launch import hooks, ray_environment
from unstarve.launch.ray_environment import recorded_environment

BOOTSTRAP = str(Path(ray_environment.__file__).parent / "bootstrap")


@pytest.fixture
def ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """A stand-in with the parts that are patched; the calls of its ``init``."""
    calls: list[Any] = []

    class Runner:
        def run(self, target: Any) -> None:
            self._thread = threading.Thread(target=target)
            self._thread.start()

        def is_running(self) -> bool:
            return self._thread.is_alive()

    module, train = ModuleType("ray"), ModuleType(ray_environment.TRAIN_MODULE)
    module.init = lambda address=None, **options: calls.append((address, options))  # type: ignore[attr-defined] # a module takes any
    train.ThreadRunner = Runner  # type: ignore[attr-defined] # as above
    for one in (module, train):
        monkeypatch.setitem(sys.modules, one.__name__, one)
    monkeypatch.setenv("UNSTARVE_LAUNCH", "settings")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    ray_environment.attach()
    yield calls
    set_training_thread(None)
    hooks.detach()


def test_a_cluster_that_runs_already_gets_the_settings_of_the_job(ray: list[Any]) -> None:
    sys.modules["ray"].init(
        "10.0.0.1:6379", runtime_env={"pip": ["x"], "env_vars": {"A": "1"}}, namespace="n"
    )
    ((address, options),) = ray
    assert (address, options["namespace"]) == ("10.0.0.1:6379", "n")
    assert options["runtime_env"] == {
        "pip": ["x"],
        "env_vars": {"A": "1", "UNSTARVE_LAUNCH": "settings", "PYTHONPATH": f"{BOOTSTRAP}:${{PYTHONPATH}}"},
    }


@pytest.mark.parametrize("address", [None, "local"])
def test_a_cluster_that_the_command_starts_inherits_them(ray: list[Any], address: str | None) -> None:
    sys.modules["ray"].init(address, num_cpus=2)
    assert ray == [(address, {"num_cpus": 2})]


def test_one_that_runs_on_this_machine_is_joined_without_an_address(ray: list[Any], tmp_path: Path) -> None:
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:6379")
    sys.modules["ray"].init()
    assert ray[0][1]["runtime_env"]["env_vars"]["UNSTARVE_LAUNCH"] == "settings"


def test_nothing_is_passed_on_when_nothing_is_recorded(
    ray: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UNSTARVE_LAUNCH")
    sys.modules["ray"].init("auto")
    assert ray == [("auto", {})]


@pytest.mark.usefixtures("ray")
def test_the_path_of_the_user_comes_after_ours_and_that_of_a_submitted_job_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed = recorded_environment({"env_vars": {"PYTHONPATH": "/mine"}})["env_vars"]
    assert passed["PYTHONPATH"] == f"{BOOTSTRAP}:/mine"
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", '{"runtime_env": {"env_vars": {"PYTHONPATH": "/job"}}}')
    assert set(recorded_environment(None)["env_vars"]) == {"UNSTARVE_LAUNCH"}


@pytest.mark.usefixtures("ray")
def test_the_thread_of_ray_train_is_the_one_that_trains() -> None:
    ray_environment.apply_train(None)
    go_on = threading.Event()
    runner = sys.modules[ray_environment.TRAIN_MODULE].ThreadRunner()
    runner.run(go_on.wait)
    assert training_thread() == runner._thread.ident
    assert runner.is_running()
    go_on.set()
    runner._thread.join()
    assert not runner.is_running()
    set_training_thread(None)
    assert training_thread() == threading.main_thread().ident
