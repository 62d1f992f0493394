"""waivers.yml: what is refused, each with one line that names file and line."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from validation.model.load import ConfigError
from validation.rules.waiver import MAX_DAYS, Waiver, load_waivers
from validation.run.catalogue import load_criteria

IDS = [c.id for c in load_criteria()]
GOOD = {
    "criterion": "tr.tcpbw",
    "who": "A. Person, Bank",
    "when": "2026-11-01",
    "why": "cable on order",
    "expires": "2026-12-01",
}


def write(path: Path, *waivers: dict[str, str]) -> Path:
    """A waivers file with a key on each line: the first waiver's keys stand in lines 2 to 6."""
    lines = ["waivers:"]
    for waiver in waivers:
        lines += [f"  {'-' if n == 0 else ' '} {k}: {v}" for n, (k, v) in enumerate(waiver.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_waiver_is_read(tmp_path: Path) -> None:
    (waiver,) = load_waivers(write(tmp_path / "w.yml", GOOD), IDS)
    assert (waiver.criterion, waiver.subject, waiver.who) == ("tr.tcpbw", None, "A. Person, Bank")
    assert waiver.expires == datetime.date(2026, 12, 1)
    (tmp_path / "none.yml").write_text("waivers: []\n")
    assert load_waivers(tmp_path / "none.yml", IDS) == ()


@pytest.mark.parametrize(
    ("changes", "line", "words"),
    [
        ({"who": "'   '"}, 3, "waivers.0.who: is blank"),
        ({"who": "'-'"}, 3, "waivers.0.who: is blank"),
        ({"why": "' '"}, 5, "waivers.0.why: is blank"),
        ({"why": '"\\u200b"'}, 5, "waivers.0.why: is blank"),
        ({"who": '"\\u3164"'}, 3, "waivers.0.who: is blank"),
        ({"why": '"\\u1160 \\uffa0.\\u115f"'}, 5, "waivers.0.why: is blank"),
        ({"expires": "2026-10-31"}, 6, "lies before the decision (2026-11-01)"),
        ({"expires": "9999-12-31"}, 6, f"at most {MAX_DAYS} are allowed"),
        ({"expires": "2027-11-03"}, 6, f"367 days after the decision (2026-11-01), at most {MAX_DAYS}"),
        ({"expires": "soon"}, 6, "waivers.0.expires: a day is expected, such as 2026-12-31"),
        ({"when": "2026-02-30"}, 4, "waivers.0.when: "),
        ({"criterion": "tr.tcpbv"}, 2, "unknown criterion 'tr.tcpbv'; did you mean tr.tcpbw?"),
        ({"criterion": "'*'"}, 2, "waivers.0.criterion: is blank"),
        ({"subjekt": "gpu1"}, 7, "waivers.0.subjekt: unknown key"),
        ({"subject": "' '"}, 7, "waivers.0.subject: is blank"),
    ],
)
def test_what_cannot_be_a_waiver_is_refused(tmp_path: Path, changes: dict[str, str], line: int, words: str) -> None:
    path = write(tmp_path / "waivers.yml", {**GOOD, **changes})
    with pytest.raises(ConfigError) as caught:
        load_waivers(path, IDS)
    text = str(caught.value)
    assert text.startswith(f"{path}:{line}: "), text
    assert words in text
    assert "\n" not in text


def test_a_year_is_the_longest(tmp_path: Path) -> None:
    (waiver,) = load_waivers(write(tmp_path / "w.yml", {**GOOD, "expires": "2027-11-02"}), IDS)
    assert (waiver.expires - waiver.when).days == MAX_DAYS


def test_the_same_waived_twice_and_a_decision_of_tomorrow_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "waivers.yml", GOOD, GOOD)
    with pytest.raises(ConfigError, match=r"waivers\.yml:7: .*the same is waived in line 2 already"):
        load_waivers(path, IDS)
    load_waivers(write(path, GOOD, {**GOOD, "subject": "gpu1"}), IDS)
    day = datetime.date(2026, 10, 31)
    with pytest.raises(ConfigError, match=r"waivers\.yml:4: waivers\.0\.when: 2026-11-01 has not come yet"):
        load_waivers(write(path, GOOD), IDS, today=day)
    load_waivers(path, IDS, today=datetime.date(2026, 11, 1))


def test_no_waiver_can_be_made_past_the_rules() -> None:
    day = datetime.date(2026, 11, 1)
    for changes in ({"who": " "}, {"why": "\t"}, {"expires": datetime.date.max}, {"expires": day.replace(month=10)}):
        with pytest.raises(ValueError, match=r"blank|decision"):
            Waiver(**{**dict(criterion="tr.tcpbw", who="A", when=day, why="b", expires=day), **changes})  # type: ignore[arg-type]
