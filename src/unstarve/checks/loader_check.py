"""Check one loader: before its workers start, with its first batches, and sample by sample."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from typing import Any

from unstarve.checks.names import Names, names_of
from unstarve.checks.objects.subject import Subject
from unstarve.checks.objects.two_passes import FirstPass, first_pass, second_pass
from unstarve.checks.slow_samples import SampleTimes
from unstarve.checks.start_up import Pickled, pickled_for_worker, slow_start
from unstarve.collect.torch_iterator import shut_down
from unstarve.model.check_report import CheckedLoader
from unstarve.model.finding import Finding

ABOUT_DATASETS = frozenset(
    {
        "column-first",
        "copy-on-write",
        "cuda-in-worker",
        "generator-before-fork",
        "growing-cache",
        "handle-before-fork",
        "iterable-not-split",
        "large-pickled-dataset",
        "length-wrong",
        "no-getitems",
        "not-picklable",
        "shared-batch-memory",
        "slow-sample",
        "tokenizer-before-fork",
    }
)
"""Checks whose trouble is in a dataset, whatever loader it is given to."""


class LoaderCheck:
    """Everything that is known about one loader so far. Holds the loader: do not keep it for long."""

    def __init__(
        self,
        loader: Any,
        names: Names | None = None,
        is_training: bool | None = None,
        complain: Callable[[str], None] = lambda sentence: None,
        *,
        of_dataset: bool = False,
    ) -> None:
        """Run the checks that need no batches; the loader's workers must not have been started.

        `of_dataset` says that the loader was made for its dataset alone: what is wrong with it is our fault.
        """
        self.loader = loader
        self._of_dataset = of_dataset
        self.names = names or names_of(loader)
        self.is_training = is_training
        self.batches: list[Any] = []
        self.first_batch_s: float | None = None
        self.problem: str | None = None
        self.samples: SampleTimes | None = None
        self._complain = complain
        self._pickled: Pickled | None = pickled_for_worker(loader)
        self._first: FirstPass = first_pass(self._subject(), complain)
        self._findings = [*self._first.findings, *self._first.early]
        self._concluded = False

    def fetch(self, count: int) -> None:
        """Fetch the first batches as an epoch would, then stop the workers; a failure becomes `problem`."""
        if getattr(self.loader, "_iterator", None) is not None:
            self.problem = f"{self.names.loader} has its workers already, perhaps in the middle of an epoch"
            return
        began_s, iterator = time.monotonic(), None
        try:
            iterator = iter(self.loader)
            for batch in islice(iterator, count):
                self.deliver(batch, time.monotonic() - began_s)
        except Exception as error:  # the user's dataset, sampler and collate function may raise anything
            self.problem = f"{self.names.loader} failed: {type(error).__name__}: {_last_line(error)}"
        finally:
            if iterator is not None:
                shut_down(iterator, self.loader)

    def deliver(self, batch: Any, since_s: float) -> None:
        """Note a batch that came `since_s` after the epoch began."""
        if self.first_batch_s is None:
            self.first_batch_s = since_s
        self.batches.append(batch)

    def conclude(self) -> None:
        """Run the checks that look at batches, once."""
        if not self._concluded:
            self._concluded = True
            self._findings = second_pass(self._subject(), self._first, self._complain)

    def findings(self) -> list[Finding]:
        """What was found so far."""
        samples = [] if self.samples is None else self.samples.findings(self.names)
        found = [*self._findings, *slow_start(self.checked()), *samples]
        return [one for one in found if not self._of_dataset or one.id in ABOUT_DATASETS]

    def checked(self) -> CheckedLoader:
        """What was looked at."""
        names, sent = self.names, self._pickled
        if self._of_dataset:
            kind = type(self.loader.dataset).__name__
            return CheckedLoader(names.dataset, dataset=kind, batches=len(self.batches), problem=self.problem)
        return CheckedLoader(
            name=names.loader,
            file=names.file,
            line=names.line,
            dataset=type(self.loader.dataset).__name__,
            workers=self.loader.num_workers,
            batches=len(self.batches),
            pickled_bytes=None if sent is None else sent.nbytes,
            pickle_s=None if sent is None else sent.seconds,
            first_batch_s=self.first_batch_s,
            problem=self.problem,
        )

    def _subject(self) -> Subject:
        names = self.names
        return Subject(
            self.loader,
            names.loader,
            names.dataset,
            names.file,
            names.line,
            tuple(self.batches),
            self.is_training,
        )


def _last_line(error: Exception) -> str:
    """Of a worker's exception, which quotes its traceback, the line that names the error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else ""
