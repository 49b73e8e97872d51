"""What unstarve needs of NVIDIA's DALI, without its pipelines: the same classes in the same modules.

As in DALI, the module with the classes for torch imports torch itself, after their base class.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

BASE = """
class Pipeline:
    num_threads, prefetch_queue_depth, py_num_workers, device_id = 3, 2, 1, None

    def __init__(self, samples, batch_size):
        self.samples, self.max_batch_size = samples, batch_size

class _DaliBaseIterator(object):
    def __init__(self, pipelines, size=-1, reader_name=None, auto_reset=False):
        self._pipes = pipelines if isinstance(pipelines, list) else [pipelines]
        self.batch_size = self._pipes[0].max_batch_size
        self._size = self._pipes[0].samples if reader_name else size
        self._auto_reset, self._counter, self._ever_consumed, self.resets = auto_reset, 0, False, 0

    @property
    def size(self):
        return self._size

    def reset(self):
        if 0 < self._counter < self._pipes[0].samples:
            print("epoch is not finished")
            return
        self._counter, self.resets = 0, self.resets + 1

    def next(self):
        return self.__next__()

    def __iter__(self):
        if self._counter != 0 and self._ever_consumed:
            self.reset()
        return self

    def __len__(self):
        return -(-self._size // self.batch_size)
"""

FOR_TORCH = """
from nvidia.dali.plugin.base_iterator import _DaliBaseIterator
import torch

class DALIGenericIterator(_DaliBaseIterator):
    def __init__(self, pipelines, output_map, *args, **kwargs):
        self.output_map = output_map
        _DaliBaseIterator.__init__(self, pipelines, *args, **kwargs)
        self._first_batch = None
        self._first_batch = DALIGenericIterator.__next__(self)
        self._ever_consumed = False

    def __next__(self):
        self._ever_consumed = True
        if self._first_batch is not None:
            batch, self._first_batch = self._first_batch, None
            return batch
        last = self._pipes[0].samples
        if self._counter >= last:
            if self._auto_reset:
                self.reset()
            raise StopIteration
        begin, self._counter = self._counter, self._counter + self.batch_size
        numbers = torch.arange(begin, min(self._counter, last), dtype=torch.float32)
        return [{name: numbers[:, None].clone() for name in self.output_map} for _ in self._pipes]

class DALIClassificationIterator(DALIGenericIterator):
    def __init__(self, pipelines, *args, **kwargs):
        super().__init__(pipelines, ["data", "label"], *args, **kwargs)

class DALIRaggedIterator(_DaliBaseIterator):
    pass
"""


def write_dali(folder: Path) -> None:
    """Put the package into a folder from which Python imports."""
    plugin = folder / "nvidia" / "dali" / "plugin"
    (plugin / "pytorch").mkdir(parents=True)
    for package in (plugin.parent, plugin):
        (package / "__init__.py").touch()
    (plugin / "base_iterator.py").write_text(BASE)
    (plugin / "pytorch" / "__init__.py").write_text(FOR_TORCH)


@contextmanager
def importable_dali(folder: Path) -> Iterator[None]:
    """Inside of it, this process can import the package, and has not done so yet."""
    write_dali(folder)
    kept = {name: sys.modules.pop(name) for name in _imported()}
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in _imported():
            del sys.modules[name]
        sys.modules.update(kept)


def dali() -> ModuleType:
    """The module with the iterators for torch, imported now."""
    return importlib.import_module("nvidia.dali.plugin.pytorch")


def _imported() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] == "nvidia"]
