"""Compiled parts of unstarve; each has a Python twin. Call them through `unstarve.native.native()`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

def gather(source: NDArray[Any], index: NDArray[np.int64], out: NDArray[Any], threads: int = 0) -> None: ...

# Twins: `record.ledger.PythonLedger`, `collect.counters.PythonCounters`, `collect.waits.PythonWait` and
# `PythonWork`, `collect.receiving.PythonReceiving`.
Ledger: Any
Counters: Any
Wait: Any
Work: Any
Receiving: Any
