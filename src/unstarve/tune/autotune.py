"""Loaders that tune themselves: `unstarve.autotune` and `unstarve.DataLoader(autotune=True)`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from torch.utils.data import DataLoader as TorchDataLoader

from unstarve.errors import UsageError
from unstarve.fixes.loader.data_loader import EngineLoader
from unstarve.fixes.loader.engines.process_engines import why_no_ring
from unstarve.fixes.loader.resume.epoch_start import begin_epoch
from unstarve.fixes.memory.store.cache_placement import parse_bytes
from unstarve.loader_proxy import LoaderProxy
from unstarve.marks import SITE
from unstarve.model import Tuning
from unstarve.model.engine_names import WORKER_ENGINES, Engine
from unstarve.stack_levels import uncounted
from unstarve.tune.explain import explain
from unstarve.tune.live_search import Options
from unstarve.tune.tuner import Tuner

T = TypeVar("T", covariant=True)


def autotune(
    loader: TorchDataLoader[Any],
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
    on the best one. Your own settings stay unless another is faster by more than the noise. When loading
    becomes faster or slower later, it searches again. Every sample is delivered once per epoch, in your
    sampler's order; datasets without random draws give exactly the same batches.

    - `deterministic`: batches are bit-identical to those of the original loader, including random
      augmentation in workers. Each worker has its own random numbers, so only the prefetch depth is tuned.
    - `images`: if the dataset is torchvision's `ImageFolder` with transforms that `ImageFolderDataset`
      supports, also try that in its place. Files, order and targets stay the same, but random crops are drawn
      from other generators and pixels differ slightly, as between any two JPEG decoders. Not available with
      `deterministic`.
    - `memory_bytes`: how much memory loading may take, in bytes or as "8GB"; by default most of what is free.
      Settings that would need more are not tried.
    - `max_workers`: the most workers to try; by default 16, or the number of cores if there are more.
    - `budget_s`, `budget_steps`: settle after this many seconds or steps of training at the latest.
    - `on_change` is called with a `Tuning` after each measured setting and when tuning has settled.

    `result.tuning` holds what was found and `result.explain()` puts it into words; everything else is the
    loader's own. A loader that cannot be tuned iterates as before, and `explain()` says why.
    """
    if not isinstance(loader, TorchDataLoader):
        raise UsageError(f"autotune needs a torch.utils.data.DataLoader, got {type(loader).__name__}")
    return AutotunedLoader(
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


def tuner_for(loader: TorchDataLoader[Any], arguments: Mapping[str, Any]) -> Tuner:
    """Return the tuner of a loader. `arguments` are those of `autotune`; UsageError if one is invalid."""
    options = dict(arguments)
    for name in ("max_workers", "budget_s", "budget_steps"):
        value = options.get(name)
        if value is not None and not value > 0:
            raise UsageError(f"{name} must be > 0, got {value!r}")
    if options.get("memory_bytes") is not None:
        options["memory_bytes"] = parse_bytes(options["memory_bytes"])
    try:
        tuner = Tuner(loader, Options(**options), uses_ring=_uses_ring(loader))
    except TypeError as error:
        raise UsageError(f"autotune= takes the arguments of unstarve.autotune: {error}") from error
    site = vars(loader).get(SITE)  # noted by a recording
    tuner.where = f"{site[0]}:{site[1]}" if isinstance(site, tuple) else None
    return tuner


def _uses_ring(loader: Any) -> bool:
    """Whether this is a loader of ours whose workers, if it had any, would send batches through the ring."""
    if not isinstance(loader, EngineLoader):
        return False
    return loader.requested_engine in (Engine.AUTO, Engine.RING) and why_no_ring() is None


class DataLoader(EngineLoader[T]):
    """A `torch.utils.data.DataLoader` that picks the fastest way to give the same batches.

    It takes torch's arguments and gives torch's batches in torch's order, drawing the same random numbers
    from the same generators. `loader.engine` names the engine that runs it, `loader.explain()` says why:

    ``views``
        samples are rows of tensors in memory and the order is the dataset's own: batches are slices. They
        **share memory with the dataset**: changing a batch in place changes the dataset, and saving a batch
        or sending it to another process takes the whole dataset along. `copy=True` rules this engine out.
    ``gather``
        samples are rows of tensors in memory: a batch is one compiled copy of its rows, made without workers
        whatever `num_workers` says. With `pin_memory` and a GPU, a thread prepares batches in pinned memory.
    ``threads``
        the dataset reads without the GIL, as unstarve's datasets of files, packed files and images do:
        `num_workers` threads, or a few, prepare batches in reused memory.
    ``ring``
        any other dataset with workers: torch's worker processes, which hand batches over in reused shared
        memory.
    ``stock``
        torch's own iterator, for everything else.

    Rows in memory are a tensor, a `TensorDataset`, a `StackDataset` or `Subset` of them, and unstarve's
    datasets that have a method `rows()`. Your own dataset may have one, too: it returns a tensor, or a tuple,
    list or dict of tensors, where sample i is row i of each. Set `rows_are_samples = True` in its class.

    `engine` requests an engine by name and raises ValueError if it cannot give the batches. The choice is
    made again for each epoch: some datasets have their rows in memory only after the first.

    `state_dict()` and `load_state_dict()` resume a training exactly, also in the middle of an epoch, and with
    another engine or number of workers.

    `autotune=True` lets the loader find its number of workers and prefetch depth during training, if its
    engine has workers. See `unstarve.autotune`, whose arguments can be given as a dict.
    """

    def __init__(
        self,
        *args: Any,
        engine: str = Engine.AUTO,
        copy: bool = False,
        autotune: bool | Mapping[str, Any] = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, engine=engine, copy=copy, **kwargs)
        self._tuner = None if autotune is False else tuner_for(self, {} if autotune is True else autotune)

    @property
    def tuning(self) -> Tuning | None:
        """What was tried and found so far; None without `autotune`."""
        return None if self._tuner is None else self._tuner.tuning

    def explain(self) -> str:
        """Say which engine runs this loader, why, and why the faster ones cannot; then what tuning found."""
        engine = super().explain()
        return engine if self.tuning is None else f"{engine}\n{explain(self.tuning)}"

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a loader with the same data was when it returned this state from `state_dict`.

        The next iteration gives the rest of its epoch; later ones give its later epochs. It also sets the
        random states of torch, numpy and Python in this process. An empty state changes nothing but drops a
        state loaded before. Raises `UsageError` for a state of another loader: other samples, batch size or
        sampler.
        """
        super().load_state_dict(state)
        if self._tuner is not None:
            self._tuner.forget_seeds()

    @uncounted
    def _begin(self) -> Iterator[Any]:
        tuner = self._tuner
        if tuner is None or tuner.why_not is not None:
            return super()._begin()
        choice = self._choice()
        return tuner.iterate(self) if choice.engine in WORKER_ENGINES else choice.iterate()


class AutotunedLoader(LoaderProxy):
    """A loader that tunes itself and otherwise acts as the loader it wraps, also for ``isinstance``."""

    dataloader: TorchDataLoader[Any]
    _tuner: Tuner
    _arguments: Mapping[str, Any]

    def __init__(self, loader: TorchDataLoader[Any], arguments: Mapping[str, Any]) -> None:
        # Written past __setattr__, which sets the loader's attributes.
        vars(self).update(dataloader=loader, _tuner=tuner_for(loader, arguments), _arguments=arguments)

    def __iter__(self) -> Iterator[Any]:
        loader = self.dataloader
        if self._tuner.why_not is not None:
            return iter(loader)
        if isinstance(loader, EngineLoader):
            return begin_epoch(loader, functools.partial(self._tuner.iterate, loader))
        return self._tuner.iterate(loader)

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
        """A copy starts tuning from the beginning."""
        return AutotunedLoader, (self.dataloader, self._arguments)
