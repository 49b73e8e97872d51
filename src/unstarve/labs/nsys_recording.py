"""What Nsight Systems would have recorded of a training on a GPU that nobody has at hand.

A training is a few numbers; `write_export` plays its steps on two clocks, the host's and the GPU's, and
writes what happened as ``nsys export --type sqlite`` would. Which bottleneck it has is drawn by the seed.
"""

from __future__ import annotations

import random
import sqlite3
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

BOTTLENECKS = ("loader", "copies", "launch", "gpu")
STEPS = 20

_US = 1_000
_MS = 1_000_000
_READY_MS = 0.1
"""A wait for a batch that is ready."""
_KERNELS = ("ampere_sgemm_128x64_tn", "cudnn_bn_fw_tr_1C11", "vectorized_elementwise_kernel", "reduce_kernel")
_LAUNCH_TO_START_US = 3.0
_TABLES = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, shortName INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INTEGER NOT NULL, end INTEGER NOT NULL, "
    "deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, "
    "copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER, "
    "correlationId INTEGER, nameId INTEGER NOT NULL",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, globalTid INTEGER, text TEXT, textId INTEGER",
    "OSRT_API": "start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER, nameId INTEGER NOT NULL",
}


@dataclass(frozen=True, slots=True)
class Training:
    """What a step is made of."""

    wait_ms: float
    """Until the loader has a batch."""
    batch_mb: float
    pageable: bool
    """The batch is copied from pageable memory, and the host waits for the copy."""
    copy_gb_s: float
    kernels: int
    kernel_us: float
    launch_us: float
    """What the host needs to launch a kernel."""
    workers: int
    graph: bool = False
    """One call launches all kernels of a step."""


def bottleneck_of(seed: int) -> str:
    """What slows the training of this seed down: one of `BOTTLENECKS`."""
    return random.Random(f"nsight:{seed}").choice(BOTTLENECKS)


def training_of(seed: int, fix: str | None = None) -> Training:
    """The training of this seed, as it is or with what helps against one of `BOTTLENECKS`."""
    draw = random.Random(f"nsight training:{seed}")
    bottleneck = bottleneck_of(seed)
    pageable = bottleneck == "copies" or draw.random() < 0.5  # seen, and harmless unless batches are large
    training = Training(
        wait_ms=_READY_MS,
        batch_mb=draw.uniform(1, 3),
        pageable=pageable,
        copy_gb_s=draw.uniform(5, 8) if pageable else draw.uniform(18, 25),
        kernels=draw.randint(40, 70),
        kernel_us=draw.uniform(110, 160),
        launch_us=draw.uniform(7, 10),
        workers=draw.randint(2, 6),
    )
    match bottleneck:
        case "loader":
            training = replace(training, wait_ms=draw.uniform(10, 20))
        case "copies":
            training = replace(training, batch_mb=draw.uniform(70, 110))
        case "launch":
            training = replace(
                training,
                kernels=draw.randint(300, 500),
                kernel_us=draw.uniform(4, 9),
                launch_us=draw.uniform(25, 45),
            )
        case "gpu":
            training = replace(training, kernel_us=draw.uniform(350, 550))
    match fix:
        case "loader":
            return replace(training, wait_ms=_READY_MS)
        case "copies" if pageable:
            return replace(training, pageable=False, copy_gb_s=draw.uniform(18, 25))
        case "launch":
            return replace(training, graph=True)
        case "gpu":
            return replace(training, kernel_us=training.kernel_us * draw.uniform(0.35, 0.55))
    return training


def write_export(path: Path, seed: int, fix: str | None = None) -> None:
    """Write the export of the training of this seed; `path` is replaced."""
    recorder = _Recorder(training_of(seed, fix), seed)
    for step in range(STEPS):
        recorder.step(step)
    rows = recorder.rows
    rows["StringIds"] = [(number, text) for text, number in recorder.strings.items()]
    rows["META_DATA_EXPORT"] = [("EXPORT_SCHEMA_VERSION", "3.25.0"), ("EXPORT_PRODUCT_VERSION", "lab")]
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database, database:
        for table, columns in _TABLES.items():
            if rows[table]:  # nsys leaves empty tables out
                database.execute(f"CREATE TABLE {table} ({columns})")
                places = ", ".join("?" * len(rows[table][0]))
                database.executemany(f"INSERT INTO {table} VALUES ({places})", rows[table])


class _Recorder:
    """Plays steps and takes down the rows of each table. Clocks count nanoseconds."""

    def __init__(self, training: Training, seed: int) -> None:
        self.rows: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self.strings: dict[str, int] = {}
        self._training = training
        self._random = random.Random(f"nsight noise:{seed}")
        self._pid = self._random.randint(2_000, 30_000)
        self._thread = self._global(self._pid)
        self._host = self._gpu = 1_000 * _MS
        self._calls = 0
        self._read(self._pid, self._host - _MS, self._host - _MS // 2)  # the script itself

    def step(self, number: int) -> None:
        """A step: wait for a batch, copy it, launch kernels, wait for the loss."""
        training, began = self._training, self._host
        self._wait(number)
        waited = self._host
        self._copy(training.batch_mb * 1e6)
        if training.graph:
            self._graph()
        else:
            forward, backward = training.kernels * 3 // 10, training.kernels * 9 // 10
            self._launch("forward", waited, range(forward))
            self._launch("backward", self._host, range(forward, backward))
            self._launch("optimizer", self._host, range(backward, training.kernels))
        self._call("cudaStreamSynchronize", max(self._gpu - self._host, 5 * _US))
        self._range("unstarve.data", began, waited)
        self._range("unstarve.step", began, self._host)

    def _wait(self, number: int) -> None:
        length = round(self._training.wait_ms * _MS * self._noise())
        worker = self._pid + 1 + number % self._training.workers
        self._read(worker, self._host, self._host + length * 9 // 10)
        self._host += length

    def _copy(self, nbytes: float) -> None:
        length = round(nbytes / self._training.copy_gb_s * self._noise())
        begin = max(self._host, self._gpu) + round(_LAUNCH_TO_START_US * _US)
        end = begin + length
        pageable = self._training.pageable
        call = self._call("cudaMemcpyAsync", end - self._host if pageable else 8 * _US)
        row = (begin, end, 0, 7, call, self._thread, round(nbytes), 1, int(not pageable), 2)
        self.rows["CUPTI_ACTIVITY_KIND_MEMCPY"].append(row)
        self._gpu = end

    def _launch(self, phase: str, began: int, kernels: range) -> None:
        """Launch the kernels of a phase one by one."""
        for number in kernels:
            length = round(self._training.kernel_us * _US * self._noise())
            call = self._call("cudaLaunchKernel", round(self._training.launch_us * _US * self._noise()))
            begin = max(self._host + round(_LAUNCH_TO_START_US * _US), self._gpu)
            name = self._string(_KERNELS[number % len(_KERNELS)])
            self.rows["CUPTI_ACTIVITY_KIND_KERNEL"].append(
                (begin, begin + length, 0, 7, call, self._thread, name)
            )
            self._gpu = begin + length
        self._range(f"unstarve.{phase}", began, self._host)

    def _graph(self) -> None:
        training = self._training
        call = self._call("cudaGraphLaunch", 20 * _US)
        begin = max(self._host, self._gpu)
        self._gpu = begin + round(training.kernels * training.kernel_us * _US * self._noise())
        row = (begin, self._gpu, 0, 7, call, self._thread)
        self.rows["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"].append(row)

    def _call(self, name: str, length: int) -> int:
        """A call of the CUDA runtime, which the host is in until it ends; its number."""
        self._calls += 1
        row = (self._host, self._host + length, self._thread, self._calls, self._string(name))
        self.rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append(row)
        self._host += length
        return self._calls

    def _read(self, process: int, begin: int, end: int) -> None:
        row = (begin, end, self._global(process), self._string("read"))
        self.rows["OSRT_API"].append(row)

    def _range(self, name: str, begin: int, end: int) -> None:
        self.rows["NVTX_EVENTS"].append((begin, end, self._thread, name, None))

    def _string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings) + 1)

    def _noise(self) -> float:
        return self._random.uniform(0.96, 1.04)

    @staticmethod
    def _global(process: int) -> int:
        """A process and its main thread, as nsys numbers them."""
        return process << 24 | process
