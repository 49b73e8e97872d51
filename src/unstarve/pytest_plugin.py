"""A plugin for pytest, which finds it by its entry point: check loaders, and limit how long a test waits.

    def test_the_training_loader_is_healthy(unstarve_check):
        unstarve_check(make_loader(), ignore=["no-workers"])

    @pytest.mark.max_wait_share(0.1)
    def test_loading_keeps_up():
        train(steps=50)

Every pytest of the environment loads it, so torch and the rest of unstarve are imported on first use.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from unstarve.words import counted, duration, listed, percent

if TYPE_CHECKING:
    from unstarve.model.finding import Finding

_MARKER = "max_wait_share"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(share): fail if DataLoaders make the test wait for more than this share (0-1) of "
        "the time from the first to the last batch of their epochs",
    )


@pytest.fixture
def unstarve_check() -> Callable[..., list[Finding]]:
    """Call it with a loader or dataset: the test fails if a check finds a warning or an error.

    Takes the arguments of `unstarve.check`, and returns the notes that it found.
    """
    return _check


def _check(target: Any, *, batches: int = 2, samples: int = 0, ignore: Sequence[str] = ()) -> list[Finding]:
    from unstarve.checks.one_target import check
    from unstarve.model.finding import Severity

    findings = check(target, batches=batches, samples=samples, ignore=ignore)
    serious = [found for found in findings if found.severity is not Severity.NOTE]
    if serious:
        pytest.fail("\n\n".join(map(_told, serious)), pytrace=False)
    return findings


def _told(found: Finding) -> str:
    where = "" if found.where is None else f" ({found.where})"
    return f"{found.severity} {found.id}{where}: {found.message}\n{found.why}\n{found.fix}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Record a test that has the marker, and compare its waits with the limit."""
    marker = item.get_closest_marker(_MARKER)
    if marker is None:
        return (yield)
    limit = _limit(marker)
    # Here, not at the top: these need torch.
    from unstarve.analyze.epoch_waits import epoch_waits
    from unstarve.api import load_run
    from unstarve.evaluate.record_block import recording
    from unstarve.launch.hooks import detach

    with tempfile.TemporaryDirectory(prefix="unstarve-") as folder:
        path = Path(folder) / "test.unstarve"
        recorded = False
        try:
            with recording(path):
                recorded = True
                result = yield
        finally:
            if recorded:  # other tests should see torch as it is
                detach()
        waits = epoch_waits(load_run(path))
    if not waits:
        pytest.fail(f"{_MARKER}: no DataLoader delivered two batches in this test", pytrace=False)
    wait_s, seconds = sum(one.wait_s for one in waits), sum(one.seconds for one in waits)
    if wait_s > limit * seconds:
        parts = [
            f"{one.name} {duration(one.wait_s)} of {duration(one.seconds)} in {counted(one.steps, 'step')}"
            for one in waits
        ]
        pytest.fail(
            f"{_MARKER}: the test waited for data {percent(wait_s / seconds)} of the time, at most "
            f"{percent(limit)} is allowed: {listed(parts)}",
            pytrace=False,
        )
    return result


def _limit(marker: pytest.Mark) -> float:
    share = marker.args[0] if len(marker.args) == 1 and not marker.kwargs else None
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
        raise pytest.UsageError(f"{_MARKER} takes a share from 0 to 1: @pytest.mark.{_MARKER}(0.1)")
    return float(share)
