"""Witnessed tests: the list as data, a person led through it, broken off and gone on with, judged and signed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.site import lab, plan_of
from tests.support.witness_site import OWN, Change, Rack, run_with_tests, short_list
from toolkit import acceptance
from toolkit.errors import UsageFault
from toolkit.handover import senses, witness_list, witness_state, witnessing
from validation.measures.witness import plan as witness_plan
from validation.measures.witness import witnessed
from validation.model import CriterionVerdict
from validation.model.load import ConfigError, Source
from validation.model.witness import Sense
from validation.rules.witness import built_in, load_tests
from validation.run.read import read

GONE: Change = ("node", "gpu1", "", "silent")
BUILT_IN = ("psu-feed", "cable-out", "leaf-off", "node-off", "power-back")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witnessing, "STEADY_S", 0.0)
    monkeypatch.setattr(witnessing, "POLL_S", 0.01)
    monkeypatch.setattr(witness_plan, "built_in", short_list)


def good_rack() -> Rack:
    """All goes as it should: five tests of the built-in list, and the site's own."""
    answers: list[str | None] = ["C. Witness, Firm"]
    acts: list[list[Change]] = [[]]
    pairs: list[tuple[list[Change], list[Change]]] = [
        ([("bmc", "gpu1", "power supply 1", "Critical")], [("bmc", "gpu1", "power supply 1", "OK")]),
        ([("link", "gpu1", "fab0", "down")], [("link", "gpu1", "fab0", "up")]),
        ([("link", "gpu1", "fab0", "down"), ("link", "gpu2", "fab0", "down")],
         [("link", "gpu1", "fab0", "up"), ("link", "gpu2", "fab0", "up")]),
        ([GONE, ("slurm", "gpu1", "", "down")], [("node", "gpu1", "", "answers"), ("slurm", "gpu1", "", "serves")]),
        ([GONE], [("node", "gpu1", "", "answers")]),
        ([("bmc", "gpu2", "power supply 1", "Critical")], [("bmc", "gpu2", "power supply 1", "OK")]),
    ]  # fmt: skip
    for off, back in pairs:
        answers += ["", "", "as expected"]
        acts += [off, back, []]
    return Rack(answers, acts)


def judged(run_dir: Path) -> dict[str, CriterionVerdict]:
    return {c.id: c for c in acceptance.judge_run(run_dir).criteria if c.id.startswith("wt.")}


def test_the_built_in_list_is_planned_and_a_site_adds_its_own() -> None:
    assert tuple(test.id for test in built_in()) == BUILT_IN
    plan = plan_of(lab().model_copy(update={"witness": (OWN,)}), ("witness",))
    assert [m.params["test"] for m in plan.measurements] == [*BUILT_IN, "ups"]
    assert plan.measurements[0].params["do"] == "Pull one power cable of gpu1 (feed A)"
    assert (plan.measurements[2].params["node"], plan.measurements[5].params["node"]) == ("", "gpu2")


GOOD = """tests:
  - id: ups
    title: One UPS off
    do: Switch off UPS 1
    undo: Switch it on again
    loses: nothing
    seen_by: [bmc]
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.replace("title:", "titel:"), "witness.yml:3: tests.0.titel: unknown key; did you mean title?"),
        (GOOD.replace("    undo: Switch it on again\n", ""), "witness.yml:2: tests.0.undo: is missing; add it"),
        (GOOD + GOOD.partition("\n")[2], "witness.yml:8: tests.1.id: ups is the id of the test in line 2 already"),
        (GOOD.replace("ups", "psu-feed"), "witness.yml:2: tests.0.id: psu-feed is the id of a test of the built-in"),
        (GOOD + "    node: gpu9\n", "witness.yml:8: tests.0.node: the inventory has no node 'gpu9'; did you mean gpu"),
        (GOOD + "    of: site\n    node: gpu1\n", "witness.yml:9: tests.0.node: a test of the whole site is"),
        (GOOD.replace("One UPS off", "'  '"), "witness.yml:3: tests.0.title: is blank; write it out"),
        (GOOD.replace("One UPS off", "x" * 401), "witness.yml:3: tests.0.title: has 401 characters; 400 are the most"),
        (GOOD.replace("UPS 1", "UPS of {nod}"), "witness.yml:4: tests.0.do: has '{nod}'; {node} is all that is filled"),
        (GOOD.replace("UPS 1", "'UPS {'"), "witness.yml:4: tests.0.do: "),
        ("tests: 3\n", "witness.yml:1: tests: "),
    ],
)  # fmt: skip
def test_a_faulty_list_is_refused_in_one_sentence_with_its_line(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_tests(Source(Path("witness.yml"), text), ("gpu1", "gpu2"))
    assert str(refused.value).startswith(words)
    assert "\n" not in str(refused.value)


def test_a_person_is_led_through_the_list_and_all_of_it_is_measured(tmp_path: Path) -> None:
    run_dir, rack = run_with_tests(tmp_path, OWN), good_rack()
    listed = witness_list.lead_list(run_dir, rack.talk, rack.watching)
    assert (listed.measured, listed.left, listed.broken) == (6, 0, "")
    assert "Now: Pull one power cable of gpu1 (feed A). Press Enter when it is done (or write skip): " in rack.said
    assert "  nothing lost beyond the test; 6 nodes and links stayed" in rack.said
    assert not (run_dir / witness_state.FOLDER).exists()
    found = judged(run_dir)
    assert {id_: c.verdict for id_, c in found.items()} == {"wt.seen": "pass", "wt.lost": "pass", "wt.back": "pass"}
    assert [str(j.about) for j in found["wt.seen"].judgements] == [f"cluster, {t}" for t in (*BUILT_IN, "ups")]
    first = found["wt.seen"].judgements[0]
    assert first.reason.startswith("gpu1 power supply 1: Critical (bmc), seen after 0 s; witness C. Witness, Firm (as")
    leaf = found["wt.lost"].judgements[2]
    assert leaf.text == "gone with it: gpu1 fab0 (link), gpu2 fab0 (link); 4 nodes and links stayed"


def test_what_is_lost_beyond_the_test_what_is_not_seen_and_what_stays_away_fails(tmp_path: Path) -> None:
    answers = ["C. Witness", "", "", "", "", "", "", "skip", "no ladder", "skip", "", "skip", "x", "skip", "y"]
    acts = [[], [GONE], [("node", "gpu1", "", "answers")], [], [], [], []]
    run_dir, rack = run_with_tests(tmp_path, OWN), Rack(answers, acts)  # type: ignore[arg-type]
    assert witness_list.lead_list(run_dir, rack.talk, rack.watching).left == 4
    found = judged(run_dir)
    seen, lost, back = (found[f"wt.{name}"].judgements for name in ("seen", "lost", "back"))
    assert (seen[0].verdict, seen[0].reason_code, seen[1].verdict) == ("fail", "not-working", "fail")
    assert (lost[0].verdict, lost[0].text) == ("fail", "lost beyond the test: gpu1 (node)")
    assert (lost[1].verdict, back[0].verdict) == ("pass", "pass")
    assert (seen[2].verdict, "skipped by C. Witness: no ladder" in seen[2].reason) == ("not-measured", True)


def test_a_list_that_was_broken_off_says_at_which_step_and_goes_on_there(tmp_path: Path) -> None:
    run_dir = run_with_tests(tmp_path, OWN)
    rack = Rack(["C. Witness", "", None], [[], [("bmc", "gpu1", "power supply 1", "Critical")]])
    listed = witness_list.lead_list(run_dir, rack.talk, rack.watching)
    assert (listed.broken, listed.measured) == ("psu-feed", 0)
    first = judged(run_dir)["wt.seen"].judgements[0]
    assert (first.verdict, "broken off at step 3 of 5" in first.reason) == ("not-measured", True)
    again = good_rack()
    again.now["bmc", "gpu1", "power supply 1"] = "Critical"
    again.answers, again.acts = again.answers[2:], again.acts[2:]
    assert witness_list.lead_list(run_dir, again.talk, again.watching).measured == 6
    assert "going on with step 3 of 5 of this test" in again.said
    assert judged(run_dir)["wt.seen"].verdict == "pass"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ('{"witness": "A", "test": "psu', "state.json:1: not valid JSON"),
        ("", "state.json:1: not valid JSON"),
        ('{"test": "psu-feed", "step": 99}', "step"),
        ('{"test": "psu-feed", "step": 3}', "step 3 has no moment off_asked before it"),
        ('{"witness": "A", "test": "nix"}', "is at test 'nix', and the run has psu-feed, cable-out"),
    ],
)
def test_a_state_that_no_break_leaves_is_refused_with_the_way_on(tmp_path: Path, state: str, words: str) -> None:
    run_dir = run_with_tests(tmp_path, OWN)
    (run_dir / witness_state.FOLDER).mkdir()
    (run_dir / witness_state.FOLDER / witness_state.STATE).write_text(state)
    rack = good_rack()
    with pytest.raises(UsageFault) as refused:
        witness_list.lead_list(run_dir, rack.talk, rack.watching)
    assert words in str(refused.value)
    assert str(refused.value).endswith(f"; to begin this list again: rm -r {run_dir / witness_state.FOLDER}")


def test_a_record_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    run_dir, rack = run_with_tests(tmp_path, OWN), good_rack()
    (run_dir / witness_state.FOLDER).mkdir()
    (run_dir / witness_state.FOLDER / witness_state.STATE).write_text('{"witness": "A", "test": "psu-feed"}')
    (run_dir / witness_state.FOLDER / "psu-feed.jsonl").mkdir()
    with pytest.raises(UsageFault, match=r"psu-feed.jsonl: Is a directory; to begin this list again: rm -r "):
        witness_list.lead_list(run_dir, rack.talk, rack.watching)


def test_without_a_name_the_run_is_kept_and_the_way_on_is_said(tmp_path: Path) -> None:
    run_dir, rack = run_with_tests(tmp_path, OWN), Rack([None], [[]])
    with pytest.raises(UsageFault, match=f"go on with: toolkit handover witness {run_dir}"):
        witness_list.lead_list(run_dir, rack.talk, rack.watching)


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_killed_at_any_step_it_goes_on_with_that_step(tmp_path: Path, step: int) -> None:
    """The state is what a kill leaves: nothing is written after it, and the record's last line may be torn."""
    run_dir, rack = run_with_tests(tmp_path, OWN), good_rack()
    copy = tmp_path / "killed"
    kept = witness_state.Kept.write

    def killed(self: witness_state.Kept, state: witness_state.State) -> None:
        kept(self, state)
        if state.test == "cable-out" and state.step == step and not copy.exists():
            shutil.copytree(run_dir, copy)
            rest.append((list(rack.answers), list(rack.acts), dict(rack.now)))

    rest: list[tuple[list[str | None], list[Sequence[Change]], dict[tuple[Sense, str, str], str]]] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(witness_state.Kept, "write", killed)
        witness_list.lead_list(run_dir, rack.talk, rack.watching)
    with (copy / "witness/cable-out.jsonl").open("a") as record:
        record.write('{"at": 17')
    answers, acts, now = rest[0]
    later = Rack(answers, acts)
    later.now = now
    assert witness_list.lead_list(copy, later.talk, later.watching).measured == 6
    assert any("going on with step" in words for words in later.said) == (step > 1)
    assert judged(copy)["wt.seen"].verdict == "pass"


def test_what_happened_while_nobody_watched_is_not_measured() -> None:
    line = {"sense": "link", "node": "gpu1", "what": "fab0"}
    said = {
        "test": "cable-out", "node": "gpu1", "witness": "C", "remark": "",
        "times": {"off_asked": 1000, "off_done": 1010, "back_asked": 1300, "back_done": 1310, "ended": 1400},
        "watched": [(900, 1005), (1290, 1400)], "count": 3,
        "lines": [{**line, "at": 901, "value": "up"}, {**line, "at": 1291, "value": "down"},
                  {**line, "at": 1320, "value": "up"}],
    }  # fmt: skip
    params = dict(plan_of(lab(), ("witness",)).measurements[1].params)
    facts = witnessed.found_of(witnessed.Watched.model_validate(said), params)
    assert (facts.seen_gap, facts.back_gap, facts.back_s) == (True, False, 10.0)


def test_the_results_follow_from_the_raw_logs_and_a_changed_log_does_not(tmp_path: Path) -> None:
    run_dir, rack = run_with_tests(tmp_path, OWN), good_rack()
    witness_list.lead_list(run_dir, rack.talk, rack.watching)
    assert not any(id_.startswith("witness.") for id_ in read(run_dir).evidence(again=True).faults)
    (log,) = (run_dir / "raw/witness.psu-feed").glob("*.out")
    log.write_text(log.read_text().replace('"remark": "as expected"', '"remark": "all was fine"'))
    faults = read(run_dir).evidence(again=True).faults
    assert "changed" in faults["witness.psu-feed"], faults["witness.psu-feed"]


def test_words_of_a_nodes_shell_are_read_as_readings() -> None:
    assert [senses.slurm_word(word) for word in ("idle", "mixed#", "allocated", "idle*", "drained", "down")] == [
        "serves", "serves", "serves", "down", "drained", "down"
    ]  # fmt: skip
    script = senses.node_script(["fab0"], slurm=True)
    assert "/sys/class/net/fab0/carrier" in script
    assert "sinfo" in script
