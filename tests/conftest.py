"""What all tests need, whatever started them."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator

import pytest

from whole_machine import clean_up, turn

# A background job is started with these ignored, and so would be every training that a test interrupts.
for _number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        _python = signal.default_int_handler if _number is signal.SIGINT else signal.SIG_DFL
        signal.signal(_number, _python)


@pytest.fixture
def torch_as_it_was() -> Iterator[None]:
    """Recording this very process patches torch's loader for good: other tests must find it as it was."""
    yield
    from unstarve.launch.hooks import detach  # needs torch, which few tests here have imported

    detach()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need the whole machine come first: no long test of another process is running then."""
    items.sort(key=lambda item: item.get_closest_marker("whole_machine") is None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Pause while a test of another process needs the whole machine, and the other way around."""
    with turn(alone=item.get_closest_marker("whole_machine") is not None):
        return (yield)


def pytest_unconfigure() -> None:
    clean_up()
