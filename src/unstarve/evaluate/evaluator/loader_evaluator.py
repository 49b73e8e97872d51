"""Wrap a loader to log how long its batches take, or to replay a few of them as if loading were free."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from unstarve.collect.dali_pipeline import pipelines
from unstarve.errors import UsageError
from unstarve.evaluate.evaluator.epoch_log import now_ns
from unstarve.evaluate.evaluator.first_batches import (
    epoch_length,
    fill_cache,
    note_epoch_length,
    promised_length,
)
from unstarve.evaluate.evaluator.load_recorder import LoadRecorder, write_json
from unstarve.evaluate.evaluator.timed_iterator import TimedIterator
from unstarve.loader_proxy import LoaderProxy, check_loader
from unstarve.steer.replay.replayed_batches import BatchCache
from unstarve.words import duration, percent, rate

Mode = Literal["log", "replay"]

_SETTINGS = ("mode", "num_cached_batches", "metrics_file", "log_file", "replay_batches")


class LoaderEvaluator(LoaderProxy):
    """A loader that times itself; otherwise it behaves like the loader it wraps.

    ``mode="log"`` passes the loader's own batches through. ``mode="replay"`` reads `num_cached_batches`
    full-size batches when it is created and returns those again and again: the ideal to compare with.

    - Attributes are read from and set on the wrapped loader, and ``isinstance(…, DataLoader)`` holds if it
      is one. The evaluator's own settings cannot be changed later.
    - `get_metrics` covers all epochs so far; two iterators at the same time do not mix.
    - `metrics_file` and `log_file` are written when an epoch ends or is abandoned; `log_file` also from
      time to time and at exit, so that a killed training leaves one, too.
    - Times are the host's. On CUDA, a wait does not mean that the device was idle.

    An iterator of DALI cannot go back: ``mode="replay"`` leaves it in the middle of its epoch, and the
    evaluator's ``reset()`` does not touch it.

    A replayed epoch has `replay_batches` batches if given, otherwise as many as the loader yields, if that is
    known from an earlier epoch or from its length. Otherwise it is endless. `replay_on` and `device` say
    where replayed batches are kept: see `BatchCache`.
    """

    mode: Mode
    num_cached_batches: int
    metrics_file: str | Path | None
    log_file: str | Path | None
    replay_batches: int | None
    _cache: BatchCache | None
    _placement: dict[str, Any]
    _recorder: LoadRecorder
    _seen_length: int | None

    def __init__(
        self,
        dataloader: Iterable[Any],
        mode: Mode = "log",
        num_cached_batches: int = 20,
        metrics_file: str | Path | None = None,
        *,
        log_file: str | Path | None = None,
        replay_on: Literal["host", "device"] = "host",
        device: torch.device | str | int | None = None,
        replay_batches: int | None = None,
    ) -> None:
        _check(dataloader, mode, num_cached_batches, replay_batches)
        cache = (
            BatchCache(num_cached_batches, replay_on=replay_on, device=device) if mode == "replay" else None
        )
        # Bypasses __setattr__, which sets the loader's attributes.
        vars(self).update(
            dataloader=dataloader,
            mode=mode,
            num_cached_batches=num_cached_batches,
            metrics_file=metrics_file,
            log_file=log_file,
            replay_batches=replay_batches,
            _cache=cache,
            _placement={"replay_on": replay_on, "device": device},
            _recorder=LoadRecorder(
                mode,
                metrics_file=Path(metrics_file) if metrics_file else None,
                log_file=Path(log_file) if log_file else None,
            ),
            _seen_length=None if cache is None else fill_cache(cache, dataloader),
        )
        self._recorder.cached_batches = 0 if cache is None else len(cache)

    # --- iterating ---

    def __iter__(self) -> Iterator[Any]:
        begin_ns = now_ns()
        if self._cache is None:
            iterator = iter(self.dataloader)
            on_exhausted: Callable[[int], None] = partial(note_epoch_length, self.dataloader)
        else:
            iterator = self._replayed(self._cache)
            on_exhausted = _ignore
        return TimedIterator(iterator, self._recorder.begin_epoch(begin_ns), self._recorder, on_exhausted)

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)
        is_read = vars(self).get("_cache") is None
        return value if is_read or name != "reset" or pipelines(self.dataloader) is None else _nothing

    def __len__(self) -> int:
        """`replay_batches` if it decides, otherwise the loader's length; its TypeError if it has none."""
        if self._cache is not None and self.replay_batches is not None:
            return self.replay_batches
        return super().__len__()

    def _replayed(self, cache: BatchCache) -> Iterator[Any]:
        length = self._replay_length() if len(cache) else 0
        for _ in itertools.count() if length is None else range(length):
            yield cache.hand_out()

    def _replay_length(self) -> int | None:
        if self.replay_batches is not None:
            return self.replay_batches
        return epoch_length(self.dataloader) if self._seen_length is None else self._seen_length

    # --- what was measured ---

    @property
    def cache_ready(self) -> bool:
        """Whether there are batches to replay."""
        return bool(self._cache)

    @property
    def cached_batches(self) -> list[Any]:
        """Copies of the batches to replay; empty in log mode."""
        return [] if self._cache is None else [self._cache.hand_out() for _ in range(len(self._cache))]

    def get_metrics(self) -> dict[str, Any]:
        """Return the metrics of all epochs so far, in seconds; empty before the first batch.

        ``batch_times`` are times inside ``next()``, ``step_times`` run from one delivered batch to the next,
        ``total_time`` is the wall time of all epochs from ``iter()`` to their end.
        """
        metrics = self._recorder.document()
        return metrics if metrics["total_batches"] else {}

    def save_metrics(self, filename: str | Path | None = None) -> None:
        """Write `get_metrics` as JSON to `filename`, by default to `metrics_file`; raises OSError."""
        target = filename or self.metrics_file
        if not target:
            print("No filename provided for saving metrics")
            return
        write_json(Path(target), self.get_metrics())
        print(f"Metrics saved to: {target}")

    def print_summary(self) -> None:
        """Print a summary of the loader and its metrics."""
        cached = self._recorder.cached_batches
        metrics = self.get_metrics()
        print(
            summary_text(
                self.dataloader, metrics, mode=self.mode, cached=cached, capacity=self.num_cached_batches
            )
        )

    def __repr__(self) -> str:
        return f"LoaderEvaluator({self.dataloader!r}, mode={self.mode!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has the same settings, reads its own batches to replay, and has measured nothing yet."""
        return _made_again, (
            self.dataloader,
            {name: vars(self)[name] for name in _SETTINGS} | self._placement,
        )


def _made_again(dataloader: Iterable[Any], settings: dict[str, Any]) -> LoaderEvaluator:
    return LoaderEvaluator(dataloader, **settings)


def _nothing() -> None:
    """What ``reset()`` of a replayed DALI iterator does: it would only warn that its epoch is not over."""


def _ignore(batches: int) -> None:
    """The length of a replayed epoch teaches nothing about the loader."""


def _check(dataloader: Any, mode: str, num_cached_batches: int, replay_batches: int | None) -> None:
    if mode not in ("log", "replay"):
        raise UsageError(f"mode must be 'log' or 'replay', got {mode!r}")
    check_loader(dataloader)
    if type(num_cached_batches) is not int or num_cached_batches < 1:
        raise UsageError(f"num_cached_batches must be an integer >= 1, got {num_cached_batches!r}")
    if replay_batches is not None and (type(replay_batches) is not int or replay_batches < 1):
        raise UsageError(f"replay_batches must be an integer >= 1 or None, got {replay_batches!r}")


def summary_text(loader: Any, metrics: Mapping[str, Any], *, mode: str, cached: int, capacity: int) -> str:
    """Summarize the loader and, if any batch was delivered, its times in a few lines."""
    lines = [
        "Loader Evaluator Summary:",
        f"  Mode: {mode}",
        f"  Dataset size: {_or_unknown(_dataset_size(loader))}",
        f"  Number of batches: {_or_unknown(promised_length(loader))}",
        f"  Cache size: {cached}/{capacity}",
        f"  Cache ready: {cached > 0}",
    ]
    if metrics:
        wall_s, batches = metrics["total_time"], metrics["total_batches"]
        start_s = sum(metrics["iterator_start_times"])
        lines += [
            f"  Total batches processed: {batches}",
            f"  Epochs: {len(metrics['epochs'])}{'' if metrics['complete'] else ' (not all complete)'}",
            f"  Total time: {duration(wall_s)}",
            f"  Starting the loader: {duration(start_s)}",
            f"  Average batch time: {duration(metrics['avg_batch_time'])}",
            f"  Min batch time: {duration(metrics['min_batch_time'])}",
            f"  Max batch time: {duration(metrics['max_batch_time'])}",
        ]
        if wall_s > 0:
            waited_s = start_s + sum(metrics["batch_times"])
            lines += [
                f"  Share of time waiting for data: {percent(waited_s / wall_s)}",
                f"  Throughput: {rate(batches / wall_s)} batches/s{_samples(metrics, wall_s)}",
            ]
    return "\n".join(lines)


def _samples(metrics: Mapping[str, Any], wall_s: float) -> str:
    samples = metrics["samples"]
    return "" if samples is None else f", {rate(samples / wall_s)} samples/s"


def _dataset_size(loader: Any) -> int | None:
    try:
        return len(loader.dataset)
    except (AttributeError, TypeError, NotImplementedError):
        return None


def _or_unknown(count: int | None) -> int | str:
    return "unknown" if count is None else count
