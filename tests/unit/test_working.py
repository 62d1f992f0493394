"""What takes long says so: a line every 15 seconds, or one line at the bottom of a terminal."""

from __future__ import annotations

import io

import pytest

from toolkit import working


class Terminal(io.StringIO):
    """A stream that is one."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0s"), (59, "59s"), (70, "1m10s"), (3599.6, "1h00m"), (7500, "2h05m"), (-3, "0s")]
)
def test_durations_are_short_and_plain(seconds: float, words: str) -> None:
    assert working.duration(seconds) == words


def test_without_a_terminal_a_line_comes_every_15_seconds_and_says_what() -> None:
    out, now = io.StringIO(), [0.0]
    shown = working.Working("building the base image", out, lambda: now[0])
    for second in range(1, 81):
        now[0] = float(second)
        if second == 40:
            shown.say("  installing packages")
        shown.tick()
    shown.close()
    assert out.getvalue().splitlines() == [
        "building the base image, 15s",
        "building the base image, 30s",
        "  installing packages",
        "  installing packages, 15s",
        "  installing packages, 30s",
    ]


def test_what_is_over_soon_is_not_told() -> None:
    out = io.StringIO()
    with working.working("judging", out) as shown:
        shown.tick()
    assert out.getvalue() == ""


def test_a_terminal_shows_one_line_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out, now = Terminal(), [0.0]
    shown = working.Working("w" * 100, out, lambda: now[0])
    now[0] = 3.0
    shown.tick()
    assert out.getvalue() == "\r\x1b[2K" + "w" * 39
    shown.say("done")
    shown.tick()
    shown.close()
    assert out.getvalue().endswith("\r\x1b[2Kdone\n\r\x1b[2Kdone, 0s\r\x1b[2K")


def test_a_reader_that_is_gone_ends_nothing() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    shown = working.Working("judging", Gone())
    shown.say("a line")
    shown.close()
