"""What to do about bytes that are read and not used, by the kind of file."""

from __future__ import annotations

_REMEDIES = {
    "tar": "Read the shards from front to back and shuffle in a buffer, instead of seeking in them.",
    "Parquet": "Write smaller row groups, read only the columns that a batch needs, and read rows of one row "
    "group together.",
    "Arrow": "Memory-map the file and take the rows you need, instead of reading whole record batches.",
    "HDF5": "Rechunk the file with h5repack, so that a chunk holds one sample: HDF5 reads whole chunks.",
    "Zarr": "Rechunk the array, so that a chunk holds one sample: Zarr reads whole chunks.",
    "TFRecord": "Write records that hold only the fields you use; each record is read as a whole.",
    "LMDB": "Store only the fields you use, and open the database with readahead=False.",
    "video": "Decode only the frames you need, and encode with more key frames: reading begins at one.",
    ".pt": "Store samples as rows of one .npy or .safetensors file, or use torch.load(…, mmap=True): "
    "torch.load reads the whole file.",
    "pickle": "Store samples as rows of one .npy or .safetensors file: unpickling reads the whole file.",
    "npy": "Open the array with np.load(…, mmap_mode='r') and read only the rows you need.",
    "npz": "Store the array as .npy and open it with np.load(…, mmap_mode='r'): an .npz is read as a whole.",
    "safetensors": "Read only the rows you need with safe_open(…).get_slice(…).",
    "JPEG": "Store the images at the size you train with: decoding a large image only to shrink it is waste.",
    "PNG": "Store the images at the size you train with, as JPEG or WebP if that is exact enough.",
    "gzip": "Store the data without compression or in blocks: gzip can only be read from the beginning.",
    "zip": "Store samples as rows of one .npy or .safetensors file.",
    "memmap": "Read neighbouring rows together: storage answers in whole pages of 4 KB.",
}
_ANY = "Store what a batch needs side by side, and read only that."


def less_to_read(kind: str) -> str:
    """The sentence for a kind of `record.file_kinds`."""
    return _REMEDIES.get(kind, _ANY)
