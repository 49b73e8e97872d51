"""A DataLoader that chooses the fastest engine; `unstarve.DataLoader` adds tuning to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from torch.utils.data import DataLoader as TorchDataLoader

from unstarve.fixes.loader.engines.choose_engine import Choice, choose
from unstarve.fixes.loader.resume.epoch_start import Seeding, begin_epoch, index_sampler
from unstarve.fixes.loader.resume.index_replay import NotedIndices, ReplayedIndices
from unstarve.fixes.loader.resume.loader_state import check, load, save
from unstarve.fixes.loader.resume.progress import Progress
from unstarve.marks import ChoosesEngine
from unstarve.model.engine_names import Engine, check_engine
from unstarve.stack_levels import uncounted

T = TypeVar("T", covariant=True)


class EngineLoader(TorchDataLoader[T], ChoosesEngine):
    """`unstarve.DataLoader` without `autotune`; its docstring explains the arguments and the engines."""

    def __init__(self, *args: Any, engine: str = Engine.AUTO, copy: bool = False, **kwargs: Any) -> None:
        check_engine(engine)
        self._progress: Progress | None = None
        self._loaded: dict[str, Any] | None = None
        self._indices: ReplayedIndices | NotedIndices | None = None
        super().__init__(*args, **kwargs)
        self._seeding = Seeding(once=bool(self.persistent_workers))
        self.requested_engine = engine
        self.copy = copy
        if engine != Engine.AUTO:
            self._choice()

    @property
    def engine(self) -> str:
        """The engine that would run an epoch that begins now."""
        return self._choice().engine

    def explain(self) -> str:
        """Say which engine runs this loader, why, and why the faster ones cannot."""
        choice = self._choice()
        refused = [f"  not {engine}: {reason}" for engine, reason in choice.refused]
        return "\n".join([f"{choice.engine}: {choice.reason}", *refused])

    _index_sampler = index_sampler

    @uncounted
    def __iter__(self) -> Any:
        return begin_epoch(self, self._begin)

    @uncounted
    def _begin(self) -> Iterator[Any]:
        """Return an iterator over an epoch that begins now."""
        return self._choice().iterate()

    def state_dict(self) -> dict[str, Any]:
        """Return how far the loader is: the batches given, and every generator they depend on.

        The state is small whatever the size of the dataset, and can be saved with `torch.save` or `pickle`.
        It refers to batches that the training loop got; those prepared ahead are made again. Raises
        `UsageError` if batches come in no fixed order (`in_order=False`).
        """
        return save(self, self._progress, self._loaded)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a loader with the same data was when it returned this state from `state_dict`.

        The next iteration gives the rest of its epoch; later ones give its later epochs. The engine and the
        number of workers may differ. It also sets the random states of torch, numpy and Python in this
        process. An empty state changes nothing but drops a state loaded before. Raises `UsageError` for a
        state of another loader: other samples, batch size or sampler.
        """
        if state:
            check(self, state)
        self._iterator = None
        self._progress = self._loaded = self._indices = None
        if not state:
            return
        load(self, state)
        self._loaded = dict(state)
        once = state["persistent"]
        self._seeding = Seeding(once=once, seed=state["seed"] if once else None)

    def __getstate__(self) -> dict[str, Any]:
        """A copy has begun no epoch."""
        return {**vars(self), "_progress": None, "_indices": None}

    def _choice(self) -> Choice:
        return choose(self, self.requested_engine, copy=self.copy)
