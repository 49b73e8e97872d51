"""Small stand-ins for frameworks, with the names and the structure of calls of the real ones.

A training finds them in a folder named ``site-packages``, as if they were installed.
"""

from __future__ import annotations

from pathlib import Path

ACCELERATE = """
from torch.utils.data import DataLoader

class DataLoaderAdapter:
    def __init__(self, dataset, batch_sampler=None, **kwargs):
        self.base_dataloader = DataLoader(dataset, batch_sampler=batch_sampler, **kwargs)

    def __getattr__(self, name):
        if name == "base_dataloader":
            raise AttributeError()
        return getattr(self.base_dataloader, name)

class DataLoaderShard(DataLoaderAdapter):
    def __iter__(self):
        yield from self.base_dataloader

def prepare_data_loader(dataloader):
    kept = {name: getattr(dataloader, name) for name in ("num_workers", "prefetch_factor", "collate_fn")}
    return DataLoaderShard(dataloader.dataset, batch_sampler=dataloader.batch_sampler, **kept)

class Accelerator:
    def __init__(self):
        self._dataloaders = []

    def prepare(self, *args):
        result = tuple(self._prepare_one(one) for one in args)
        return result if len(result) > 1 else result[0]

    def _prepare_one(self, obj):
        return self.prepare_data_loader(obj) if isinstance(obj, DataLoader) else obj

    def prepare_data_loader(self, data_loader):
        prepared = prepare_data_loader(data_loader)
        self._dataloaders.append(prepared)
        return prepared
"""

TRANSFORMERS = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self, train_dataset, eval_dataset, workers=0):
        self.train_dataset, self.eval_dataset, self.workers = train_dataset, eval_dataset, workers
        self.accelerator = Accelerator()

    def _get_dataloader(self, dataset, description):
        params = {"batch_size": 4, "num_workers": self.workers}
        return self.accelerator.prepare(DataLoader(dataset, **params))

    def get_train_dataloader(self):
        return self._get_dataloader(self.train_dataset, "Training")

    def get_eval_dataloader(self, eval_dataset=None):
        return self._get_dataloader(self.eval_dataset, "Evaluation")

    def evaluate(self):
        with torch.no_grad():
            for batch in self.get_eval_dataloader():
                pass

    def train(self):
        return self._inner_training_loop()

    def _inner_training_loop(self):
        train_dataloader = self.get_train_dataloader()
        for epoch in range(2):
            for batch in train_dataloader:
                pass
            self.evaluate()
        return "done"
"""

TIMM = """
import torch

def create_loader(dataset, batch_size, is_training=False, num_workers=1, persistent_workers=False):
    loader_class = torch.utils.data.DataLoader
    loader_args = dict(batch_size=batch_size, shuffle=is_training, num_workers=num_workers)
    loader = loader_class(dataset, **loader_args)
    return loader
"""

LIGHTNING = """
import functools
import inspect
from contextlib import contextmanager
import torch
from torch.utils.data import DataLoader

class LightningDataModule:
    pass

def _wrap_init(init):
    @functools.wraps(init)
    def wrapper(obj, *args, **kwargs):
        obj.__dict__.setdefault("__pl_saved", (args, kwargs))
        init(obj, *args, **kwargs)
    return wrapper

@contextmanager
def _replace_dunder_methods():
    before = DataLoader.__init__
    DataLoader.__init__ = _wrap_init(before)
    try:
        yield
    finally:
        DataLoader.__init__ = before

def _reinstantiate_wrapped_cls(orig_object, *args, **kwargs):
    return type(orig_object)(*args, **kwargs)

def _update_dataloader(dataloader, sampler):
    return _reinstantiate_wrapped_cls(dataloader, dataloader.dataset, batch_size=4, sampler=sampler)

class Trainer:
    def __init__(self, devices=1):
        self.devices = devices

    def _request_dataloader(self, hook):
        with _replace_dunder_methods():
            found = hook()
        if self.devices > 1:
            found = _update_dataloader(found, torch.utils.data.SequentialSampler(found.dataset))
        return found

    def fit(self, module):
        with torch.no_grad():
            for batch in self._request_dataloader(module.val_dataloader):
                pass
        for batch in self._request_dataloader(module.train_dataloader):
            pass
"""

OTHER = """
from torch.utils.data import DataLoader

class Experiment:
    def build_val_loader(self, dataset):
        return DataLoader(dataset, batch_size=4)

    def run(self, dataset):
        for batch in self.build_val_loader(dataset):
            pass

def make_loader(dataset):
    return DataLoader(dataset, batch_size=4)

class GraphLoader(DataLoader):
    def __init__(self, dataset, **options):
        super().__init__(dataset, collate_fn=list, **options)
"""


def install_stand_ins(folder: Path) -> Path:
    """Write all of them below `folder`; returns the path to import them from."""
    packages = folder / "env" / "lib" / "site-packages"
    for name, source in {
        "accelerate/__init__.py": "from accelerate.data_loader import Accelerator\n",
        "accelerate/data_loader.py": ACCELERATE,
        "transformers/__init__.py": "from transformers.trainer import Trainer\n",
        "transformers/trainer.py": TRANSFORMERS,
        "timm/__init__.py": "",
        "timm/data/__init__.py": "from timm.data.loader import create_loader\n",
        "timm/data/loader.py": TIMM,
        "lightning/__init__.py": LIGHTNING,
        "otherlib.py": OTHER,
    }.items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text(source)
    return packages
