"""pool.yml: what is taken, and that every mistake is one sentence with its place."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolkit.pool_policy import POOL_FILE, check_pool, gpus, load_pool, shards
from validation.model.load import ConfigError

DOCS = Path(__file__).parents[2] / "docs/how-to/pool.md"


def documented() -> str:
    """The example in docs/how-to/pool.md, which administrators copy."""
    block = re.search(r"^    ---\n(?:    .*\n|\n)+?(?=\n    ansible-playbook)", DOCS.read_text("utf-8"), re.MULTILINE)
    return re.sub(r"^    ", "", block[0], flags=re.MULTILINE)


def written(folder: Path, text: str) -> Path:
    path = folder / POOL_FILE
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return folder


def test_the_documented_example_is_right(tmp_path: Path) -> None:
    pool = load_pool(written(tmp_path, documented()))
    assert list(pool.users) == ["research", "teaching"]
    assert pool.users["research"].max_gpus_per_user == Fraction(5, 2)
    assert pool.users["teaching"].max_gpus_per_user == Fraction(1, 7)
    assert pool.reservations["practicals"].nodes == 1
    assert pool.native_jobs == ("research",)


def test_an_inventory_without_policies_has_none(tmp_path: Path) -> None:
    assert load_pool(tmp_path) is None
    assert load_pool(tmp_path / "hosts.yml") is None


@pytest.mark.parametrize(
    ("line", "change", "words"),
    [
        (
            "classes: [v100] ",
            "classes: [v10] ",
            "users.teaching.classes: unknown class of GPU v10; there are: h100, v100",
        ),
        ("preempts: [teaching]", "preempts: [others]", "unknown class of users others; there are: research, teaching"),
        ("preempts: [teaching]", "preempts: [research]", "research preempts research too"),
        ("max_gpus: 8", "max_gpus: half", "invalid GPU count 'half'; use 2, 0.5 or 1/7"),
        ("max_gpus: 8", "max_gpus: 0", "must be above 0"),
        ("max_gpus: 8", "max_gpus: 1/0", "invalid GPU count"),
        ("max_gpus: 8", "max_gpus: 2", "max_gpus_per_user is more than max_gpus"),
        ("max_gpus_per_user: 2.5", "max_gpus_per_user: 1/11", "the nearest that can be kept are 229/2520 and 51/560"),
        ("priority: 100", "priority: 1001", "less than or equal to 1000"),
        ("priority: 100", "priorty: 100", "unknown key"),
        ('from: "08:00"', 'from: "8 am"', "reservations.practicals.from: string should match"),
        ("for: [teaching]", "for: [guests]", "unknown class of users guests"),
        ("class: v100", "class: h100", "teaching may not use h100"),
        ("    max_hours: 4", "    priority: 0", "one without an end never starts before a reservation"),
        ("days: weekdays", "days: mondays", "'daily', 'weekdays' or 'weekends'"),
        ("groups: [students]", "groups: []", "it has no members"),
        ("  teaching:\n      groups", "  root:\n      groups", "Slurm reserves this name"),
        ("grace_s: 90", "grace_s: -1", "greater than or equal to 0"),
        ("native_jobs: [research]", "native_jobs: [guests]", "unknown class of users guests; there are: research"),
        ("native_jobs: [research]", "native_jobs: all", "native_jobs"),
        ("native_jobs: [research]", "native_jobs: []", "native_jobs"),
    ],
)
def test_a_mistake_is_one_sentence_with_file_and_line(tmp_path: Path, line: str, change: str, words: str) -> None:
    text = documented()
    assert line in text
    with pytest.raises(ConfigError) as caught:
        load_pool(written(tmp_path, text.replace(line, change)))
    said = str(caught.value)
    found = re.match(rf"{re.escape(str(tmp_path / POOL_FILE))}:(\d+): ", said)
    assert found, said
    assert words in said
    assert "\n" not in said
    at = text[: text.index(line)].count("\n") + 1
    assert abs(int(found[1]) - at) <= 3, f"{said}: the mistake is in line {at}"


STATIC: dict[str, Any] = {"name": "a", "node": "gpu1", "gpus": [0], "fraction": "1/2", "client": "c1", "user": "anna"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"static": [STATIC]}, "with Slurm, GPUs would be granted twice"),
        ({"scheduler": "none", "users": {"a": {"users": ["b"]}}}, "nothing would enforce"),
        ({"scheduler": "none", "native_jobs": "none"}, "nothing would enforce"),
        (
            {"scheduler": "none", "static": [STATIC, {**STATIC, "name": "b", "fraction": "4/7"}]},
            "granted 15/14 times",
        ),
        ({"scheduler": "none", "static": [STATIC, {**STATIC, "name": "b", "node": "gpu2"}]}, "need a scheduler"),
        ({"scheduler": "none", "static": [STATIC, STATIC]}, "duplicate name: a"),
        ({"scheduler": "none", "static": [{**STATIC, "fraction": 1.5}]}, "above 1; list more GPUs"),
        ({"scheduler": "none", "static": [{**STATIC, "gpus": [1, 1]}]}, "duplicate GPU in gpus"),
    ],
)
def test_static_instances_that_cannot_be(data: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=r"^slurm_pool") as caught:
        check_pool(data)
    assert words in str(caught.value)


def test_static_instances_share_a_gpu_up_to_the_whole() -> None:
    pool = check_pool({"scheduler": "none", "static": [STATIC, {**STATIC, "name": "b"}]})
    assert [instance.fraction for instance in pool.static] == [Fraction(1, 2)] * 2


@pytest.mark.parametrize(("text", "parts"), [("1/7", 720), ("5/20", 1260), (0.75, 3780), (2, 10080), ("2.5", 12600)])
def test_numbers_of_gpus_are_whole_parts(text: object, parts: int) -> None:
    assert shards(gpus(text)) == parts


@pytest.mark.parametrize("text", [0, -1, "half", "", None, True, "1/0", "1e3", "0.0", "1/2/3"])
def test_what_is_no_number_of_gpus(text: object) -> None:
    with pytest.raises(ValueError, match="invalid GPU count"):
        gpus(text)


def test_the_example_is_yaml_that_ansible_takes_as_variables() -> None:
    assert list(yaml.safe_load(documented())) == ["slurm_pool"]
