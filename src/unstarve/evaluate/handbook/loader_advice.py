"""The advice of `unstarve run` for a loader that was just measured: a short recording without a training."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Collection
from typing import Any

from unstarve.advise.all_rules import advise
from unstarve.collect.call_site import call_source
from unstarve.collect.loader_origin import creation
from unstarve.collect.torch_iterator import shut_down
from unstarve.evaluate.handbook.setting_trials import Trials, unwarned
from unstarve.evaluate.record_block import recording
from unstarve.model import Advice, LoaderArguments
from unstarve.model.launch_settings import LaunchSettings

_WARMUP = 5
_FEWEST_BATCHES = 20
"""After warm-up: fewer say too little about the gain of a change."""
_MOST_BATCHES = 400
_PATIENCE = 3
"""Times the given seconds after which a slow loader is not waited for any longer."""


def dataset_name(function: str) -> str:
    """How the caller of `function` writes its dataset: a name such as ``train_set``, or else ``dataset``."""
    frame = creation().frame
    text = None if frame is None else call_source(frame.f_code.co_filename, frame.f_lineno, function)
    if text is None:
        return "dataset"
    call = ast.parse(text, mode="eval").body
    if not isinstance(call, ast.Call):
        return "dataset"
    given = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "dataset")]
    simple = given and isinstance(given[0], (ast.Name, ast.Attribute))
    return ast.unparse(given[0]) if simple else "dataset"


def advice_for(
    trials: Trials,
    setting: LoaderArguments,
    code: str,
    seconds: float,
    *,
    measured: Collection[str],
) -> tuple[Advice, ...]:
    """What else would make this loader faster; `code` is the recommended call, which advice changes.

    Arguments in `measured` were tried: no forecast says anything about them. Nothing inside a recording,
    because there can only be one.
    """
    if LaunchSettings.from_environment() is not None:
        return ()
    loader = trials.loader(setting)
    with recording() as recorded:
        _iterate(trials, loader, seconds)
    d = recorded.diagnosis
    named = tuple(dataclasses.replace(one, source=code, statement="") for one in d.loaders[:1])
    advised, _ = advise(dataclasses.replace(d, loaders=named))
    return tuple(one for one in advised if not set(one.change) & set(measured))


def _iterate(trials: Trials, loader: Any, seconds: float) -> None:
    begin = trials.clock()
    with unwarned():
        iterator = iter(loader)
    try:
        for count, _ in enumerate(iterator, start=1):
            passed_s = trials.clock() - begin
            enough = count >= _WARMUP + _FEWEST_BATCHES and passed_s >= seconds
            if enough or count >= _MOST_BATCHES or passed_s >= _PATIENCE * seconds:
                break
    finally:
        shut_down(iterator, loader)
