"""A Hugging Face tokenizer that has used its threads before workers are forked.

Only the library knows whether it has, and it says so in one place: a forked process prints a warning. So a
process is forked that ends at once, and its warning is read.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator

from unstarve import words
from unstarve.checks.objects.loader_parts import held_by_samples, is_forked, is_used, report
from unstarve.checks.objects.subject import Subject
from unstarve.model.finding import Finding

_SWITCH = "TOKENIZERS_PARALLELISM"
_PATIENCE_S = 5.0
_WARNING = b"after parallelism has already been used"


def tokenizer_before_fork(subject: Subject) -> Iterator[Finding]:
    """A fast tokenizer that workers use and that the training process has used already."""
    kind = getattr(sys.modules.get("tokenizers"), "Tokenizer", None)
    if not isinstance(kind, type) or not is_forked(subject.loader) or _SWITCH in os.environ:
        return
    for place in held_by_samples(subject):
        if isinstance(place.value, kind) and is_used(place, subject):
            if _WARNING in _said_by_a_fork():
                yield _finding(subject, place.path.removesuffix("._tokenizer"))
            return


def _finding(subject: Subject, path: str) -> Finding:
    return report(
        subject,
        "tokenizer-before-fork",
        f"{path} has used its threads, so {words.workers(subject.loader.num_workers)} will turn them off"
        " and print a warning each.",
        f'os.environ["{_SWITCH}"] = "false"  # at the top of the script: workers are parallel already',
    )


def _said_by_a_fork() -> bytes:
    """What libraries print to standard error in a forked process."""
    reader, writer = os.pipe()
    terminal = os.dup(2)
    try:
        os.dup2(writer, 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads: as the loader will
            child = os.fork()
        if child == 0:
            os._exit(0)
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(writer)
    _end(child)
    with os.fdopen(reader, "rb") as pipe:
        return pipe.read()


def _end(child: int) -> None:
    """Wait for the process; one that hangs, as the workers then will, too, is ended."""
    deadline = time.monotonic() + _PATIENCE_S
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(0.005)
