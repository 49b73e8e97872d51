"""The one call is changed as asked, and not one other character."""

from __future__ import annotations

import ast
import textwrap

import pytest

from unstarve.advise.patch.rewrite_source import rewrite
from unstarve.advise.patch.user_files import CallChange
from unstarve.errors import NotPatchableError
from unstarve.model import Place, Span

MORE = {"num_workers": 8, "prefetch_factor": 4}
NONE = {"num_workers": 0}


def change(
    source: str, settings: dict[str, int | bool], kind: str = "DataLoader", at: int | None = None
) -> CallChange:
    """About the call of DataLoader, or the first that begins on line `at`."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    call = next(c for c in calls if (c.lineno == at if at else "DataLoader" in ast.unparse(c.func)))
    span = Span(call.lineno, call.col_offset, call.end_lineno or 0, call.end_col_offset or 0)
    return CallChange(Place("train.py", call.lineno, span=span), kind, settings)


def changed(source: str, settings: dict[str, int | bool] = MORE, **how: object) -> str:
    source = textwrap.dedent(source)
    return rewrite(source, [change(source, settings, **how)]).source  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = DataLoader(ds)", "x = DataLoader(ds, num_workers=8, prefetch_factor=4)"),
        ("x = DataLoader(ds, num_workers=2)", "x = DataLoader(ds, num_workers=8, prefetch_factor=4)"),
        (
            "x = DataLoader(ds, num_workers = 2, shuffle=True) # fast?\n",
            "x = DataLoader(ds, num_workers = 8, shuffle=True, prefetch_factor=4) # fast?\n",
        ),
        (
            "x = DataLoader(ds, prefetch_factor=2, num_workers=(2))",
            "x = DataLoader(ds, prefetch_factor=4, num_workers=(8))",
        ),
        (
            "x = DataLoader(ds, batch_size=3,)",
            "x = DataLoader(ds, batch_size=3, num_workers=8, prefetch_factor=4,)",
        ),
        ("x = DataLoader( ds )", "x = DataLoader( ds, num_workers=8, prefetch_factor=4 )"),
        (
            "x = torch.utils.data.DataLoader(ds)",
            "x = torch.utils.data.DataLoader(ds, num_workers=8, prefetch_factor=4)",
        ),
        ("x = DataLoader[int](ds)", "x = DataLoader[int](ds, num_workers=8, prefetch_factor=4)"),
        (
            "for b in wrap(DataLoader(f(ds), 4)): pass",
            "for b in wrap(DataLoader(f(ds), 4, num_workers=8, prefetch_factor=4)): pass",
        ),
        (
            "été = DataLoader(données)  # ünï\n",
            "été = DataLoader(données, num_workers=8, prefetch_factor=4)  # ünï\n",
        ),
        (
            "x = DataLoader(ds, 32, True, None, None, 2)",
            "x = DataLoader(ds, 32, True, None, None, 8, prefetch_factor=4)",
        ),
    ],
)
def test_arguments_are_changed_where_they_are_and_added_behind_the_last(before: str, after: str) -> None:
    assert changed(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            """
            x = DataLoader(
                ds,
                batch_size=3,  # small
            )
            """,
            """
            x = DataLoader(
                ds,
                batch_size=3,  # small
                num_workers=8,
                prefetch_factor=4,
            )
            """,
        ),
        (
            """
            x = DataLoader(
                ds,
                batch_size=3  # no, comma
                # and a remark
            )
            """,
            """
            x = DataLoader(
                ds,
                batch_size=3,  # no, comma
                # and a remark
                num_workers=8,
                prefetch_factor=4,
            )
            """,
        ),
        (
            """
            x = DataLoader(ds,
                           batch_size=3)
            """,
            """
            x = DataLoader(ds,
                           batch_size=3,
                           num_workers=8,
                           prefetch_factor=4)
            """,
        ),
        (
            """
            x = DataLoader(
                ds, batch_size=3
            )
            """,
            """
            x = DataLoader(
                ds, batch_size=3, num_workers=8, prefetch_factor=4
            )
            """,
        ),
        (
            """
            if x:
            \tx = DataLoader(
            \t\tds,
            \t)
            """,
            """
            if x:
            \tx = DataLoader(
            \t\tds,
            \t\tnum_workers=8,
            \t\tprefetch_factor=4,
            \t)
            """,
        ),
    ],
)
def test_new_arguments_are_laid_out_as_the_call_is(before: str, after: str) -> None:
    assert changed(before) == textwrap.dedent(after)


def test_line_ends_of_windows_stay() -> None:
    before = "x = DataLoader(\r\n    ds,\r\n)\r\ny = 1\r\n"
    assert (
        changed(before, {"num_workers": 8})
        == "x = DataLoader(\r\n    ds,\r\n    num_workers=8,\r\n)\r\ny = 1\r\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "x = DataLoader(ds, num_workers=2, prefetch_factor=4, persistent_workers=True)",
            "x = DataLoader(ds, num_workers=0)",
        ),
        (
            "x = DataLoader(ds, prefetch_factor=4, num_workers=2, timeout=3, shuffle=True)",
            "x = DataLoader(ds, num_workers=0, shuffle=True)",
        ),
        (
            "x = DataLoader(prefetch_factor=4, num_workers=2, dataset=ds)",
            "x = DataLoader(num_workers=0, dataset=ds)",
        ),
        (
            "x = DataLoader(ds, 1, False, None, None, 2, None, False, False, 3.0)",
            "x = DataLoader(ds, 1, False, None, None, 0, None, False, False, 0)",
        ),
        (
            "x = DataLoader(ds, **{'num_workers': 2, 'prefetch_factor': 3})",
            "x = DataLoader(ds, **{'num_workers': 0, 'prefetch_factor': None})",
        ),
        (
            """
            x = DataLoader(
                ds,
                num_workers=2,  # two
                prefetch_factor=4,  # deep
                persistent_workers=True
            )
            """,
            """
            x = DataLoader(
                ds,
                num_workers=0,  # two
            )
            """,
        ),
        (
            """
            x = DataLoader(ds, num_workers=2, prefetch_factor=4,
                           persistent_workers=True)
            """,
            """
            x = DataLoader(ds, num_workers=0)
            """,
        ),
    ],
)
def test_without_workers_what_needs_them_goes(before: str, after: str) -> None:
    assert changed(before, NONE) == textwrap.dedent(after)


def test_arguments_can_go_and_come_in_one_change() -> None:
    before = """
    x = DataLoader(
        ds,
        num_workers=2,
        prefetch_factor=4
    )
    """
    after = """
    x = DataLoader(
        ds,
        num_workers=0,
        pin_memory=True,
    )
    """
    assert changed(before, {"num_workers": 0, "pin_memory": True}) == textwrap.dedent(after)
    inline = "x = DataLoader(ds, num_workers=2, prefetch_factor=4)"
    assert (
        changed(inline, {"num_workers": 0, "pin_memory": True})
        == "x = DataLoader(ds, num_workers=0, pin_memory=True)"
    )


def test_what_is_torchs_default_is_not_written() -> None:
    assert (
        changed("x = DataLoader(ds)", {"num_workers": 4, "prefetch_factor": 2})
        == "x = DataLoader(ds, num_workers=4)"
    )
    assert changed("x = DataLoader(ds)", {"num_workers": 0, "pin_memory": False}) == "x = DataLoader(ds)"
    assert (
        changed("x = DataLoader(ds, pin_memory=True)", {"pin_memory": False})
        == "x = DataLoader(ds, pin_memory=False)"
    )


@pytest.mark.parametrize(
    ("settings", "after"),
    [
        (MORE, 'x = DataLoader(ds, **{**kw, "num_workers": 8, "prefetch_factor": 4})'),
        (
            NONE,
            'x = DataLoader(ds, **{**kw, "num_workers": 0, "prefetch_factor": None, '
            '"persistent_workers": False})',
        ),
    ],
)
def test_options_that_may_hold_the_name_are_overridden(settings: dict[str, int | bool], after: str) -> None:
    assert changed("x = DataLoader(ds, **kw)", settings) == after


def test_an_argument_given_beside_options_is_changed_in_place() -> None:
    assert (
        changed("x = DataLoader(ds, num_workers=2, **kw)", {"num_workers": 8})
        == "x = DataLoader(ds, num_workers=8, **kw)"
    )
    assert (
        changed("x = DataLoader(*a, num_workers=2)", {"num_workers": 8})
        == "x = DataLoader(*a, num_workers=8)"
    )


def test_a_dict_that_is_read_at_a_glance_is_changed_in_place() -> None:
    assert (
        changed("x = DataLoader(ds, **{'num_workers': 2})", {"num_workers": 8})
        == "x = DataLoader(ds, **{'num_workers': 8})"
    )
    mixed = "x = DataLoader(ds, **{**a, 'num_workers': 2})"
    assert (
        changed(mixed, {"num_workers": 8})
        == "x = DataLoader(ds, **{**{**a, 'num_workers': 2}, \"num_workers\": 8})"
    )


@pytest.mark.parametrize(
    ("source", "line", "kind"),
    [
        ("from torch.utils.data import DataLoader as DL\nx = DL(ds, num_workers=2)", 2, "DataLoader"),
        ("DL = torch.utils.data.DataLoader\nx = DL(ds, num_workers=2)", 2, "DataLoader"),
        ("make = functools.partial(DataLoader, ds)\nx = make(num_workers=2)", 2, "DataLoader"),
        ("x = Feeder(ds, num_workers=2)", 1, "Feeder"),
        ("class Mine(DataLoader): pass\nx = Mine(ds, num_workers=2)", 2, "Mine"),
        (
            "class Mine(DataLoader):\n  def __init__(self, ds):\n    super().__init__(ds, num_workers=2)",
            3,
            "Mine",
        ),
    ],
)
def test_a_loader_is_known_by_its_other_names(source: str, line: int, kind: str) -> None:
    assert changed(source, {"num_workers": 8}, at=line, kind=kind) == source.replace("=2", "=8")


@pytest.mark.parametrize(
    ("source", "at", "why"),
    [
        ("x = list(map(DataLoader, sets))", 1, "a call of list, not of DataLoader"),
        ("x = DataLoader(*args)", 1, r"num_workers may be hidden in the \*args of DataLoader"),
        ("x = DataLoader(ds, **a, **b)", 1, r"any \*\* argument of DataLoader\(…\) may contain num_workers"),
        (
            "class Mine(Base):\n  def __init__(self):\n    super().__init__(1, 2, 3, 4, 5, 6)",
            3,
            r"positional arguments of super\(\)\.__init__",
        ),
        ("x = DataLoader(i for i in y)", 1, "not be valid Python"),
    ],
)
def test_what_cannot_be_changed_says_precisely_why(source: str, at: int, why: str) -> None:
    with pytest.raises(NotPatchableError, match=why):
        changed(source, {"num_workers": 8}, at=at)


def test_an_expression_that_no_longer_decides_is_named() -> None:
    source = "x = DataLoader(ds, num_workers=args.workers)"
    done = rewrite(source, [change(source, {"num_workers": 8})])
    assert done.source == "x = DataLoader(ds, num_workers=8)"
    assert done.notes == ("line 1: num_workers was args.workers, which no longer has any effect",)


def test_several_calls_of_a_file_are_changed_at_once() -> None:
    source = "a = DataLoader(x)\nb = DataLoader(y,\n               num_workers=1)\n"
    changes = [change(source, {"num_workers": 4}, at=1), change(source, {"num_workers": 12}, at=2)]
    assert rewrite(source, changes).source == (
        "a = DataLoader(x, num_workers=4)\nb = DataLoader(y,\n               num_workers=12)\n"
    )


def test_two_calls_on_a_line_are_told_apart_by_where_they_end() -> None:
    source = "a, b = DataLoader(x), DataLoader(y)"
    second = CallChange(Place("t.py", 1, span=Span(1, 22, 1, len(source))), "DataLoader", {"num_workers": 4})
    assert rewrite(source, [second]).source == "a, b = DataLoader(x), DataLoader(y, num_workers=4)"
    with pytest.raises(NotPatchableError, match="2 calls that create loaders"):
        rewrite(source, [CallChange(Place("t.py", 1), "DataLoader", {"num_workers": 4})])


def test_without_a_span_the_only_loader_on_the_line_is_meant() -> None:
    change = CallChange(Place("t.py", 1), "DataLoader", {"num_workers": 4})
    assert rewrite("a = f(DataLoader(x))", [change]).source == "a = f(DataLoader(x, num_workers=4))"


def test_what_is_not_python_is_refused() -> None:
    with pytest.raises(NotPatchableError, match="is not valid Python"):
        rewrite("x = DataLoader(", [CallChange(Place("t.py", 1), "DataLoader", MORE)])


IMAGES: dict[str, int | bool] = {"num_workers": 2, "prefetch_factor": 2, "images": True}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "import torch\nx = DataLoader(ds)\n",
            "import torch\nimport unstarve\n"
            "x = unstarve.DataLoader(unstarve.ImageFolderDataset.like(ds), num_workers=2)\n",
        ),
        (
            "import unstarve\nx = torch.utils.data.DataLoader(num_workers=4, dataset=(ds),)\n",
            "import unstarve\n"
            "x = unstarve.DataLoader(num_workers=2, dataset=(unstarve.ImageFolderDataset.like(ds)),)\n",
        ),
        (
            '"""Doc."""\r\nfrom __future__ import annotations\r\n\r\nx = DataLoader(f("é"), 4)\r\n',
            '"""Doc."""\r\nfrom __future__ import annotations\r\nimport unstarve\r\n\r\n'
            'x = unstarve.DataLoader(unstarve.ImageFolderDataset.like(f("é")), 4, num_workers=2)\r\n',
        ),
        (
            "x = DataLoader(ds, num_workers=2)",
            "import unstarve\nx = unstarve.DataLoader(unstarve.ImageFolderDataset.like(ds), num_workers=2)",
        ),
    ],
)
def test_images_are_read_by_unstarve_in_a_loader_of_its_own(before: str, after: str) -> None:
    assert changed(before, IMAGES) == after


@pytest.mark.parametrize(
    "start",
    [
        '"""Doc.\\x0c\x0c\x0bmore\u2028and\x85more\n\nend."""\nimport os\n',
        "#!/usr/bin/env python3\n# -*- coding: latin-1 -*-\n",
        "import os\r",
        '"""Doc."""; text = """\na\n"""\n',
        "# comment\n@(lambda made: made)\ndef f(): pass\n",
    ],
)
def test_the_import_lands_between_statements_whatever_ends_a_line(start: str) -> None:
    source = start + "x = DataLoader(ds)\n"
    done = changed(source, IMAGES)
    assert done.replace("import unstarve\n", "", 1) == source.replace(
        "DataLoader(ds)", "unstarve.DataLoader(unstarve.ImageFolderDataset.like(ds), num_workers=2)"
    )
    before, after = ast.parse(source).body, ast.parse(done).body
    assert len(after) == len(before) + 1
    assert ast.get_docstring(ast.parse(done)) == ast.get_docstring(ast.parse(source))
    assert done.startswith("#!") == source.startswith("#!")


def test_a_lone_carriage_return_ends_a_line_as_it_does_for_python() -> None:
    source = "import os\ra = DataLoader(x)\nb = DataLoader(y)\n"
    assert changed(source, NONE | {"num_workers": 3}, at=2) == source.replace("(x)", "(x, num_workers=3)")


def test_an_import_behind_a_last_line_without_an_end() -> None:
    assert changed("import os; x = DataLoader(ds)", IMAGES) == (
        "import os; x = unstarve.DataLoader(unstarve.ImageFolderDataset.like(ds), num_workers=2)\n"
        "import unstarve\n"
    )


def test_images_that_the_gpu_decodes_stay_there() -> None:
    on_gpu = {"num_workers": 2, "prefetch_factor": 2, "gpu_images": True}
    found = rewrite("x = DataLoader(ds)\n", [CallChange(Place("t.py", 1), "DataLoader", on_gpu)])
    assert 'unstarve.DataLoader(unstarve.ImageFolderDataset.like(ds, decode="cuda"), num' in found.source
    assert any("images arrive on the GPU" in note for note in found.notes)


def test_two_loaders_of_images_need_one_import() -> None:
    source = "a = DataLoader(x)\nb = DataLoader(y)\n"
    done = rewrite(source, [change(source, IMAGES, at=1), change(source, IMAGES, at=2)])
    assert done.source.count("import unstarve") == 1
    assert all("pixels differ" in note for note in done.notes)


@pytest.mark.parametrize(
    ("source", "kind", "words"),
    [
        ("class Own(DataLoader): ...\nx = Own(ds)", "Own", "cannot replace Own"),
        ("x = DataLoader(**options)", "DataLoader", "cannot be seen in the call"),
    ],
)
def test_where_images_cannot_be_patched_in_it_says_what_to_do(source: str, kind: str, words: str) -> None:
    with pytest.raises(NotPatchableError, match=rf"{words}.*; edit it by hand to unstarve\.DataLoader"):
        changed(source, IMAGES, kind=kind, at=source.count("\n") + 1)


@pytest.mark.parametrize("part", ["ring", "threads", "gather"])
def test_a_loader_runs_on_an_engine_as_unstarves_own(part: str) -> None:
    done = changed("x = DataLoader(ds, num_workers=4)\n", {"num_workers": 2, part: True})
    assert done == "import unstarve\nx = unstarve.DataLoader(ds, num_workers=2)\n"
    with pytest.raises(NotPatchableError, match=f"run --engine {part}"):
        changed("x = MyDataLoader(ds)\n", {"num_workers": 2, part: True}, kind="MyDataLoader")


def test_samples_are_kept_in_any_loader() -> None:
    done = changed("x = DataLoader(dataset=ds[0], num_workers=4)\n", {"num_workers": 0, "cached": True})
    assert done == (
        'import unstarve\nx = DataLoader(dataset=unstarve.CachedDataset(ds[0], fill="lazy"), num_workers=0)\n'
    )
    with pytest.raises(NotPatchableError, match="cannot be seen in the call; wrap it by hand"):
        changed("x = DataLoader(**options)\n", {"cached": True})
