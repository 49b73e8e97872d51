"""Other projects that load data: measured where they are installed, with what their own pages recommend."""

from __future__ import annotations

from unstarve.benchmark.peers.dali import DALI
from unstarve.benchmark.peers.ffcv import FFCV
from unstarve.benchmark.peers.litdata import LITDATA
from unstarve.benchmark.peers.spdl import SPDL_FILES, SPDL_WAITING
from unstarve.benchmark.peers.tensordict import TENSORDICT
from unstarve.benchmark.peers.webdataset import WEBDATASET

__all__ = ["DALI", "FFCV", "LITDATA", "SPDL_FILES", "SPDL_WAITING", "TENSORDICT", "WEBDATASET"]
