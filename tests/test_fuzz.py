"""What once broke a reader does not break it again, and the fuzzer finds what it is there to find."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from fuzz import driver
from fuzz.runner import Limits, Runner
from fuzz.targets import NAMES, known_attacks, load


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner() as running:
        yield running


@pytest.mark.parametrize("name", NAMES)
def test_valid_inputs_are_read(name: str, runner: Runner) -> None:
    outcomes = [runner.outcome(name, data) for data in load(name).seeds()]
    assert [(o.finding, o.refused) for o in outcomes] == [(None, None)] * len(outcomes)


@pytest.mark.parametrize("name", NAMES)
def test_known_attacks_are_read_or_refused_within_limits(name: str, runner: Runner) -> None:
    attacks = known_attacks(name)
    findings = {title: runner.outcome(name, data).finding for title, data in attacks.items()}
    assert {title: finding for title, finding in findings.items() if finding} == {}


@pytest.fixture(scope="module")
def planted() -> Iterator[Runner]:
    with Runner(limits=Limits(cpu_s=1, memory_mb=50)) as running:
        yield running


@pytest.mark.parametrize(
    ("fault", "finding"),
    [
        ("raise", "KeyError in _planted.py:run"),
        ("allocate", "too much memory"),
        ("crash", "ended by SIGSEGV in _planted.py:run"),
        ("spin", "too much time in _planted.py:run"),
    ],
)
def test_a_fault_is_found_and_the_next_input_runs(fault: str, finding: str, planted: Runner) -> None:
    assert planted.outcome("_planted", fault.encode()).finding == finding
    after = planted.outcome("_planted", b"refuse")
    assert after.finding is None
    assert after.refused == "DataFileError: input is damaged; write it anew"


def test_a_finding_is_made_smaller(planted: Runner) -> None:
    long = b"raise " + b"x" * 500
    small = driver.minimized("_planted", planted, long, planted.outcome("_planted", long))
    assert small.split(b" ")[0] == b"raise"
    assert len(small) < 20


@pytest.mark.parametrize("name", NAMES)
def test_valid_inputs_are_the_same_every_time(name: str) -> None:
    make = load(name).seeds
    assert getattr(make, "__wrapped__", make)() == make()  # without the cache


def test_the_same_seed_makes_the_same_inputs() -> None:
    first, again, other = (list(islice(driver.inputs("npy", seed), 60)) for seed in (1, 1, 2))
    assert first == again != other
