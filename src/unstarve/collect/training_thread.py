"""The thread that trains: the main one, unless a framework runs training in another."""

from __future__ import annotations

import threading

_ident: int | None = None


def training_thread() -> int:
    """Its identifier."""
    return _ident or threading.main_thread().ident or 0


def set_training_thread(ident: int | None) -> None:
    """Name the thread in which a framework runs training; None for the main one."""
    global _ident
    _ident = ident
