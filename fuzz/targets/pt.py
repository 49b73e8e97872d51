"""`.pt` files: zip archives with a pickle, as torch.save writes them."""

from __future__ import annotations

import io
import pickle
import re
import warnings
import zipfile
from pathlib import Path
from random import Random

import torch

from fuzz.changes import NUMBERS, bytes_changed
from fuzz.targets._tensors import read
from tensor_files import LEFT_TO_TORCH, PLAIN

_SHARED = ("nested", "numbers", "shared storage", "odd keys", "torch.bfloat16")
_LEFT = ("transposed", "string", "sparse", "integer keys")
_OPCODES = (
    b"}", b"]", b")", b"(", b"t", b"l", b"d", b"u", b"e", b"a", b"s", b"0", b"2", b"R", b"Q", b"N", b"\x88",
    b"\x85", b"\x86", b"\x87", b"q\0", b"h\0", b"q\1", b"h\1", b"K\7", b"X\1\0\0\0x",
    b"ctorch\nFloatStorage\n", b"cos\nsystem\n", b"ccollections\nOrderedDict\n",
    b"ctorch._utils\n_rebuild_tensor_v2\n", b"\x8a\1\xff", b".",
)  # fmt: skip


def seeds() -> list[bytes]:
    samples = [torch.ones(2, 3), *(PLAIN[name] for name in _SHARED), *(LEFT_TO_TORCH[name] for name in _LEFT)]
    return [_saved(sample) for sample in samples] + [_saved(torch.ones(2), old=True)]


def hostile() -> dict[str, bytes]:
    """Pickles that grow, tensors of impossible sizes, code to execute."""
    plain = _saved(torch.ones(2, 3))
    doubling = b"\x80\2]q\0" + b"".join(b"](h%ch%ceq%c" % (n, n, n + 1) for n in range(30)) + b"."
    wide = b"\x80\2](" + b"X\xe0\x2e\0\0" + b"k" * 12000 + b"q\0" + b"h\0" * 400_000 + b"e."
    pairs = b"\x80\2}q\0(" + b"X\1\0\0\0kh\0" * 100_000 + b"u."
    storages = b"\x80\2(" + b"N" * 50_000 + b"tq\0" + b"h\0Q" * 17_000 + b"t."
    return {
        "one description of many storages": _with_pickle(plain, storages),
        "lists that double": _with_pickle(plain, doubling),
        "one long text again and again": _with_pickle(plain, wide),
        "one key again and again": _with_pickle(plain, pairs),
        "a list in itself": _with_pickle(plain, b"\x80\2]q\0h\0a."),
        "deep tuples": _with_pickle(plain, b"\x80\2)" + b"\x85" * 50_000 + b"."),
        "deep lists": _with_pickle(plain, b"\x80\2" + b"(" * 50_000 + b"l" * 50_000 + b"."),
        "a call of os.system": _with_pickle(plain, b"\x80\2cos\nsystem\nX\4\0\0\0true\x85R."),
        "0 × 10^18 × 10^18": _of_shape(plain, (0, 10**18, 10**18)),
        "negative sizes": _of_shape(plain, (-1, -6)),
        "more than any memory": _of_shape(plain, (2**40, 2**20)),
        "packed zeros": _deflated(torch.zeros(1 << 24)),
    }


def changed(data: bytes, random: Random) -> bytes:
    """A member of the archive changed, removed, doubled or compressed; the archive is whole again."""
    try:
        members = _members(data)
    except Exception:  # of an archive that is damaged, zipfile raises nearly anything
        return bytes_changed(data, data, random)
    if not members:
        return data
    name, content = random.choice(members)
    if random.random() < 0.6:
        name, content = next((m for m in members if m[0].endswith("data.pkl")), members[0])
    at = members.index((name, content))
    match random.randrange(6):
        case 0:
            del members[at]
        case 1:
            members.append((random.choice((name, f"{name}2", "../x", "/", "")), content))
        case 2 if name.endswith("data.pkl"):
            members[at] = name, _other_numbers(content, random)
        case 3 | 4 if name.endswith("data.pkl"):
            members[at] = name, _other_opcodes(content, random)
        case _:
            members[at] = name, bytes_changed(content, content, random)
    return _archive(members, random.choice((zipfile.ZIP_STORED,) * 9 + (zipfile.ZIP_DEFLATED,)))


def run(data: bytes, folder: Path) -> None:
    read(folder / "input.pt", data)


def _other_opcodes(program: bytes, random: Random) -> bytes:
    """Some opcodes put in between, some of them many times."""
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(program) + 1)
        piece = b"".join(random.choices(_OPCODES, k=random.randint(1, 4)))
        program = program[:at] + piece * random.choice((1, 1, 2, 50, 2000)) + program[at:]
    return program


def _other_numbers(program: bytes, random: Random) -> bytes:
    """A one-byte integer of the pickle written as a larger or a negative one."""
    places = [at for at in range(len(program) - 1) if program[at : at + 1] == b"K"]
    if not places:
        return program
    at = random.choice(places)
    return program[:at] + _integer(random.choice(NUMBERS)) + program[at + 2 :]


def _integer(value: int) -> bytes:
    return pickle.dumps(value, 2)[2:-1]


def _of_shape(data: bytes, shape: tuple[int, ...]) -> bytes:
    """The file of a 2×3 tensor that says it has another shape."""
    program = next(content for name, content in _members(data) if name.endswith("data.pkl"))
    strides = tuple(range(len(shape), 0, -1))
    if 0 not in shape:  # contiguous, so that only the size is wrong
        strides = tuple(
            int(torch.tensor(shape[at + 1 :], dtype=torch.float64).prod()) for at in range(len(shape))
        )
    tuples = [b"(" + b"".join(map(_integer, sizes)) + b"t" for sizes in (shape, strides)]
    start = program.index(b"K\2K\3\x86")
    end = program.index(b"K\3K\1\x86", start) + 5
    between = program[start + 5 : end - 5]
    return _with_pickle(data, program[:start] + tuples[0] + between + tuples[1] + program[end:])


def _with_pickle(data: bytes, program: bytes) -> bytes:
    members = [(name, program if name.endswith("data.pkl") else content) for name, content in _members(data)]
    return _archive(members, zipfile.ZIP_STORED)


def _members(data: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = [info for info in archive.infolist() if info.file_size < 1 << 20]
        return [(info.filename, archive.read(info)) for info in infos if info.compress_size < 1 << 20]


def _archive(members: list[tuple[str, bytes]], compression: int) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", compression) as archive:
        warnings.simplefilter("ignore")  # of two members of one name, which are wanted
        for name, content in members:
            info = zipfile.ZipInfo(name or "x")  # made in 1980, every time
            info.compress_type = compression
            archive.writestr(info, content)
    return file.getvalue()


def _deflated(sample: torch.Tensor) -> bytes:
    with zipfile.ZipFile(io.BytesIO(_saved(sample))) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    return _archive(members, zipfile.ZIP_DEFLATED)


def _saved(sample: object, *, old: bool = False) -> bytes:
    file = io.BytesIO()
    torch.save(sample, file, _use_new_zipfile_serialization=not old)
    # The old format names a storage by its address, which differs each time; ten digits are a "\n" long.
    return re.sub(rb"(?s)X.\0\0\0\d{9,}", b"X\1\0\0\0001", file.getvalue()) if old else file.getvalue()
