"""`unstarve.autotune`: any DataLoader, with settings that it finds itself while training goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.utils.data import DataLoader

from unstarve.errors import UsageError
from unstarve.fixes.loader.engines import process_engines
from unstarve.fixes.memory.store.budget import parse_bytes
from unstarve.loader_proxy import LoaderProxy
from unstarve.model import Tuning
from unstarve.model.engines import Engine
from unstarve.tune.explain import explain
from unstarve.tune.round import Options
from unstarve.tune.seen import SITE
from unstarve.tune.tuner import Tuner


def autotune(
    loader: DataLoader[Any],
    *,
    deterministic: bool = False,
    images: bool = False,
    memory_bytes: int | str | None = None,
    max_workers: int | None = None,
    budget_s: float | None = None,
    budget_steps: int | None = None,
    on_change: Callable[[Tuning], None] | None = None,
) -> Any:
    """Return a loader that gives the same batches and finds the fastest settings during the first steps.

    It tries numbers of workers and prefetch depths between steps of real training, measures each, and settles
    on the best, or on your own settings where nothing is faster by more than the noise. When loading becomes
    faster or slower later, it tries again. Every sample is delivered once per epoch, in your sampler's order;
    datasets without random draws give the very same batches.

    - `deterministic`: batches are bit-identical to those of the loader as it is, random augmentation in
      workers included. Only the prefetch depth is tuned then, as each worker has random numbers of its own.
    - `images`: where the dataset is torchvision's `ImageFolder` with transforms that `ImageFolderDataset`
      knows, try that in its place, too: same files, order and targets, but random crops are drawn from other
      generators and pixels differ as two JPEG decoders do. Not with `deterministic`.
    - `memory_bytes`: what loading may take, in bytes or as "8GB"; by default most of what is free. Settings
      that would need more are not tried.
    - `max_workers`: tried at most; by default 16, or the number of cores where there are more.
    - `budget_s`, `budget_steps`: settle after so much training at the latest.
    - `on_change` is called with a `Tuning` after each setting that was measured, and when it has settled.

    `result.tuning` is what was found, `result.explain()` says it in words; all else is the loader's own.
    Loaders that iterate in a way of their own are returned as they are, and `explain()` says why.
    """
    if not isinstance(loader, DataLoader):
        raise UsageError(f"autotune takes a torch.utils.data.DataLoader, not {type(loader).__name__}")
    return TunedLoader(
        loader,
        {
            "deterministic": deterministic,
            "images": images,
            "memory_bytes": memory_bytes,
            "max_workers": max_workers,
            "budget_s": budget_s,
            "budget_steps": budget_steps,
            "on_change": on_change,
        },
    )


def tuner_for(loader: DataLoader[Any], asked: Mapping[str, Any]) -> Tuner:
    """Return what tunes a loader. `asked`: arguments of `autotune`; UsageError for what makes no sense."""
    options = dict(asked)
    for name in ("max_workers", "budget_s", "budget_steps"):
        value = options.get(name)
        if value is not None and not value > 0:
            raise UsageError(f"{name} is more than 0, not {value!r}")
    if options.get("memory_bytes") is not None:
        options["memory_bytes"] = parse_bytes(options["memory_bytes"])
    try:
        tuner = Tuner(loader, Options(**options), uses_ring=_uses_ring(loader))
    except TypeError as error:
        raise UsageError(f"autotune= takes the arguments of unstarve.autotune: {error}") from error
    site = vars(loader).get(SITE)  # where a recording has noted who made it
    tuner.where = f"{site[0]}:{site[1]}" if isinstance(site, tuple) else None
    return tuner


def _uses_ring(loader: Any) -> bool:
    """Whether it is a loader of ours whose workers, had it any, would hand over in reused memory."""
    asked_for = getattr(loader, "_engine_asked_for", None)
    return asked_for in (Engine.AUTO, Engine.RING) and process_engines.why_no_ring() is None


class TunedLoader(LoaderProxy):
    """A loader that tunes itself; in all else it is the loader it wraps, ``isinstance`` included."""

    dataloader: DataLoader[Any]
    _tuner: Tuner
    _asked: Mapping[str, Any]

    def __init__(self, loader: DataLoader[Any], asked: Mapping[str, Any]) -> None:
        # Written past __setattr__, which is for the loader's attributes.
        vars(self).update(dataloader=loader, _tuner=tuner_for(loader, asked), _asked=asked)

    def __iter__(self) -> Iterator[Any]:
        if self._tuner.why_not is not None:
            return iter(self.dataloader)
        return self._tuner.iterate(self.dataloader)

    @property
    def tuning(self) -> Tuning:
        """What was tried and found so far."""
        return self._tuner.tuning

    def explain(self) -> str:
        """Say what runs now and why, and what was tried."""
        return explain(self.tuning)

    def __repr__(self) -> str:
        return f"autotune({self.dataloader!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy begins to tune anew."""
        return TunedLoader, (self.dataloader, self._asked)
