"""Ray Train: `recorded` wraps the loop of each worker, which records itself and reports.

For clusters that ``unstarve run`` did not start; under it, the loops are recorded already.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any

from unstarve.collect.training_thread import set_training_thread
from unstarve.errors import MissingExtraError
from unstarve.integrations.recorded_training import RecordedTraining

try:
    import ray.data  # its batches are watched
    import ray.train  # noqa: F401 # said here if it is missing
except ImportError as error:
    raise MissingExtraError(
        f'unstarve.integrations.ray needs Ray: pip install "unstarve[ray]" ({error})'
    ) from error

Loop = Callable[..., Any]


def recorded(
    train_loop_per_worker: Loop, *, output: str | os.PathLike[str] | None = None, quiet: bool = False
) -> Loop:
    """``TorchTrainer(recorded(train_loop_per_worker), …)``: record the loop of every worker.

    `output` names the run file of rank 0, on the node of that worker; the other ranks write theirs beside it,
    as ``NAME.rank1.unstarve``, for ``unstarve merge``. A file that exists is kept, and nothing is
    recorded then. At the end, rank 0 prints what training waited for, unless `quiet`. Results and exceptions
    of the loop stay the same.
    """

    @functools.wraps(train_loop_per_worker)
    def recorded_loop(*config: Any) -> Any:
        set_training_thread(threading.get_ident())  # Ray runs the loop in a thread
        training = RecordedTraining(output)
        training.begin()
        try:
            result = train_loop_per_worker(*config)
        except BaseException as error:
            training.end(error)
            raise
        if training.end() and not quiet:
            training.show()
        return result

    return recorded_loop
