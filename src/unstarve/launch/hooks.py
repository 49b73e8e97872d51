"""Every patch of torch and of libraries beside it, in order; `patching` applies and undoes them.

`attach` is called as soon as torch's loader module has been imported, which is before torch itself is
complete. Whatever needs all of torch is therefore imported here when the first loader is iterated.

Samplers, datasets, batches and random state are left alone. Two things are watched through attributes of
single objects instead of a patch: the result queue of an iterator's workers (`collect.receiving`) and an
iterator that delivers out of order (`launch.follow_iterator`). A worker process also replaces the pickler of
its own ``multiprocessing.queues`` (`collect.recorded_worker`).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from torch.utils.data import dataloader as stock
from torch.utils.data._utils import fetch as stock_fetch
from torch.utils.data._utils import pin_memory as stock_pin
from torch.utils.data._utils import worker as stock_worker

from unstarve.collect.gradients import hide_from_compiler, noting_backward, set_backward_watch
from unstarve.collect.meetings import meetings
from unstarve.collect.sampling import loop_sampler
from unstarve.collect.substitute import Substitute, set_substitute
from unstarve.collect.torch_iterator import worker_pids
from unstarve.launch import copy_methods, ray_environment, requested, wrappers
from unstarve.launch.after_import import stop_waiting
from unstarve.launch.dali_iterators import DALI
from unstarve.launch.library_iterators import GRAIN, NODES
from unstarve.launch.patching import Patch, Settings, remember, replace, replaced
from unstarve.launch.requested import iterator_classes, own_constructors, wrap_later_iterators
from unstarve.model.launch_settings import IdealSettings, LaunchSettings


def attach() -> None:
    """Apply the patches that this launch needs, in order; calling it again changes nothing."""
    if any(patch.name in replaced for patch in PATCHES if patch.needed is not None):
        return
    settings = LaunchSettings.from_environment()
    if settings is not None and settings.ideal is not None:
        set_substitute(functools.partial(_ideal_blocks, settings.ideal))
    for patch in PATCHES:
        if patch.needed is not None and patch.needed(settings):
            patch.apply(settings)
    if settings is not None and requested.records(settings):
        loop_sampler.begin()
    if not requested.tunes(settings):
        set_backward_watch(functools.partial(_watch_steps, settings))


def attach_to_ray() -> None:
    """Apply the patches of Ray to what the process has imported since `attach`."""
    settings = LaunchSettings.from_environment()
    for patch in (RAY_TRAIN, RAY_DATA):
        if requested.records(settings):
            patch.apply(settings)


def detach() -> None:
    """Undo all patches, the last one first: torch is as it was."""
    set_substitute(None)
    stop_waiting()
    loop_sampler.end()
    set_backward_watch(None)
    copy_methods.forbid()
    meetings.stop()
    for patch in reversed(PATCHES):
        patch.undo()


def _ideal_blocks(settings: IdealSettings) -> Substitute:
    """What `unstarve ideal` delivers instead of a loader's own batches."""
    from unstarve.steer.replay.ideal_blocks import Ideal  # needs all of torch

    return Ideal(settings)


# --- recording: as soon as torch's loader module is there -----------------------------------------------


def _apply_creation(_settings: Settings) -> None:
    replace("creation", stock.DataLoader, "__init__", wrappers.noting_origin)


def _apply_sampler(_settings: Settings) -> None:
    replace("sampler", stock._BaseDataLoaderIter, "_next_index", wrappers.timed_index)


def _apply_worker_loop(_settings: Settings) -> None:
    replace("worker loop", stock_worker, "_worker_loop", _recorded_worker)


def _recorded_worker(original: Callable[..., Any]) -> Callable[..., Any]:
    return wrappers.recorded_worker(original, _wrap_fetchers, _wrap_transforms)


def _apply_iterators(_settings: Settings) -> None:
    for cls in iterator_classes():
        _wrap_iterator(cls)


def _apply_later_iterators(_settings: Settings) -> None:
    wrap_later_iterators("later iterators", _wrap_iterator)


def _wrap_iterator(cls: Any) -> None:
    own = vars(cls)
    starts_sampler = cls is stock._BaseDataLoaderIter
    for method in ("__init__", "_reset"):
        if method in own:
            replace(
                "iterators",
                cls,
                method,
                lambda original: wrappers.epoch_beginning(original, _begin_epoch, starts_sampler),
            )
    if "__next__" in own:
        replace("iterators", cls, "__next__", wrappers.recorded_next)
    for loader in own_constructors(cls):
        replace("creation", loader, "__init__", wrappers.noting_origin)
    home: Any = sys.modules[cls.__module__]
    if hasattr(home, "_worker_loop"):  # torchdata has its own loop, imported by name
        defined_in: Any = sys.modules[home._worker_loop.__module__]
        replace("worker loop", defined_in, "_worker_loop", _recorded_worker)
        if home._worker_loop is not defined_in._worker_loop:
            remember("worker loop", home, "_worker_loop")
            home._worker_loop = defined_in._worker_loop


def _begin_epoch(iterator: Any, loader: Any, epoch: wrappers.EpochStart) -> None:
    from unstarve.launch import follow_iterator  # needs all of torch

    tap = follow_iterator.tap_on(iterator, loader)
    if tap is None:
        return
    if tap.probe is not None:
        tap.probe.wrap_transforms = _wrap_transforms
        _wrap_fetchers()
    elif tap.wait.seen_inside:
        PINNING.apply(None)
    tap.begin(
        loader,
        epoch.begin_ns,
        epoch.ready_ns,
        sampler_ns=epoch.sampler_ns,
        inside=epoch.is_nested,
        mark=epoch.mark,
    )
    tap.tell_crew(worker_pids(iterator))
    if isinstance(iterator, (stock._SingleProcessDataLoaderIter, stock._MultiProcessingDataLoaderIter)):
        tap.follow_samples(loader, epoch.indices)


# --- recording: once a loader is iterated -----------------------------------------------------------------


def _apply_fetchers(_settings: Settings) -> None:
    from unstarve.collect.fetching import timed_fetch  # needs all of torch

    for cls in (stock_fetch._MapDatasetFetcher, stock_fetch._IterableDatasetFetcher):
        replace("fetchers", cls, "fetch", timed_fetch)


def _apply_pinning(_settings: Settings) -> None:
    from unstarve.collect.receiving import timed_pinning  # needs all of torch

    replace("pinning", stock_pin, "pin_memory", timed_pinning)


def _apply_backward(_settings: Settings) -> None:
    import torch.autograd  # not there yet when this module is imported

    replace("backward", torch.autograd, "backward", noting_backward)
    hide_from_compiler(torch.autograd.backward)


def _apply_meetings(_settings: Settings) -> None:
    import torch.distributed as dist  # not there yet when this module is imported

    if not dist.is_available():
        return
    from torch._C import _distributed_c10d as c10d
    from torch.nn.parallel import DistributedDataParallel

    for owner, method in ((c10d.Work, "wait"), (DistributedDataParallel, "_distributed_broadcast_coalesced")):
        if hasattr(owner, method):
            replace("meetings", owner, method, meetings.blocking)
            hide_from_compiler(getattr(owner, method))
    functional = sys.modules.get("torch.distributed._functional_collectives")
    if functional is not None:  # DTensor is in use; not hidden: a compiler must see through it
        replace("meetings", functional, "wait_tensor", meetings.blocking)
    if dist.is_initialized() and dist.get_world_size() > 1:
        meetings.start()


def _apply_transforms(_settings: Settings) -> None:
    from unstarve.collect.transforms import imported_containers

    for cls, method, timed in imported_containers():
        replace("transforms", cls, method, timed)


def _watch_steps(settings: Settings) -> None:
    BACKWARD.apply(None)
    MEETINGS.apply(None)
    if settings is not None and settings.copies:
        COPIES.apply(settings)


def _wrap_fetchers() -> None:
    FETCHERS.apply(None)


def _wrap_transforms() -> None:
    TRANSFORMS.apply(None)


# --- the list -------------------------------------------------------------------------------------------


_DATA = "torch.utils.data"
_ITERATORS = tuple(
    f"{_DATA}.dataloader.{name}"
    for name in ("_BaseDataLoaderIter", "_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")
)

FETCHERS = Patch(
    "fetchers",
    (
        f"{_DATA}._utils.fetch._MapDatasetFetcher.fetch",
        f"{_DATA}._utils.fetch._IterableDatasetFetcher.fetch",
    ),
    "reads the kernel's counters around fetching and collating a batch",
    _apply_fetchers,
    None,
)
PINNING = Patch(
    "pinning",
    (f"{_DATA}._utils.pin_memory.pin_memory",),
    "times the pin-memory thread",
    _apply_pinning,
    None,
)
BACKWARD = Patch(
    "backward", ("torch.autograd.backward",), "tells training from validation", _apply_backward, None
)
MEETINGS = Patch(
    "meetings",
    (
        "torch._C._distributed_c10d.Work.wait",
        "torch.nn.parallel.DistributedDataParallel._distributed_broadcast_coalesced",
        "torch.distributed._functional_collectives.wait_tensor",
    ),
    "times how long a rank is blocked where ranks meet: who waits least came last",
    _apply_meetings,
    None,
)
COPIES = Patch(
    "copies",
    copy_methods.WRAPS,
    "`unstarve run --copies`: times copies to a CUDA device in a few steps; nothing is patched in others",
    copy_methods.apply,
    None,
)
TRANSFORMS = Patch(
    "transforms",
    (
        "torchvision.transforms.transforms.Compose.__call__",
        "torchvision.transforms.v2._container.Compose.forward",
        "albumentations.core.transforms_interface.BasicTransform.__call__",
    ),
    "times each transform by name, in the libraries that the script has imported",
    _apply_transforms,
    None,
)
RAY = Patch(
    "Ray",
    ("ray.init",),
    "passes recording on to a cluster that runs already; applied when Ray is imported, with torch or without",
    lambda _settings: ray_environment.attach(),
    None,
)
RAY_TRAIN = Patch(
    "Ray Train",
    tuple(f"{ray_environment.TRAIN_MODULE}.ThreadRunner.{name}" for name in ("run", "is_running")),
    "in a worker of Ray Train: training runs in a thread, and the process is killed when it has ended",
    ray_environment.apply_train,
    requested.records,
)
RAY_DATA = Patch(
    "Ray Data",
    (f"{ray_environment.DATA_MODULE}.DataIterator.iter_torch_batches",),
    "times every wait for a batch of Ray Data",
    ray_environment.apply_data,
    requested.records,
)

PATCHES = (
    Patch(
        "tuning",
        (f"{_DATA}.DataLoader.__init__", f"{_DATA}.DataLoader.__iter__"),
        "`unstarve tune`: loaders try other settings while training runs; nothing is recorded then",
        requested.apply_tuning,
        requested.tunes,
    ),
    Patch(
        "check",
        (
            f"{_DATA}.DataLoader.__init__",
            *(f"{name}.__init__" for name in _ITERATORS),
            f"{_ITERATORS[0]}.__next__",
            f"{_ITERATORS[0]}.__init_subclass__",
        ),
        "`unstarve check`: loaders are checked before their workers start, and the command ends after the "
        "first batches; nothing is recorded then",
        requested.apply_check,
        requested.checks,
    ),
    Patch(
        "creation",
        (f"{_DATA}.DataLoader.__init__",),
        "notes where the script creates a loader, for its name in the report",
        _apply_creation,
        requested.records,
    ),
    Patch(
        "sampler",
        (f"{_ITERATORS[0]}._next_index",),
        "times the sampler",
        _apply_sampler,
        requested.records,
    ),
    Patch(
        "worker loop",
        (f"{_DATA}._utils.worker._worker_loop",),
        "lets every worker process record itself, however it was started",
        _apply_worker_loop,
        requested.records,
    ),
    Patch(
        "iterators",
        (
            *(f"{name}.__init__" for name in _ITERATORS),
            f"{_ITERATORS[0]}._reset",
            f"{_ITERATORS[2]}._reset",
            f"{_ITERATORS[0]}.__next__",
        ),
        "notes when an epoch begins and times every wait for a batch",
        _apply_iterators,
        requested.records,
    ),
    Patch(
        "later iterators",
        (f"{_ITERATORS[0]}.__init_subclass__",),
        "wraps iterator classes that are defined later, such as torchdata's",
        _apply_later_iterators,
        requested.records,
    ),
    DALI,
    NODES,
    GRAIN,
    Patch(
        "saved settings",
        (f"{_DATA}.DataLoader.__init__", f"{_DATA}.DataLoader.__iter__"),
        "`unstarve run --with`: a loader gets the settings that were saved for it; outside of `creation`, "
        "because it may call the original twice",
        requested.apply_saved,
        requested.has_saved,
    ),
    Patch(
        "engine",
        (f"{_DATA}.DataLoader.__iter__",),
        "`unstarve run --engine`: torch's loaders run on one of unstarve's engines",
        requested.apply_engine,
        requested.has_engine,
    ),
    Patch(
        "ranges",
        (f"{_ITERATORS[0]}.__next__", "torch.autograd.backward"),
        "under Nsight Systems: marks steps, data, forward, backward and optimizer with NVTX ranges",
        requested.apply_ranges,
        requested.is_profiled,
    ),
    RAY,
    RAY_TRAIN,
    RAY_DATA,
    FETCHERS,
    PINNING,
    BACKWARD,
    MEETINGS,
    COPIES,
    TRANSFORMS,
)
