"""Files that are read one by one: straight into the batch, packed into one, or copied to a local disk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fake_forecaster import with_forecaster
from fake_work import work_of
from fakes import FakeTraining, diagnosis_of, run_of
from unstarve.advise.all_rules import advise
from unstarve.api import diagnose
from unstarve.model import Advice, Cause, Diagnosis

FILES = {
    "module": "data", "length": 100, "files": "paths", "loads": "torch.load", "suffix": ".pt",
    "packs_as": "my data/*.pt", "root": "my data",
}  # fmt: skip
CONFIG = {"collate_fn": "default_collate", "batch_size": 8}


def diagnosis(cause: Cause = Cause.DISK, **given: Any) -> Diagnosis:
    wanted: dict[str, Any] = {"workers": 2, "disk_s": 0.2, "cpu_s": 0.02, "opens": 8, "config": CONFIG}
    return diagnosis_of(cause, **(wanted | {"dataset": FILES, "source": "DataLoader(Files(root))"} | given))


def advised(d: Diagnosis) -> dict[str, Advice]:
    return {one.id: one for one in advise(with_forecaster(d))[0]}


def test_files_are_read_by_the_list_that_the_dataset_holds() -> None:
    one = advised(diagnosis())["tensor-files"]
    assert one.code.endswith("unstarve.DataLoader(unstarve.TensorFileDataset(Files(root).paths))")
    labelled = advised(diagnosis(dataset={**FILES, "labels": "targets"}, source="DataLoader(train)"))
    assert "unstarve.TensorFileDataset(train.paths, labels=train.targets)" in labelled["tensor-files"].code


def test_small_files_are_packed_by_a_command_on_the_users_own_folder() -> None:
    one = advised(diagnosis())["pack-files"]
    assert one.code.splitlines()[2:] == [
        "# once, in a shell: unstarve pack 'my data/*.pt' 'my data.packed'",
        "unstarve.DataLoader(unstarve.PackedDataset('my data.packed'))",
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"dataset": {**FILES, "packs_as": ""}},
        {"dataset": {**FILES, "packs_as": "data/*.pt\nrm -r ."}},  # run files are untrusted
        {"dataset": {"module": "data", "length": 100}},
        {"opens": 1},
        {"cause": Cause.CPU, "disk_s": 0.0, "cpu_s": 0.2},
    ],
)
def test_nothing_is_packed_where_the_samples_might_differ(given: dict[str, Any]) -> None:
    assert "pack-files" not in advised(diagnosis(**given))


@pytest.mark.parametrize(
    "given",
    [
        {"dataset": {**FILES, "files": "paths + x"}},
        {"dataset": {"module": "data", "length": 100}},
        {"config": {**CONFIG, "collate_fn": "pad"}},
        {"cause": Cause.HANDOFF, "handoff_s": 0.2, "disk_s": 0.0},
    ],
)
def test_files_are_left_alone_where_the_samples_might_differ(given: dict[str, Any]) -> None:
    assert "tensor-files" not in advised(diagnosis(**given))


def test_braces_in_a_folder_are_no_placeholders() -> None:
    one = advised(diagnosis(dataset={**FILES, "packs_as": "{a}/*.pt"}))["pack-files"]
    assert "unstarve.PackedDataset('{a}.packed')" in one.code


def test_far_files_are_copied_from_the_users_own_folder() -> None:
    system = {"filesystems": {"nfs4": 9}}
    one = advised(diagnosis(system=system, dataset={**FILES, "root": "/mnt/my data/"}))["local-copy"]
    assert one.code == "# once, in a shell: cp -r '/mnt/my data' '/var/tmp/my data'"
    assert "read /var/tmp/my data instead of /mnt/my data/" in one.title
    unknown = advised(diagnosis(system=system, dataset={}))["local-copy"]
    assert unknown.code.startswith("# Copy the data to a local disk")


CHUNKS = {
    "module": "data", "length": 512, "chunk_file": "my data/train.h5", "chunk_array": "x",
    "chunk_shape": "256x64x64", "chunk_bytes": 4 << 20,
}  # fmt: skip


def chunked(sampler: str = "RandomSampler", **facts: Any) -> dict[str, Advice]:
    config = {**CONFIG, "sampler": sampler}
    return advised(diagnosis(Cause.CPU, cpu_s=0.2, disk_s=0.0, config=config, dataset={**CHUNKS, **facts}))


def test_an_hdf5_file_is_written_again_with_one_sample_per_chunk() -> None:
    one = chunked()["smaller-chunks"]
    assert one.code == (
        "# once, in a shell: h5repack -l x:CHUNK=1x64x64 'my data/train.h5' 'my data/train.rechunked.h5'"
    )
    assert "256 samples (4 MB)" in one.why
    assert one.speedup is not None
    assert one.speedup.predicted > 1.5


@pytest.mark.parametrize(
    "facts",
    [
        {"chunk_shape": "2x64x64"},
        {"chunk_shape": "256;rm -r ."},  # run files are untrusted
        {"chunk_array": None},
        {"sampler": "SequentialSampler", "chunk_bytes": 1 << 20},
    ],
)
def test_chunks_stay_where_each_is_read_once(facts: dict[str, Any]) -> None:
    assert "smaller-chunks" not in chunked(**facts)


WHOLE = {
    "module": "data", "length": 512, "whole_read": "self.rows[:]['x']",
    "whole_what": "every row of self.rows", "whole_instead": "self.rows[index]['x']",
}  # fmt: skip


def test_one_row_is_read_instead_of_all() -> None:
    config = {**CONFIG, "dataset": "Rows"}
    one = advised(diagnosis(Cause.CPU, cpu_s=0.2, disk_s=0.0, config=config, dataset=WHOLE))["read-less"]
    assert one.code.splitlines() == [
        "# in Rows.__getitem__, instead of self.rows[:]['x']:",
        "# self.rows[index]['x']",
    ]
    assert one.speedup is not None
    assert one.speedup.predicted > 1.5
    hostile = {**WHOLE, "whole_instead": "x\nimport os"}  # run files are untrusted
    assert "read-less" not in advised(diagnosis(Cause.CPU, cpu_s=0.2, disk_s=0.0, dataset=hostile))
    assert "read-less" not in advised(diagnosis(Cause.HANDOFF, handoff_s=0.2, disk_s=0.0, dataset=WHOLE))


MAPPED = {"module": "data", "length": 512, "mapped_file": "my data/tokens.bin", "mapped_bytes": 1 << 30}


@pytest.mark.parametrize(
    ("free_bytes", "code"),
    [
        (1 << 34, "# once, in a shell: cat 'my data/tokens.bin' > /dev/null"),
        (1 << 30, "# right after tokens = np.memmap(…): tokens._mmap.madvise(mmap.MADV_RANDOM)"),
    ],
)
def test_a_mapped_file_is_read_once_if_it_fits_else_without_reading_around(
    free_bytes: int, code: str
) -> None:
    given: dict[str, Any] = {"dataset": MAPPED, "system": {"free_bytes": free_bytes}}
    one = advised(diagnosis(config={**CONFIG, "sampler": "RandomSampler"}, **given))["mapped-pages"]
    assert one.code == code
    in_order = {**CONFIG, "sampler": "SequentialSampler"}
    assert "mapped-pages" not in advised(diagnosis(config=in_order, **given))
    assert "mapped-pages" not in advised(diagnosis(Cause.CPU, cpu_s=0.2, disk_s=0.0, **given))


def of_mapped_file(bytes_per_fault: int, free_bytes: int) -> dict[str, Advice]:
    """A run of 2 KB samples, without workers, where in every fifth batch pages come from storage."""
    training = FakeTraining()
    training.begin()
    works = []
    for task in range(200):
        cold = task % 5 == 0
        now_ms, blocked_ms = training.now_ns / 1e6, 2.4 if cold else 0.0
        read = bytes_per_fault if cold else 0
        works.append(work_of(
            task, now_ms, cpu_ms=0.15, blocked_ms=blocked_ms, storage_bytes=read, samples=16, loader=0
        ))  # fmt: skip
        training.take(0.00015 + blocked_ms / 1e3, size=16)
        training.spend(0.0001)
    training.end()
    training.batches = [one._replace(task=one.position, nbytes=131_072) for one in training.batches]
    process = training.process()
    config = {"num_workers": 0, "batch_size": 16, "sampler": "RandomSampler"}
    loader = replace(process.loaders[0], config=config, dataset=MAPPED)
    system = {"cores": 2, "free_bytes": free_bytes}
    run = run_of(replace(process, loaders=(loader,), works=tuple(works), system=system))
    return {one.id: one for one in diagnose(run).advice}


def test_what_the_kernel_reads_around_page_faults_is_told_from_the_run() -> None:
    fits, larger = 1 << 34, 1 << 30
    for free_bytes in (fits, larger):
        why = of_mapped_file(4_200_000, free_bytes)["mapped-pages"].why
        assert why.endswith("for page faults, which read 840 KB from storage for a batch of 131 KB")
    pages = 16 * 4096  # a page for each sample, as with MADV_RANDOM
    assert "MADV_RANDOM" in of_mapped_file(4_200_000, larger)["mapped-pages"].code
    assert "mapped-pages" not in of_mapped_file(pages, larger)
    assert of_mapped_file(pages, fits)["mapped-pages"].why.endswith("for page faults")


@pytest.mark.parametrize(
    "given",
    [
        {"config": {**CONFIG, "remade_by": "accelerate"}},
        {"kind": "StatefulDataLoader"},
    ],
)
def test_a_loader_that_would_not_stay_unstarves_is_left_to_torch(given: dict[str, Any]) -> None:
    d = diagnosis(**given)
    one = advised(d)["tensor-files"]
    assert one.code.endswith("DataLoader(unstarve.TensorFileDataset(Files(root).paths))")
    assert "unstarve.DataLoader" not in one.code
