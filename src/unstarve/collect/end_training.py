"""End training before it ends by itself."""

from __future__ import annotations

import ctypes
import os
import signal
import threading

_GRACE_S = 60.0
"""How long a process may take to stop (it may be saving weights) before a signal ends it."""


def end_training() -> None:
    """Exit as a script does by itself: ``finally`` blocks and exit handlers run, the exit code is 0."""
    if threading.current_thread() is not threading.main_thread():
        main = ctypes.c_ulong(threading.main_thread().ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(SystemExit))
    # A main thread that never returns to Python, or that catches SystemExit, is ended by a signal.
    timer = threading.Timer(_GRACE_S, os.kill, (os.getpid(), signal.SIGTERM))
    timer.daemon = True
    timer.start()
    raise SystemExit(0)
