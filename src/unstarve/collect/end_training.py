"""End training before it ends by itself."""

from __future__ import annotations

import ctypes
import os
import signal
import threading

_GRACE_S = 60.0
"""How long a process that was asked to stop may take (it may be saving weights) before a signal ends it."""


def end_training() -> None:
    """Leave the way a script leaves by itself: ``finally`` blocks and exit handlers run, exit code 0."""
    if threading.current_thread() is not threading.main_thread():
        main = ctypes.c_ulong(threading.main_thread().ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(SystemExit))
    # A main thread that never returns to Python, or that catches SystemExit, is ended by signal.
    timer = threading.Timer(_GRACE_S, os.kill, (os.getpid(), signal.SIGTERM))
    timer.daemon = True
    timer.start()
    raise SystemExit(0)
