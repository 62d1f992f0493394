"""Tables: nothing is cut, nothing is padded, and every line fits where its words do."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from toolkit.cli import cli
from toolkit.tables import lines

TITLES = ("fabric", "rate", "title")
ROWS = [("roce40", "40 Gbit/s", "RoCE over 40 Gbit/s Ethernet, as the reference architecture has it"), ("x", "1", "")]


def test_as_wide_as_its_words_where_there_is_room() -> None:
    for width in (None, 200):
        found = lines(TITLES, ROWS, width, right=("rate",))
        assert found[0] == "fabric       rate  title"
        assert found[2] == "x               1"
        assert not any(line.endswith(" ") for line in found)


@pytest.mark.parametrize("width", [79, 60, 48, 40, 30])
def test_every_word_is_there_in_lines_that_fit(width: int) -> None:
    found = lines(TITLES, ROWS, width)
    assert max(map(len, found)) <= width
    assert " ".join(" ".join(found).split()).count("reference architecture") <= 1
    words = {word for row in ROWS for cell in row for word in cell.split()}
    assert words <= set(" ".join(found).split())


@pytest.mark.parametrize("words", [("fabrics",), ("profiles",), ("criteria",), ("claims",), ("lab", "fault", "list")])
def test_commands_cut_nothing_at_40_columns_and_none_in_a_pipe(words: tuple[str, ...]) -> None:
    narrow = CliRunner().invoke(cli, words, env={"COLUMNS": "40", "NO_COLOR": "1"})
    pipe = CliRunner().invoke(cli, words, env={"COLUMNS": None})
    for done in (narrow, pipe):
        assert done.exit_code == 0, done.output
        assert "\u2026" not in done.stdout
        assert "\x1b" not in done.stdout
        assert not [line for line in done.stdout.splitlines() if line.endswith(" ")]
    shown = {word.rstrip(":") for word in narrow.stdout.split()}
    first = {"fabric", "profile", "criterion", "claim", "kind"}  # titles of the column that stands without one
    assert {word.rstrip(":") for word in pipe.stdout.split()} - shown <= first
