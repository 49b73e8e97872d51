"""Draw training on real batches against training on replayed ones, from whatever holds their times."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unstarve.errors import LogError, UsageError
from unstarve.evaluate.evaluator.compare_logs import compare_logs
from unstarve.evaluate.evaluator.read_log import log_from_metrics, read_log
from unstarve.model import LoadLog, Phase
from unstarve.present.exports.comparison_figure import comparison_figure


def plot_comparison(
    real_log: Any,
    ideal_log: Any,
    output: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
) -> Path:
    """Draw real against ideal into `output` (``.png`` or ``.svg``) and return its path.

    Without an `output` the figure goes to ``comparison.png``, and a notebook shows it as well.

    A log is a path (an evaluator's ``log_file``, DALI's metrics or a run file), what ``get_metrics()``
    returns, an evaluator, or a `LoadLog`. The run file of `unstarve ideal` may be given as both: its real
    and its replayed steps are drawn. `title` takes the place of the headline, which then moves below.
    """
    real = _as_log(real_log, "real_log", Phase.REAL)
    ideal = _as_log(ideal_log, "ideal_log", Phase.REPLAY)
    path = Path("comparison.png" if output is None else output)
    comparison_figure(real, ideal, compare_logs(real, ideal), path, title=title)
    if output is None:
        _show_in_notebook(path)
    return path


def _show_in_notebook(figure: Path) -> None:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if hasattr(shell, "kernel"):  # IPython in a terminal has none, and nowhere to draw
        from IPython.display import Image, display

        display(Image(filename=str(figure)))  # type: ignore[no-untyped-call]  # untyped in IPython


def _as_log(source: Any, name: str, phase: Phase) -> LoadLog:
    if isinstance(source, LoadLog):
        log = source
    elif isinstance(source, (str, os.PathLike)):
        log = read_log(Path(source), phase)
    elif isinstance(source, Mapping):
        log = log_from_metrics(source, label=name)
    elif callable(getattr(source, "get_metrics", None)):
        log = log_from_metrics(source.get_metrics(), label=name)
    else:
        raise UsageError(
            f"{name} is a path, metrics, an evaluator or a LoadLog, not a {type(source).__name__}"
        )
    if not log.load_s:
        raise LogError(f"{name}: holds no batches, so there is nothing to draw")
    return log
