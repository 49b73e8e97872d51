"""The files that were written meanwhile, in a sentence."""

from __future__ import annotations

from unstarve.cli.overwriting import written_meanwhile
from unstarve.launch.written_files import WrittenFiles


def test_ten_names_and_how_many_more() -> None:
    names = tuple(f"{number}.pt" for number in range(25))
    assert written_meanwhile(WrittenFiles(names[:2], 2, True)) == "Files written during the run: 0.pt, 1.pt"
    many = written_meanwhile(WrittenFiles(names, 2000, True))
    assert many is not None
    assert many.endswith("8.pt, 9.pt … and 1990 more")


def test_nothing_is_said_where_nothing_was_written_unless_not_all_was_searched() -> None:
    assert written_meanwhile(WrittenFiles((), 0, True)) is None
    assert "none found (not all files" in (written_meanwhile(WrittenFiles((), 0, False)) or "")


def test_a_name_cannot_write_to_the_terminal() -> None:
    assert (
        written_meanwhile(WrittenFiles(("a\x1b[2J\n",), 1, True))
        == r"Files written during the run: 'a\x1b[2J\n'"
    )
