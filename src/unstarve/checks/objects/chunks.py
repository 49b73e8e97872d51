"""HDF5 files whose chunks hold many samples, of which a shuffled loader wants one at a time."""

from __future__ import annotations

from collections.abc import Iterator

from unstarve.advise.rules.data_storage import FAR_TOO_MANY_ROWS, in_order
from unstarve.checks.objects.loader_parts import is_stream, report
from unstarve.checks.objects.subject import Subject
from unstarve.collect.dataset_facts import inside
from unstarve.collect.describe import order_of
from unstarve.collect.storage_layout import sample_chunk
from unstarve.model.finding import Finding
from unstarve.words import size


def chunk_larger_than_sample(subject: Subject) -> Iterator[Finding]:
    """Chunks that are read and decompressed in full for each of their samples."""
    loader = subject.loader
    chunk = None if is_stream(loader) else sample_chunk(inside(loader.dataset))
    if chunk is None or chunk.rows < FAR_TOO_MANY_ROWS:
        return
    if in_order(order_of(loader), chunk.nbytes):
        return
    one = "x".join(map(str, (1, *chunk.shape[1:])))
    yield report(
        subject,
        "chunk-larger-than-sample",
        f"A chunk of {chunk.array!r} in {chunk.file} holds {chunk.rows} samples ({size(chunk.nbytes)}); "
        "HDF5 reads all of it for each sample.",
        f"h5repack -l {chunk.array}:CHUNK={one} {chunk.file} NEW.h5, or create_dataset(…, chunks="
        f"{(1, *chunk.shape[1:])}).",
        harm=1 - 1 / chunk.rows,
    )
