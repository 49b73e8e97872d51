"""`uncounted`: ``stacklevel`` counts as if the function were not there."""

from __future__ import annotations

import inspect
import logging
import traceback
import warnings

import pytest

from unstarve.stack_levels import uncounted


def _warn() -> None:
    warnings.warn("look there", stacklevel=2)


@uncounted
def _between() -> None:
    _warn()


def test_a_warning_names_the_caller_of_an_uncounted_function() -> None:
    with pytest.warns(UserWarning, match="look there") as seen:
        _between()
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]  # CPython has frames
    assert [(one.filename, one.lineno) for one in seen] == [(__file__, line)]


def test_a_filter_by_module_finds_it() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", module=__name__.replace(".", r"\."))
        with pytest.raises(UserWarning, match="look there"):
            _between()


def test_a_log_record_names_the_caller_of_an_uncounted_function(caplog: pytest.LogCaptureFixture) -> None:
    @uncounted
    def log() -> None:
        note()

    def note() -> None:
        logging.getLogger("there").warning("look there", stacklevel=2)

    log()
    assert caplog.records[0].funcName == test_a_log_record_names_the_caller_of_an_uncounted_function.__name__


def test_a_traceback_still_shows_its_frame() -> None:
    @uncounted
    def fail() -> None:
        raise KeyError("gone")

    with pytest.raises(KeyError) as caught:
        fail()
    frame = traceback.extract_tb(caught.tb)[-1]
    assert frame.filename.startswith(__file__)
    assert (frame.name, frame.lineno) == ("fail", fail.__code__.co_firstlineno + 2)


def test_marking_a_function_twice_changes_nothing() -> None:
    code = _between.__code__
    assert uncounted(_between).__code__ is code
