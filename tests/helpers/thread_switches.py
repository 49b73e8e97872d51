"""How often the calling thread has left its core."""

from __future__ import annotations

import resource


def switches() -> int:
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_nvcsw + usage.ru_nivcsw
