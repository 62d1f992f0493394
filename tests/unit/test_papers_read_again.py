"""Papers of a handover, read by others and elsewhere: they say what could be seen, and what could not."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import hardware, plan_of, results_of, write_run
from toolkit.commands.verify import _lines
from toolkit.errors import UsageFault
from toolkit.handover import punch_file
from toolkit.handover.made_point import made_point
from toolkit.handover.updating import update_list
from validation.model import VerdictDoc
from validation.model.load import ConfigError
from validation.rules.punch import Point, load_points
from validation.signing.signatures import SignatureCheck
from validation.signing.sums import SumSigner, SumUnit, Unit, beside, sum_of
from validation.signing.verify import Verification

DAY = date(2026, 11, 21)
POINT = Point.model_validate(
    {"id": "P1", "class": "C", "text": "label", "owner": "B. Site", "due": date(2026, 12, 31), "blocking": False,
     "opened": DAY}
)  # fmt: skip
KEYS = """  - id: P1
    class: C
    text: label
    owner: B. Site
    due: 2026-12-31
    blocking: false
    opened: 2026-11-21
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("points: 3\n", "punch.yml:1: points: a list is expected"),
        ("points:\n  - P1\n", "punch.yml:2: points.0: a mapping of keys is expected"),
        ("points:\n" + KEYS.replace("2026-12-31", "[1]"), "punch.yml:6: points.0.due: a day is expected, such as"),
        ("points:\n" + KEYS.replace("false", "[1]"), "punch.yml:7: points.0.blocking: true or false is expected"),
        ("points:\n" + KEYS.replace("label", "x" * 2001), "punch.yml:4: points.0.text: has 2001 characters; 2000 are"),
    ],
)  # fmt: skip
def test_a_faulty_list_is_refused_in_our_words(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "punch.yml"
    path.write_text(text)
    with pytest.raises(ConfigError) as fault:
        load_points(path, ())
    assert str(fault.value).removeprefix(f"{tmp_path}/").startswith(words)


@pytest.mark.parametrize(
    "text",
    [
        "# of rack 3\npoints: []  # none yet\n",
        "# of rack 3\npoints:  # none yet\n",
        f"# of rack 3\npoints:\n{KEYS.replace('label', 'label # 3')}    # none yet\n...\n",
        "# of rack 3\npoints:  # none yet\n" + KEYS.replace("owner: B", "owner: &who B") + "    opened_by: *who\n",
        "# of rack 3\npoints: [  # none yet\n]\n",
    ],
)
def test_comments_are_kept_whatever_form_a_list_has(tmp_path: Path, text: str) -> None:
    path = tmp_path / "punch.yml"
    path.write_text(text)
    old = load_points(path, ())
    changed = [point.model_copy(update={"owner": "C. Other"}) for point in old]
    punch_file.write(path, [*changed, POINT.model_copy(update={"id": "P2"})])
    now = path.read_text()
    assert (now.count("# of rack 3"), now.count("# none yet")) == (1, 1)
    assert [point.id for point in load_points(path, ())] == [*(point.id for point in old), "P2"]


def test_a_point_of_a_node_that_nobody_has_is_refused() -> None:
    given: dict[str, Any] = {"grade": "C", "text": "label", "owner": "B", "due": DAY, "criterion": None,
                             "blocking": False}  # fmt: skip
    with pytest.raises(UsageFault, match="--node: the inventory has no node 'gpu11'; did you mean gpu1"):
        made_point((), DAY, ["gpu1", "gpu2"], node="gpu11", **given)
    assert made_point((), DAY, ["gpu1"], node="gpu1", **given).node == "gpu1"


def test_a_run_of_one_site_changes_no_list_of_another(tmp_path: Path) -> None:
    topology = hardware()
    plan = plan_of(topology)
    run = write_run(tmp_path / "runs" / plan.run, topology, plan, results_of(plan))
    (tmp_path / "other").mkdir()
    (tmp_path / "other/hosts.yml").write_text("gpu_servers:\n  hosts: {gpu1: }\n")
    with pytest.raises(UsageFault, match=r"is of site customer, and .*other/punch.yml is the list of site other"):
        update_list(tmp_path / "runs", str(run), tmp_path / "other", "A", None, lambda _: None)
    assert not (tmp_path / "other/punch.yml").exists()


def unit(name: str, *nodes: str, unchecked: tuple[str, ...] = ()) -> Unit:
    said = SumUnit(
        run=name, unit=name, day="2026-11-21", nodes=nodes, profile="training", headline="ACCEPTED: all pass", passed=3,
        waived=(), not_measured=(), points=(), last_day="2027-11-21",
        signers=(SumSigner(name="A", company="B", time="2026-11-21T12:00:00Z", key="SHA256:x"),), manifest_sha256="0",
    )  # fmt: skip
    verdict = VerdictDoc.model_construct(sign_off="ACCEPTED", outcome="passed", headline="all pass", points=())
    return Unit(path=name, site="s", fabric="roce100", toolkit="1", rules_sha256="r", answer="intact", why="",
                verdict=verdict, of=said, servers=(), unchecked=unchecked)  # fmt: skip


def test_a_sum_read_on_another_machine_or_with_another_inventory_is_checked_as_far_as_it_goes() -> None:
    units = (unit("rack1", "gpu1"), unit("rack2", "gpu2"))
    every = ["gpu1", "gpu2", "gpu3"]
    signed = sum_of(units, every)
    assert beside(signed, units, every) == beside(signed, units, every).__class__()
    for runs, declared in (
        (units, None),
        (units, ["gpu1", "gpu2", "gpu4"]),
        ((units[0], unit("rack2", "gpu2", unchecked=("x",))), every),
    ):
        found = beside(signed, runs, declared)
        assert (found.fault, bool(found.open)) == (False, True)
    assert any("gpu3" in words for words in beside(signed, units, None).open)


def test_a_sum_of_other_figures_or_without_a_sentence_of_its_runs_is_none_of_these_runs() -> None:
    units = (unit("rack1", "gpu1"), unit("rack2", "gpu2"))
    signed = sum_of(units, None)
    more = replace(units[0], of=units[0].of.model_copy(update={"passed": 4}))
    assert beside(signed, (more, units[1]), None).fault
    assert beside(signed.model_copy(update={"not_covered": signed.not_covered[1:]}), units, None).fault


def test_a_paper_without_a_last_day_says_so() -> None:
    good = SignatureCheck(file="signatures/1.txt", state="known", why="good")
    said = _lines(Verification(path="run", files=3, signatures=[good]))
    assert any(line.startswith("paper: names no last day") for line in said)


def test_signatures_that_were_taken_out_are_no_run_that_nobody_signed() -> None:
    assert any(
        "they were taken out, or signing was broken off" in line for line in _lines(Verification("run", files=3))
    )
    assert "signatures: none; nobody has signed this run" in _lines(Verification("run"))
