"""What all tests need, whatever started them."""

from __future__ import annotations

import signal

# A background job is started with these ignored, and so would be every training that a test interrupts.
for _number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        _python = signal.default_int_handler if _number is signal.SIGINT else signal.SIG_DFL
        signal.signal(_number, _python)
