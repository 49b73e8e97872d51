"""unstarve: is my training waiting for data, why, and what would it be like if it were not?

Public names only, each imported when it is first used: ``import unstarve`` is cheap and needs no torch.
"""

# ruff: noqa: I001  # names re-exported as themselves would take a line each
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unstarve.api import (
        compare as compare,
        diagnose as diagnose,
        follow as follow,
        load_run as load_run,
        whatif as whatif,
    )
    from unstarve.checks.one_target import check as check
    from unstarve.collect.watch import watch as watch
    from unstarve.errors import (
        CacheError as CacheError,
        CacheTooLargeError as CacheTooLargeError,
        DataFileError as DataFileError,
        HangError as HangError,
        ImageError as ImageError,
        LogError as LogError,
        ProfileError as ProfileError,
        MissingExtraError as MissingExtraError,
        NotPredictableError as NotPredictableError,
        RunFileError as RunFileError,
        UnstarveError as UnstarveError,
        UsageError as UsageError,
    )
    from unstarve.evaluate.evaluator.plot_comparison import plot_comparison as plot_comparison
    from unstarve.evaluate.handbook.diagnose_loader import diagnose_dataloader as diagnose_dataloader
    from unstarve.evaluate.evaluator.loader_evaluator import LoaderEvaluator as LoaderEvaluator
    from unstarve.evaluate.monitor.current_metrics import (
        current_metrics as current_metrics,
        write_metrics as write_metrics,
    )
    from unstarve.evaluate.handbook.find_workers import find_num_workers as find_num_workers
    from unstarve.evaluate.handbook.measure_loader import (
        measure_loading_overhead as measure_loading_overhead,
        measure_throughput as measure_throughput,
        LoaderThroughput as LoaderThroughput,
        LoadingOverhead as LoadingOverhead,
    )
    from unstarve.evaluate.monitor.metrics_server import (
        MetricsServer as MetricsServer,
        serve_metrics as serve_metrics,
    )
    from unstarve.evaluate.monitor.monitored_loader import MonitoredDataLoader as MonitoredDataLoader
    from unstarve.evaluate.handbook.epoch_profiler import (
        DataLoaderProfiler as DataLoaderProfiler,
        EpochProfile as EpochProfile,
    )
    from unstarve.tune.autotune import DataLoader as DataLoader, autotune as autotune
    from unstarve.evaluate.record_block import Recording as Recording, recording as recording
    from unstarve.fixes.loader.to_device import DeviceLoader as DeviceLoader, to_device as to_device
    from unstarve.fixes.datasets.cached.cached_dataset import CachedDataset as CachedDataset
    from unstarve.fixes.datasets.files.tensor_file_dataset import TensorFileDataset as TensorFileDataset
    from unstarve.fixes.samples.gather import gather as gather
    from unstarve.fixes.datasets.images.image_folder_dataset import ImageFolderDataset as ImageFolderDataset
    from unstarve.fixes.datasets.images.decode_crop import DecodeCrop as DecodeCrop
    from unstarve.fixes.datasets.packed.packed_dataset import PackedDataset as PackedDataset
    from unstarve.fixes.datasets.packed.packed_chunks import ChunkShuffleSampler as ChunkShuffleSampler
    from unstarve.fixes.datasets.packed.packed_writer import PackedWriter as PackedWriter
    from unstarve.fixes.datasets.prefetch.prefetch_dataset import AsyncPrefetchDataset as AsyncPrefetchDataset
    from unstarve.fixes.memory.shared.share import share as share
    from unstarve.evaluate.profiling.profile_block import profile as profile
    from unstarve.evaluate.profiling.implementations import (
        compare_implementations as compare_implementations,
        Implementations as Implementations,
    )
    from unstarve.evaluate.profiling.memory_use import (
        largest_batch as largest_batch,
        memory_profile as memory_profile,
        MemoryUse as MemoryUse,
    )
    from unstarve.model import (
        Comparison as Comparison,
        Diagnosis as Diagnosis,
        Finding as Finding,
        Forecast as Forecast,
        Live as Live,
        LoaderDiagnosis as LoaderDiagnosis,
        LoadLog as LoadLog,
        Metric as Metric,
        Profile as Profile,
        RegimeChange as RegimeChange,
        Run as Run,
        Severity as Severity,
        Tuning as Tuning,
        WhatIf as WhatIf,
        WorkerSearch as WorkerSearch,
    )

_PUBLIC = {
    "unstarve.api": ("compare", "diagnose", "follow", "load_run", "whatif"),
    "unstarve.checks.one_target": ("check",),
    "unstarve.collect.watch": ("watch",),
    "unstarve.errors": (
        "CacheError",
        "CacheTooLargeError",
        "DataFileError",
        "HangError",
        "ImageError",
        "LogError",
        "ProfileError",
        "MissingExtraError",
        "NotPredictableError",
        "RunFileError",
        "UnstarveError",
        "UsageError",
    ),
    "unstarve.evaluate.evaluator.plot_comparison": ("plot_comparison",),
    "unstarve.evaluate.handbook.diagnose_loader": ("diagnose_dataloader",),
    "unstarve.evaluate.evaluator.loader_evaluator": ("LoaderEvaluator",),
    "unstarve.evaluate.monitor.current_metrics": ("current_metrics", "write_metrics"),
    "unstarve.evaluate.handbook.find_workers": ("find_num_workers",),
    "unstarve.evaluate.handbook.measure_loader": (
        "LoaderThroughput",
        "LoadingOverhead",
        "measure_loading_overhead",
        "measure_throughput",
    ),
    "unstarve.evaluate.monitor.metrics_server": ("MetricsServer", "serve_metrics"),
    "unstarve.evaluate.monitor.monitored_loader": ("MonitoredDataLoader",),
    "unstarve.evaluate.handbook.epoch_profiler": ("DataLoaderProfiler", "EpochProfile"),
    "unstarve.evaluate.record_block": ("Recording", "recording"),
    "unstarve.evaluate.profiling.profile_block": ("profile",),
    "unstarve.evaluate.profiling.implementations": ("Implementations", "compare_implementations"),
    "unstarve.evaluate.profiling.memory_use": ("MemoryUse", "largest_batch", "memory_profile"),
    "unstarve.tune.autotune": ("DataLoader", "autotune"),
    "unstarve.fixes.loader.to_device": ("DeviceLoader", "to_device"),
    "unstarve.fixes.datasets.cached.cached_dataset": ("CachedDataset",),
    "unstarve.fixes.datasets.files.tensor_file_dataset": ("TensorFileDataset",),
    "unstarve.fixes.samples.gather": ("gather",),
    "unstarve.fixes.datasets.images.image_folder_dataset": ("ImageFolderDataset",),
    "unstarve.fixes.datasets.images.decode_crop": ("DecodeCrop",),
    "unstarve.fixes.datasets.packed.packed_dataset": ("PackedDataset",),
    "unstarve.fixes.datasets.packed.packed_chunks": ("ChunkShuffleSampler",),
    "unstarve.fixes.datasets.packed.packed_writer": ("PackedWriter",),
    "unstarve.fixes.datasets.prefetch.prefetch_dataset": ("AsyncPrefetchDataset",),
    "unstarve.fixes.memory.shared.share": ("share",),
    "unstarve.model": (
        "Comparison",
        "Diagnosis",
        "Finding",
        "Forecast",
        "Live",
        "LoaderDiagnosis",
        "LoadLog",
        "Metric",
        "Profile",
        "RegimeChange",
        "Run",
        "Severity",
        "Tuning",
        "WhatIf",
        "WorkerSearch",
    ),
}
"""The same names, for Python: a test compares the two."""

_HOMES = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604  # they are strings, which ruff cannot see

__version__: str


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("unstarve")
        except PackageNotFoundError:  # recording in a Python that has no unstarve installed
            return "unknown"
    if name == "load_ipython_extension":  # for %load_ext, not for people
        return import_module("unstarve.evaluate.notebook_magic").load_ipython_extension
    if name not in _HOMES:
        raise AttributeError(f"module 'unstarve' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
