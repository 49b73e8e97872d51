"""Samples that are views of one buffer, which the next sample overwrites."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Subset

from unstarve.checks.objects.attributes import stored
from unstarve.checks.objects.batch_values import arrays, rows_differ
from unstarve.checks.objects.loader_parts import report
from unstarve.checks.objects.sample_code import own_attribute, syntax_tree
from unstarve.checks.objects.subject import Subject
from unstarve.model.finding import Finding

_VIEWS = frozenset({"from_numpy", "as_tensor", "asarray"})


def shared_batch_memory(subject: Subject) -> Iterator[Finding]:
    """``__getitem__`` or ``__iter__`` that fills ``self.buffer`` and returns it, or a view of all of it."""
    loader = subject.loader
    if loader.batch_size == 1 or (loader.batch_size is None and loader.batch_sampler is None):
        return
    path, dataset = subject.dataset_name, loader.dataset
    while isinstance(dataset, Subset):
        path, dataset = f"{path}.dataset", dataset.dataset
    for name in ("__getitem__", "__iter__"):
        method = vars(type(dataset)).get(name)
        tree = syntax_tree(method) if isinstance(method, types.FunctionType) else None
        for attribute in sorted(_overwritten(tree) & _delivered(tree)) if tree is not None else ():
            buffer = stored(dataset).get(attribute)
            if isinstance(buffer, (np.ndarray, torch.Tensor)) and not _is_disproved(subject, buffer):
                yield _finding(subject, f"{path}.{attribute}", name, attribute, buffer)


def _is_disproved(subject: Subject, buffer: Any) -> bool:
    """Whether a batch holds different samples of the buffer's shape."""
    parts = [array for batch in subject.batches for array in arrays(batch)]
    return any(array.shape[1:] == tuple(buffer.shape) and rows_differ(array) for array in parts)


def _finding(subject: Subject, path: str, method: str, attribute: str, buffer: Any) -> Finding:
    copy = "copy()" if isinstance(buffer, np.ndarray) else "clone()"
    return report(
        subject,
        "shared-batch-memory",
        f"{method} writes every sample into {path} and returns that buffer, so all samples of a batch are the"
        " last one.",
        f"Return a copy: self.{attribute}.{copy}",
        harm=1.0,
    )


def _overwritten(tree: ast.AST) -> set[str]:
    """Attributes that are filled in place: ``self.buffer[:] = …``, ``out=self.buffer``, ``….copy_(…)``."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            whole = isinstance(node.slice, ast.Slice) and node.slice.lower is None
            found.add(own_attribute(node.value) if whole or ast.unparse(node.slice) == "..." else "")
        elif isinstance(node, ast.Call):
            found |= {own_attribute(keyword.value) for keyword in node.keywords if keyword.arg == "out"}
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("copy_", "copyto", "readinto"):
                found |= {
                    own_attribute(node.func.value),
                    *(own_attribute(argument) for argument in node.args[:1]),
                }
    return found - {""}


def _delivered(tree: ast.AST) -> set[str]:
    """Attributes that are returned or yielded as they are, or as a view."""
    ahead: list[ast.AST | None] = [
        node.value for node in ast.walk(tree) if isinstance(node, (ast.Return, ast.Yield))
    ]
    found = set()
    while ahead:
        value = ahead.pop()
        if isinstance(value, (ast.Tuple, ast.List)):
            ahead += value.elts
        elif isinstance(value, ast.Dict):
            ahead += value.values
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            ahead += value.args[:1] if value.func.attr in _VIEWS else []
        found.add(own_attribute(value))
    return found - {""}
