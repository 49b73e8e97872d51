"""Other projects' loaders, each set up as its own documentation recommends, by the part that it can serve."""

from __future__ import annotations

from peer_loaders.dali import DALI
from peer_loaders.ffcv import FFCV
from peer_loaders.images import IMAGE_PEERS
from peer_loaders.litdata import LITDATA
from peer_loaders.spdl import SPDL_FILES, SPDL_WAITING
from peer_loaders.tensordict import TENSORDICT
from peer_loaders.webdataset import WEBDATASET

_FILES = (WEBDATASET, LITDATA, SPDL_FILES, DALI, FFCV)

PEERS = {
    **dict.fromkeys(("rows", "large-rows", "rows-in-order", "large-rows-in-order"), (TENSORDICT,)),
    **dict.fromkeys(("files", "cold-files"), _FILES),
    "prefetch": (SPDL_WAITING,),
    "images": IMAGE_PEERS,
}
"""Entries of other projects, by the name of a part of `unstarve bench`."""
