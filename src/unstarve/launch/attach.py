"""Put a `Tap` on every iterator of every DataLoader, present and future subclasses included.

Wrapped are the iterator classes, the function that workers run, and ``DataLoader.__init__`` (for the place of
creation); samplers, datasets, batches and random state are left alone.

torch imports its loader module before it is complete itself; what needs all of torch is therefore
imported here when the first loader is iterated.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from torch.utils.data import dataloader as stock
from torch.utils.data._utils import worker as stock_worker

from unstarve.collect.call_site import call_site
from unstarve.collect.torch_iterator import draws_samples
from unstarve.model.launch_settings import LaunchSettings
from unstarve.steer.patches import apply_engine, apply_saved, apply_tuning

_ATTACHED = "_unstarve_attached"
_TAP = "_unstarve_tap"
_SITE = "_unstarve_site"

_making = threading.local()
"""``stack``: the iterators that this thread is making or resetting right now, one for the sake of another.
``sampler_ns``: what the sampler of the innermost of them has taken since."""


def attach() -> None:
    """Wrap torch's loader classes; calling it again changes nothing."""
    base: Any = stock._BaseDataLoaderIter
    if hasattr(base, _ATTACHED):
        return
    setattr(base, _ATTACHED, True)
    settings = LaunchSettings.from_environment()
    if settings is not None and settings.tune is not None:
        apply_tuning(settings, settings.tune)
        return
    _wrap_creation()
    _wrap_sampler(base)
    _wrap_worker_loop(stock_worker)
    for cls in (base, *_subclasses(base)):
        _wrap_iterator(cls)

    def init_subclass(cls: Any, /, **kwargs: Any) -> None:
        super(base, cls).__init_subclass__(**kwargs)
        _wrap_iterator(cls)

    base.__init_subclass__ = classmethod(init_subclass)
    if settings is not None and settings.saved:
        apply_saved(settings.saved, _lose)
    if settings is not None and settings.engine is not None:
        apply_engine(settings.engine)


def _subclasses(cls: type[Any]) -> list[type[Any]]:
    return [found for child in cls.__subclasses__() for found in (child, *_subclasses(child))]


def _wrap_creation() -> None:
    original = stock.DataLoader.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _quietly(lambda: self.__dict__.setdefault(_SITE, call_site()))

    stock.DataLoader.__init__ = __init__  # type: ignore[method-assign]


def _wrap_iterator(cls: type) -> None:
    own = vars(cls)
    if "__init__" in own:
        _wrap_beginning(cls, "__init__")
    if "_reset" in own:
        _wrap_beginning(cls, "_reset")
    if "__next__" in own:
        _wrap_next(cls)
    home: Any = sys.modules[cls.__module__]
    if hasattr(home, "_worker_loop"):  # torchdata has a loop of its own, imported by name
        _wrap_worker_loop(sys.modules[home._worker_loop.__module__])
        home._worker_loop = sys.modules[home._worker_loop.__module__]._worker_loop


def _wrap_beginning(cls: type, method: str) -> None:
    """``__init__`` of a new iterator, ``_reset`` of one with persistent workers: an epoch begins."""
    original = getattr(cls, method)
    draw = _timed_draw(original) if cls is stock._BaseDataLoaderIter else None

    @functools.wraps(original)
    def beginning(self: Any, *args: Any, **kwargs: Any) -> Any:
        stack = _making.__dict__.setdefault("stack", [])
        if any(iterator is self for iterator in stack):
            # A subclass calling its parent's, or a reset in __init__.
            return draw(self, *args, **kwargs) if draw is not None else original(self, *args, **kwargs)
        loader = args[0] if args else kwargs.get("loader")
        _quietly(_import_all)
        mark: Any = None if stack else _quietly(_ask_device)
        depth, outer_ns = len(stack), _making.__dict__.get("sampler_ns", 0)
        begin_ns = time.perf_counter_ns()
        try:
            stack.append(self)  # in here: a signal may come as soon as it has returned
            _making.sampler_ns = 0
            result = original(self, *args, **kwargs)
        finally:
            del stack[depth:]
            sampler_ns, _making.sampler_ns = _making.__dict__.get("sampler_ns", 0), outer_ns
        ready_ns = time.perf_counter_ns()
        if loader is not None:
            _quietly(
                lambda: _begin_epoch(
                    self, loader, begin_ns, ready_ns, mark, sampler_ns=sampler_ns, inside=bool(stack)
                )
            )
        return result

    setattr(cls, method, beginning)


def _timed_draw(original: Callable[..., Any]) -> Callable[..., Any]:
    """What torch's base class does to begin an epoch is to ask the sampler for its iterator, which may make
    all of its batches for that. With workers it does so twice: in ``__init__`` and in the reset behind it.
    """

    def draw(self: Any, *args: Any, **kwargs: Any) -> Any:
        begin_ns = time.perf_counter_ns()
        result = original(self, *args, **kwargs)
        if _making.stack[-1] is self and draws_samples(self):
            _making.sampler_ns += time.perf_counter_ns() - begin_ns
        return result

    return draw


def _import_all() -> None:
    """Now, and not in every worker that is forked."""
    from unstarve.launch import inside  # noqa: F401 - imported for their effects


def _ask_device() -> Any:
    """``iter()`` is a wait for the device, too; in the first one there is nobody yet to tell it."""
    module = sys.modules.get("unstarve.collect.recorder")
    owner = None if module is None else module.recorder()
    return None if owner is None or owner.device is None or not owner.active else owner.device.ask()


def _begin_epoch(
    iterator: Any, loader: Any, begin_ns: int, ready_ns: int, mark: Any, *, sampler_ns: int, inside: bool
) -> None:
    from unstarve.collect.recorder import recorder
    from unstarve.collect.tap import Tap
    from unstarve.collect.torch_iterator import worker_pids
    from unstarve.launch.inside import look_inside

    owner = recorder()
    if owner is None or not owner.active:
        return
    tap = iterator.__dict__.get(_TAP)
    if tap is None or not tap.is_of(owner):
        # One that was made before we came is known by where it was first iterated.
        site = loader.__dict__.get(_SITE) or loader.__dict__.setdefault(_SITE, call_site())
        number = owner.loader_number(loader, type(loader).__name__, site, None)
        collated = getattr(loader, "batch_sampler", None) is not None
        full = getattr(loader, "batch_size", None)
        tap = iterator.__dict__[_TAP] = Tap(owner, number, full, collated=collated)
        look_inside(iterator, tap, owner)
    tap.begin(loader, begin_ns, ready_ns, sampler_ns=sampler_ns, inside=inside, mark=mark)
    tap.tell_crew(worker_pids(iterator))


def _wrap_sampler(cls: Any) -> None:
    original = cls._next_index

    @functools.wraps(original)
    def _next_index(self: Any) -> Any:
        begin_ns = time.perf_counter_ns()
        index = original(self)
        tap = self.__dict__.get(_TAP)
        if tap is not None and tap.wait.busy:
            tap.wait.sampled(begin_ns)
            return index
        stack = getattr(_making, "stack", None)
        if stack and stack[-1] is self:
            _making.sampler_ns += time.perf_counter_ns() - begin_ns
        return index

    cls._next_index = _next_index


def wrap_try_get_data(cls: Any) -> None:
    """Tell the taps which task came out of the workers' queue: out of order, nobody else knows."""
    original = cls._try_get_data
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def _try_get_data(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        tap = self.__dict__.get(_TAP)
        if tap is not None and result[0] and type(result[1][0]) is int:
            tap.wait.last_task = result[1][0]
        return result

    cls._try_get_data = _try_get_data


def _wrap_worker_loop(module: Any) -> None:
    """What a worker process runs. It is pickled by its name, so that spawned workers find it wrapped too."""
    original = module._worker_loop
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def _worker_loop(*args: Any, **kwargs: Any) -> Any:
        from unstarve.collect.worker import run_worker

        return run_worker(original, args, kwargs)

    module._worker_loop = _worker_loop


def _wrap_next(cls: type) -> None:
    original = cls.__next__  # type: ignore[attr-defined]  # only called for classes that define it

    @functools.wraps(original)
    def __next__(self: Any) -> Any:
        tap = self.__dict__.get(_TAP)
        if tap is None:
            return original(self)
        return tap.wait.take(tap, original, self)

    cls.__next__ = __next__  # type: ignore[attr-defined]  # see above


def _quietly(action: Callable[[], object]) -> object:
    """Run a bit of bookkeeping; if it breaks, say so in the report and let training go on."""
    try:
        return action()
    except Exception as error:  # a defect of ours must not cost the user the training
        _lose(f"a loader could not be followed: {error!r}")
    return None


def _lose(message: str) -> None:
    with contextlib.suppress(Exception):  # whatever broke may break again
        from unstarve.collect.recorder import recorder

        owner = recorder()
        if owner is not None:
            owner.lose(message)
