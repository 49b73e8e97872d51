"""A Ray cluster on this machine, for tests: on a loopback address, without a dashboard, ended in any case."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

_STARTED = "Ray runtime started"
_END_S = 10
HOST = "127.0.0.2"
"""Ray replaces 127.0.0.1 by an address that other machines can reach."""
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}


@contextmanager
def cluster(cpus: int) -> Iterator[str]:
    """Start a cluster of one node; its address."""
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # short: sockets lie in it
    address = f"{HOST}:{_free_port()}"
    command = [
        Path(sys.executable).with_name("ray"), "start", "--head", "--block", "--disable-usage-stats",
        f"--node-ip-address={HOST}", f"--port={address.partition(':')[2]}", f"--temp-dir={folder}",
        "--include-dashboard=false", "--object-store-memory=100000000", f"--num-cpus={cpus}",
        f"--ray-client-server-port={_free_port()}",
    ]  # fmt: skip
    environment = os.environ | QUIET | {"PYTHONUNBUFFERED": "1"}
    log = Path(folder) / "start.log"
    with log.open("wb") as output:
        head = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=output, text=True, cwd=folder
        )
    assert head.stdout is not None
    try:
        assert any(_STARTED in line for line in head.stdout), log.read_text()
        yield address
    finally:
        processes = psutil.Process(head.pid).children(recursive=True) if head.poll() is None else []
        head.send_signal(signal.SIGTERM)
        psutil.wait_procs(processes, timeout=_END_S)
        for left in (*processes, head):
            if left.is_running() if isinstance(left, psutil.Process) else left.poll() is None:
                left.kill()
        head.wait()
        head.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
