"""unstarve: is my training waiting for data, why, and what would it be like if it were not?

Public names only, each imported when it is first used: ``import unstarve`` is cheap and needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unstarve.api import compare, diagnose, follow, load_run, whatif
    from unstarve.collect.loader import watch
    from unstarve.errors import UnstarveError
    from unstarve.evaluate.compare_plot import plot_comparison
    from unstarve.evaluate.diagnose_loader import diagnose_dataloader
    from unstarve.evaluate.evaluator import LoaderEvaluator
    from unstarve.evaluate.export import current_metrics, write_metrics
    from unstarve.evaluate.find_workers import find_num_workers
    from unstarve.evaluate.measure import measure_loading_overhead, measure_throughput
    from unstarve.evaluate.metrics_server import serve_metrics
    from unstarve.evaluate.monitored import MonitoredDataLoader
    from unstarve.evaluate.profiler import DataLoaderProfiler
    from unstarve.evaluate.recording import recording
    from unstarve.fixes.autotune.loader import autotune
    from unstarve.fixes.cached.dataset import CachedDataset
    from unstarve.fixes.files.dataset import TensorFileDataset
    from unstarve.fixes.gather import gather
    from unstarve.fixes.images.dataset import ImageFolderDataset
    from unstarve.fixes.images.transform import DecodeCrop
    from unstarve.fixes.loader import DataLoader
    from unstarve.fixes.packed.dataset import PackedDataset
    from unstarve.fixes.packed.sampler import ChunkShuffleSampler
    from unstarve.fixes.packed.writer import PackedWriter
    from unstarve.fixes.prefetch.dataset import AsyncPrefetchDataset
    from unstarve.model import RegimeChange

_HOMES = {
    "AsyncPrefetchDataset": "unstarve.fixes.prefetch.dataset",
    "CachedDataset": "unstarve.fixes.cached.dataset",
    "ChunkShuffleSampler": "unstarve.fixes.packed.sampler",
    "DataLoader": "unstarve.fixes.loader",
    "DataLoaderProfiler": "unstarve.evaluate.profiler",
    "DecodeCrop": "unstarve.fixes.images.transform",
    "ImageFolderDataset": "unstarve.fixes.images.dataset",
    "LoaderEvaluator": "unstarve.evaluate.evaluator",
    "MonitoredDataLoader": "unstarve.evaluate.monitored",
    "PackedDataset": "unstarve.fixes.packed.dataset",
    "PackedWriter": "unstarve.fixes.packed.writer",
    "RegimeChange": "unstarve.model",
    "TensorFileDataset": "unstarve.fixes.files.dataset",
    "UnstarveError": "unstarve.errors",
    "autotune": "unstarve.fixes.autotune.loader",
    "compare": "unstarve.api",
    "current_metrics": "unstarve.evaluate.export",
    "diagnose": "unstarve.api",
    "diagnose_dataloader": "unstarve.evaluate.diagnose_loader",
    "find_num_workers": "unstarve.evaluate.find_workers",
    "follow": "unstarve.api",
    "gather": "unstarve.fixes.gather",
    "load_run": "unstarve.api",
    "measure_loading_overhead": "unstarve.evaluate.measure",
    "measure_throughput": "unstarve.evaluate.measure",
    "plot_comparison": "unstarve.evaluate.compare_plot",
    "recording": "unstarve.evaluate.recording",
    "serve_metrics": "unstarve.evaluate.metrics_server",
    "watch": "unstarve.collect.loader",
    "whatif": "unstarve.api",
    "write_metrics": "unstarve.evaluate.export",
    "load_ipython_extension": "unstarve.evaluate.magic",  # for %load_ext, not for people
}

__all__ = [
    "AsyncPrefetchDataset",
    "CachedDataset",
    "ChunkShuffleSampler",
    "DataLoader",
    "DataLoaderProfiler",
    "DecodeCrop",
    "ImageFolderDataset",
    "LoaderEvaluator",
    "MonitoredDataLoader",
    "PackedDataset",
    "PackedWriter",
    "RegimeChange",
    "TensorFileDataset",
    "UnstarveError",
    "__version__",
    "autotune",
    "compare",
    "current_metrics",
    "diagnose",
    "diagnose_dataloader",
    "find_num_workers",
    "follow",
    "gather",
    "load_run",
    "measure_loading_overhead",
    "measure_throughput",
    "plot_comparison",
    "recording",
    "serve_metrics",
    "watch",
    "whatif",
    "write_metrics",
]

__version__: str


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("unstarve")
        except PackageNotFoundError:  # recording in a Python that has no unstarve installed
            return "unknown"
    if name not in _HOMES:
        raise AttributeError(f"module 'unstarve' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
