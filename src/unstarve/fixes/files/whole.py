"""Files whose layout the finder leaves alone, loaded by the libraries that wrote them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from unstarve.errors import DataFileError
from unstarve.fixes.formats import NO_FILE, NPY, PT, Answer, error_of


def load_whole(path: str, code: int, answer: Answer) -> Any:
    """Load a file in which no layout was found.

    Executes nothing: torch.load with weights_only, numpy without pickles. Raises OSError for a file that
    cannot be opened, DataFileError with both reasons where its own library cannot load it either.
    """
    if answer.found == NO_FILE or code not in (PT, NPY):
        raise error_of(answer, path)
    try:
        return torch.load(path, weights_only=True) if code == PT else _load_array(path)
    except OSError:
        raise
    except Exception as error:  # a damaged file may make torch or numpy raise anything
        says = str(error).strip().partition("\n")[0].partition(". ")[0]
        raise DataFileError(
            f"{path} cannot be loaded: {answer.text}; its own library says: {says}"
        ) from error


def _load_array(path: str) -> torch.Tensor:
    array = np.load(path, allow_pickle=False)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return torch.from_numpy(array)
