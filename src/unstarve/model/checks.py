"""Every check: its id, what it protects, and why it matters. Ids are a contract.

The same id is used wherever the problem shows: in the objects before a run (`checks.objects`), in source that
nobody has run (`checks.source`), or as evidence of a run (`checks.evidence`).
"""

from __future__ import annotations

from unstarve.model.finding import Check, Finding, Group, Severity

_ERROR, _WARNING, _NOTE = Severity


def _checks(group: Group, *rows: tuple[str, Severity, str, str]) -> dict[str, Check]:
    return {id: Check(id, group, severity, title, why) for id, severity, title, why in rows}


CHECKS = {
    **_checks(
        Group.WRONG_DATA,
        (
            "generator-before-fork",
            _ERROR,
            "Every worker repeats the same random numbers",
            "A random generator made before the workers start is copied into each of them, so all "
            "workers draw the same numbers, and new workers draw them again in every epoch.",
        ),
        (
            "worker-seeds-equal",
            _ERROR,
            "All workers are seeded alike",
            "Augmentation repeats itself from worker to worker and from epoch to epoch.",
        ),
        (
            "iterable-not-split",
            _ERROR,
            "Every worker delivers the whole stream",
            "Each sample reaches training once per worker, so an epoch is that many times too long.",
        ),
        (
            "iterable-not-split-by-rank",
            _ERROR,
            "Every rank trains on the whole stream",
            "All ranks see the same samples: more GPUs add no data.",
        ),
        (
            "fewer-shards-than-workers",
            _WARNING,
            "Some workers have no shard to read",
            "A stream split by shards keeps at most one worker per shard busy.",
        ),
        (
            "set-epoch-missed",
            _ERROR,
            "Every epoch comes in the same order",
            "A DistributedSampler shuffles by its epoch number, which is 0 until set_epoch is called.",
        ),
        (
            "set-epoch-lost",
            _ERROR,
            "The epoch number does not reach the workers",
            "Persistent workers keep the copy of the dataset they started with, so set_epoch changes "
            "only the copy in the training process.",
        ),
        (
            "same-order",
            _ERROR,
            "Two epochs came in the same order",
            "Shuffling that repeats itself gives the model the same batches again and again.",
        ),
        (
            "ranks-not-split",
            _ERROR,
            "Ranks see the same samples",
            "Without a DistributedSampler every rank trains on all of the data: more GPUs add no data.",
        ),
        (
            "uneven-ranks",
            _ERROR,
            "Ranks have different numbers of batches",
            "The rank with fewer batches stops first, and the others wait for it in the next "
            "collective, often for ever.",
        ),
        (
            "handle-before-fork",
            _ERROR,
            "Workers share an open file or connection",
            "A handle opened before the fork shares its position and its locks with every worker: reads"
            " return other samples' bytes, fail or hang.",
        ),
        (
            "samples-missing",
            _ERROR,
            "Some samples were never delivered",
            "Training sees less data than you think.",
        ),
        (
            "samples-repeated",
            _ERROR,
            "Some samples were delivered more than once",
            "Training weighs these samples more than the others, and the epoch is longer than it should be.",
        ),
        (
            "drop-last-loses",
            _WARNING,
            "drop_last throws away much of an epoch",
            "The incomplete last batch of every epoch, or of every worker of a stream, never reaches "
            "training.",
        ),
        (
            "length-wrong",
            _WARNING,
            "The dataset yields more or fewer samples than it says",
            "Progress bars, learning-rate schedules and frameworks that trust len() stop early or late.",
        ),
        (
            "shared-batch-memory",
            _ERROR,
            "Samples share memory that is overwritten",
            "The dataset returns views of one buffer, so a sample changes after it was delivered.",
        ),
    ),
    **_checks(
        Group.CRASH_OR_HANG,
        (
            "not-picklable",
            _ERROR,
            "Workers cannot be started",
            "Under spawn and forkserver, the default from Python 3.14, the dataset and its functions "
            "are pickled for every worker.",
        ),
        (
            "missing-main-guard",
            _ERROR,
            "Workers would run the script again",
            "Under spawn and forkserver every worker imports the script; without a main guard that "
            "starts training again inside the worker.",
        ),
        (
            "cuda-in-worker",
            _ERROR,
            "The dataset uses CUDA inside a worker",
            "A forked worker cannot use CUDA: it fails with “Cannot re-initialize CUDA in forked "
            "subprocess”. Other workers hold a CUDA context of several hundred megabytes each.",
        ),
        (
            "shm-full",
            _ERROR,
            "/dev/shm is too small for the batches in flight",
            "A worker that writes into a full /dev/shm dies with a bus error.",
        ),
        (
            "descriptors",
            _ERROR,
            "The process runs out of file descriptors",
            "Each tensor of a batch that came from a worker holds a file descriptor: “Too many open files”.",
        ),
        (
            "kept-batches",
            _WARNING,
            "Batches are kept after their step",
            "Memory fills up. A tensor from a worker stays in shared memory, with its descriptor open, until "
            "the last reference to it is gone.",
        ),
        (
            "fork-after-threads",
            _ERROR,
            "Workers wait for threads that they do not have",
            "A fork copies only the thread that forks: in the worker, a pool or a queue that was in use "
            "waits for ever.",
        ),
        (
            "tokenizer-before-fork",
            _WARNING,
            "The tokenizer was used before the fork",
            "A fast tokenizer that has used its threads turns them off in forked workers.",
        ),
        (
            "worker-hang",
            _ERROR,
            "A worker is stuck",
            "Training waits for its batch; without a timeout it waits for ever.",
        ),
        (
            "worker-killed",
            _ERROR,
            "A worker was killed",
            "The DataLoader ends training with “worker exited unexpectedly”, or a broken connection, and "
            "does not say why.",
        ),
        (
            "worker-timeout",
            _ERROR,
            "A batch took longer than the timeout",
            "The DataLoader ends training and does not say which sample was slow.",
        ),
        (
            "cuda-out-of-memory",
            _ERROR,
            "The GPU ran out of memory",
            "The step needs more memory than the device has left.",
        ),
        (
            "too-many-weights",
            _ERROR,
            "The sampler has more weights than torch can draw from",
            "torch.multinomial fails with “number of categories cannot exceed 2^24” when the epoch begins.",
        ),
        (
            "memory-limit",
            _ERROR,
            "Workers need more memory than this machine has",
            "The kernel kills a process when memory, or the container's limit, is used up.",
        ),
    ),
    **_checks(
        Group.SPEED_AND_MEMORY,
        (
            "copy-on-write",
            _WARNING,
            "Worker memory grows with every sample",
            "Python counts references inside the objects, so reading a list or dict copies its pages "
            "into every worker.",
        ),
        (
            "memory-leak",
            _WARNING,
            "Memory grows with every batch",
            "Sooner or later the kernel kills the process.",
        ),
        (
            "growing-cache",
            _WARNING,
            "A cache inside the dataset keeps growing",
            "Every worker fills its own copy, and restarted workers begin with an empty one.",
        ),
        (
            "large-pickled-dataset",
            _WARNING,
            "The dataset is pickled for every worker",
            "Under spawn and forkserver each worker receives its own copy before it can read the first "
            "sample.",
        ),
        (
            "workers-each-epoch",
            _WARNING,
            "Workers are restarted for every epoch",
            "Each epoch begins with a pause in which workers start and fill the pipeline.",
        ),
        (
            "tiny-epochs",
            _WARNING,
            "Epochs are too short for the workers",
            "The DataLoader does not prefetch across epochs: with fewer batches than workers × "
            "prefetch_factor, the pipeline is never full.",
        ),
        (
            "no-getitems",
            _WARNING,
            "Data in memory is read one sample at a time",
            "One Python call per sample and a collate per batch cost more than the data itself.",
        ),
        (
            "threads-per-worker",
            _WARNING,
            "Every worker starts its own threads",
            "Workers × threads compete for the cores and slow each other down.",
        ),
        (
            "more-workers-than-cores",
            _WARNING,
            "There are more workers than cores",
            "Work that keeps a core busy gets no faster with more workers than cores, and training "
            "loses its own core.",
        ),
        (
            "throttled",
            _WARNING,
            "The container's CPU quota stops the processes",
            "When the quota is used up, all processes of the container stand still until the next period.",
        ),
        (
            "worker-affinity",
            _WARNING,
            "Workers are confined to a few cores",
            "Something, often a library, narrowed the set of cores after the start; the others stay idle.",
        ),
        (
            "order",
            _WARNING,
            "One slow sample holds back finished batches",
            "Batches are delivered in order, so training waits for the slow one while later ones are ready.",
        ),
        (
            "slow-sample",
            _WARNING,
            "Some samples take far longer than the others",
            "One of them in a batch makes the whole batch late.",
        ),
        (
            "no-workers",
            _WARNING,
            "Loading and training take turns",
            "With num_workers=0, the default, training stands still while each batch is made.",
        ),
        (
            "many-tensors",
            _WARNING,
            "Batches consist of many small tensors",
            "A worker hands over each tensor as its own shared-memory file, which costs more than its bytes.",
        ),
        (
            "not-pinned",
            _WARNING,
            "Batches are copied to the GPU from pageable memory",
            "The copy is slower, and training waits for it.",
        ),
        (
            "network-small-files",
            _WARNING,
            "Many small files are read from a network file system",
            "Every open is a round trip to the server.",
        ),
        (
            "reads-too-much",
            _WARNING,
            "Far more is read than used",
            "A chunk, row group or file much larger than a sample is read for each sample.",
        ),
        (
            "chunk-larger-than-sample",
            _WARNING,
            "HDF5 reads a large chunk for each sample",
            "HDF5 reads and decompresses whole chunks; of a shuffled chunk one sample is used.",
        ),
        (
            "slow-sampler",
            _WARNING,
            "Drawing the indices takes long",
            "The sampler runs in the training process before the first batch of each epoch.",
        ),
        (
            "column-first",
            _WARNING,
            "A whole column is read for one row",
            'dataset["column"][i] decodes every row of the column; dataset[i]["column"] decodes one.',
        ),
        (
            "file-read-again",
            _WARNING,
            "The same file is read from its start for every sample",
            "Opening an archive reads its table of contents, and loading a file reads all of it.",
        ),
        (
            "resampling-in-getitem",
            _WARNING,
            "Audio is resampled for every sample",
            "The same work is repeated in every epoch.",
        ),
        (
            "whole-video-for-a-frame",
            _WARNING,
            "A whole video is decoded for a few frames",
            "Decoding costs as much as the frames that are thrown away.",
        ),
        (
            "slow-start",
            _NOTE,
            "The first batch takes long",
            "Importing, building the dataset and sending it to the workers comes before any training.",
        ),
    ),
}


def finding(
    id: str, message: str, fix: str, *, file: str | None = None, line: int | None = None, harm: float = 0.0
) -> Finding:
    """A finding of the check `id`, with the severity and the reason that belong to it."""
    check = CHECKS[id]
    return Finding(id, check.severity, message, check.why, fix, file, line, harm)


def by_harm(findings: list[Finding]) -> list[Finding]:
    """The findings sorted by expected harm, the worst first."""
    return sorted(findings, key=lambda one: (one.severity.rank, -one.harm, one.id, one.where or ""))
