"""A whole column or file that is read for each sample."""

from __future__ import annotations

from collections.abc import Iterator

from unstarve.checks.objects.loader_parts import is_stream, report
from unstarve.checks.objects.subject import Subject
from unstarve.collect.dataset_facts import inside
from unstarve.collect.whole_reads import whole_read
from unstarve.model.finding import Finding


def whole_reads(subject: Subject) -> Iterator[Finding]:
    """``rows[:]["x"][i]`` of a Hugging Face dataset, and ``tarfile.open(self.path)`` in ``__getitem__``."""
    dataset = inside(subject.loader.dataset)
    found = None if is_stream(subject.loader) else whole_read(dataset)
    if found is None:
        return
    yield report(
        subject,
        "column-first" if found.is_column else "file-read-again",
        f"{type(dataset).__name__}.__getitem__ reads {found.what} for each sample: {found.written}.",
        found.instead if found.is_column else f"{found.instead[0].upper()}{found.instead[1:]}.",
        harm=1 - 1 / max(len(dataset), 1),
    )
