"""An epoch number that is set in the training process and never reaches persistent workers."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from typing import Any

from unstarve import words
from unstarve.checks.objects.attributes import stored, walk
from unstarve.checks.objects.loader_parts import init_may_change, report
from unstarve.checks.objects.sample_code import own_attribute, sample_code, syntax_tree
from unstarve.checks.objects.subject import Subject
from unstarve.model.finding import Finding


def set_epoch_lost(subject: Subject) -> Iterator[Finding]:
    """A dataset that keeps the epoch number as a plain attribute, while its workers live on."""
    loader = subject.loader
    if loader.num_workers == 0 or not loader.persistent_workers:
        return
    for path, value in walk(loader.dataset, subject.dataset_name):
        attribute = _kept_number(value)
        if attribute is not None and not init_may_change(loader, attribute):
            yield report(
                subject,
                "set-epoch-lost",
                f"{path}.set_epoch() sets {path}.{attribute} in the training process only; the persistent"
                f" {words.workers(loader.num_workers)} keep their first value.",
                f"# in {type(value).__name__}\n"
                "def __init__(self, ...):\n"
                f"    self.{attribute} = torch.zeros((), dtype=torch.int64).share_memory_()\n\n"
                "def set_epoch(self, epoch):\n"
                f"    self.{attribute}.fill_(epoch)  # read it as int(self.{attribute})",
                harm=1.0,
            )


def _kept_number(value: Any) -> str | None:
    """The attribute that `set_epoch` assigns and that samples depend on; None if they also count it on."""
    method = getattr(type(value), "set_epoch", None)
    if not isinstance(method, types.FunctionType) or (tree := syntax_tree(method)) is None:
        return None
    code = sample_code(value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            attribute = own_attribute(node)
            is_plain = isinstance(stored(value).get(attribute, 0), (int, float, type(None)))  # not shared
            if is_plain and attribute in code.names and attribute not in code.assigned:
                return attribute
    return None
