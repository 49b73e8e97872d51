"""One structure for all samples: taken apart, rebuilt, batched, and read from files of earlier versions."""

from __future__ import annotations

import base64
import pickle
import zlib
from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

import unstarve
from same_batches import same
from unstarve.fixes.samples.dtypes import ELEMENT_TYPES, torch_type, torch_types_by_numpy
from unstarve.fixes.samples.file_structure import structure_of
from unstarve.fixes.samples.structure import Structure, collated, nodes_of, tree_of, values_like

Point = namedtuple("Point", "x y")

SAMPLES: list[Any] = [
    3,
    (1, 2),
    [1, (2, 3)],
    {"a": 1, "b": [2, {"c": 3}]},
    OrderedDict(z=1, a=(2,)),
    Point(1, [2]),
    (),
    {"empty": {}},
]


@pytest.mark.parametrize("sample", SAMPLES, ids=repr)
def test_values_go_back_into_the_containers_they_came_from(sample: Any) -> None:
    tree, values = tree_of(sample)
    structure = Structure(tree, tuple(values))
    for one in (structure, pickle.loads(pickle.dumps(structure))):
        assert one.sample(values) == sample
        assert type(one.sample(values)) is type(sample)
    assert values_like(tree, sample) == values
    assert values_like(tree, [sample, sample, sample]) is None or tree == 0


@pytest.mark.parametrize("sample", SAMPLES[:-2], ids=repr)
def test_a_batch_has_the_containers_that_default_collate_makes(sample: Any) -> None:
    batch = default_collate([sample, sample])
    tree, _ = tree_of(sample)
    assert collated(tree) == tree_of(batch)[0]
    assert values_like(collated(tree), batch) is not None


def test_every_part_of_a_sample_has_a_path() -> None:
    tree, _ = tree_of([5, {"a": (6,)}])
    assert [path for path, part in nodes_of(tree) if isinstance(part, int)] == ["[0]", "[1]['a'][0]"]


def test_the_table_of_types_agrees_with_torch_and_numpy() -> None:
    for row in ELEMENT_TYPES.values():
        dtype = torch_type(row.name)
        assert dtype is None or dtype.itemsize == row.itemsize
        if row.numpy is not None:
            assert np.dtype(row.name).str == row.numpy
            assert torch_types_by_numpy()[np.dtype(row.numpy)] is dtype
    assert torch_type("no_such_type") is None
    assert torch_type("Tensor") is None


def test_a_files_structure_is_parsed_from_its_text() -> None:
    structure = structure_of('["d",[["x",["t","float32",[2]]],["n",["u",["i","f","b"]]]]]')
    assert structure is not None
    assert structure.sample(["x", 1, 2.0, True]) == {"x": "x", "n": (1, 2.0, True)}
    assert structure.batch(["x", 1, 2.0, True]) == {"x": "x", "n": [1, 2.0, True]}
    assert structure.tensor_columns.tolist() == [0]
    assert structure_of('["t","float32_of_the_future",[2]]') is None


# Written by unstarve before its modules were moved: a packed file, and a cache file with pickled class names.
_PACKED = """
c-rmUzlzjA90&08lmoF5AK_P747fANCUZg9JuEB)5%j8%B7bJN<&w;iWY0U7$i9V-AQsk^7QTcJq83(8{+(Gx@UC3GpTN$L$#3TO8`A77
?D6xLuU;HId3I|L000000001X)qdX&-~YdS*dE8Z000000002MZrIE=v%R^w000000001BrwzaJ?_(<f00000004H>W@bL-H;KGGbnbTzz
h?ZSgP(8C-#@tb!#aKU@YA>N*Ij=&uej5<2Yq|@KjZUB&U2xY<c2%9rZUXVQdN>?Gm3S(%5u{;x8oC)g-tJ6#ua(KPZz{|s#IR;f*3`MRE
HIJi18p`zRT8Bt;|gAqszRaz}!ifWfxn<VH!4Jj~6xtL2a&}W>o0cW;KgZs>1Uo3E!-I5}q})h=7q^EJ|f&ko-{8?DyDchzlX*zs4L(+I7
2-igl5UD(lu7G9Fb~sf(&9w5$qh3ZqOHipI6%I#<+;L|Ug^=dv=%2W?U2VpN4uGw*toiET^PKj>M)>~#^7CoE}6cPdSmCP|Z6d|IxuayxR
$#Z@GC`bh3t6XEcQiDZ<AnQDVnp8Of?I)5+gNXHQtH(T13yA|QsldFisA<wDh*sgGG+2k2UdesI+m*f$rx}G0(uhY~1eg63M?dRr5?zsPZ
j$g&H%*g
"""
_CACHE = """
c-rmTKWp1S7{_tRk<tV@6j~@P?a)HoWUxtWH+U#C&{4rd_YNoN%!vpoSf^kQ0e47J%56Qr+Acjsb_SEYfF|D$obHc)e(piL>!Q+Pdj8G#
Ja6e9TV88Dd&hr2K6ledPDV#^IOwJa>0x&$-9z-_q&pc52cyp;F>r62_?Oks7Qynj-!9FYy1hj9CfQ6@y+kBRroCLu%UWBrebO%eSo8Ysq
@GG?O)xG~=~DYY?S<Vl!D&{c*6hS}mg}sjTp-Pon=-+voV&e0b3@xJ7fMu?r&C$j$WvikK<%hq6YBabZ;Gm?WA!ZZqt2DB<7V93wG`*Fx$
H!W$!#~T*h>>cO-JtjZ7qwcoZ3tK-I_4f^E20esLN@hta&oYOQ8q-CKy&qxOY+K()C!?agvLwvg0~duWswUHCtJsZ)&M`>b(iw?r7Mw{9#
{x+RO%8&eq}aI&p1(UAvQ>2LJ#70C=o?-{&I$00000@JPJ4XWrY`0{{R30D%A5;%hs+<JABF0000056t>s03ALB0000001wV0T<)%xKdkB
K11ox)XNPy3_1)P&v#`47
"""


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b85decode("".join(text.split())))


def test_packed_files_of_earlier_versions_are_written_and_read_bit_for_bit(tmp_path: Path) -> None:
    samples = [
        *({"x": torch.full((2,), i, dtype=torch.bfloat16), 7: (i, [np.float32(i)])} for i in range(3)),
        ({"text": "é", "more": [None, True, b"\0"]},),
    ]
    (tmp_path / "old.packed").write_bytes(_unpacked(_PACKED))
    old = unstarve.PackedDataset(tmp_path / "old.packed", verify=True)
    assert all(same(old[i], sample) for i, sample in enumerate(samples))
    with unstarve.PackedWriter(tmp_path / "new.packed", about={"by": "1"}) as writer:
        for sample, name in zip(samples, ("n0", "n1", "n2", "odd"), strict=True):
            writer.append(sample, name)
    assert (tmp_path / "new.packed").read_bytes() == _unpacked(_PACKED)


def test_cache_files_of_earlier_versions_are_used_again(tmp_path: Path) -> None:
    def sample(i: int) -> Any:
        return {"x": torch.full((2,), float(i)), "t": (i, f"t{i}")}

    class Source:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            read.append(index)
            return sample(index)

    read: list[int] = []
    old = tmp_path / "old-cca54fa873577a9da342b586a2c75a14.cache"
    old.write_bytes(_unpacked(_CACHE))
    cached = unstarve.CachedDataset(
        Source(), budget=0, over_budget="disk", cache_dir=tmp_path, key="old", progress=False
    )
    probed = len(read)
    assert all(same(cached[i], sample(i)) for i in range(3))
    assert len(read) == probed
    assert str(old) in repr(cached)
    assert old.read_bytes() == _unpacked(_CACHE)
