"""Numbers with their nouns; and that no message of the toolkit has a number beside a noun that is always plural."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from toolkit.lease.display import several
from validation.base.counting import be, number_of, were

ROOT = Path(__file__).resolve().parents[2]
NOUNS = (
    "nodes", "GPUs", "pairs", "ports", "measurements", "criteria", "rounds", "servers", "leases", "claims", "jobs",
    "processes", "packages", "cores", "minutes", "hours", "seconds", "shards", "devices", "machines", "ranks",
    "samples", "addresses", "signatures", "gigabytes",
)  # fmt: skip


@pytest.mark.parametrize(
    ("count", "noun", "words"),
    [
        (0, "node", "0 nodes"),
        (1, "node", "1 node"),
        (2, "criterion", "2 criteria"),
        (2, "planned measurement", "2 planned measurements"),
        (1, "pair of ports", "1 pair of ports"),
        (3, "pair of ports", "3 pairs of ports"),
        (2, "address", "2 addresses"),
        (2, "copy", "2 copies"),
        (2, "day", "2 days"),
        (1.0, "hour", "1 hour"),
        (1.5, "hour", "1.5 hours"),
        ("1", "byte", "1 byte"),
        (1048576, "byte", "1048576 bytes"),
    ],
)
def test_a_noun_follows_its_number(count: object, noun: str, words: str) -> None:
    assert number_of(count, noun) == words


def test_verbs_follow_the_number_too() -> None:
    assert [be(1), be(2), were(1), were(0)] == ["is", "are", "was", "were"]
    assert [several(1, "GPU"), several(2, "GPU")] == ["1 GPU", "2 GPUs"]


def test_no_message_has_a_count_beside_a_noun_that_is_always_plural() -> None:
    """`{len(nodes)} nodes` says "1 nodes" of one."""
    bare = re.compile(
        r"\{(?:len\([^{}]*\)|[a-z_.]*(?:count|nodes|total|gpus))\} (?:[a-z]+ )?(?:" + "|".join(NOUNS) + r")\b"
    )
    never_one = re.compile(r"[>!]=? 1\b|of \{len\(found\)\} nodes|all \{len\(interfaces")
    files = [p for room in ("toolkit", "validation", "plugins", "roles") for p in (ROOT / room).rglob("*.py")]
    assert len(files) > 500
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if bare.search(line)
        and 'f"' in line
        and not never_one.search(line)
        and 'f"' in line
        and not re.search(r"[>!]=? 1\b|of \{len\(found\)\} nodes|all \{len\(interfaces", line)
    ]
    assert found == []
