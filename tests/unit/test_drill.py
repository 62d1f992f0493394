"""The drill counts what a validation said of planted faults, and clears each whatever happens."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.site import judged, spoil
from toolkit.commands.lab import lab
from toolkit.errors import LabError
from toolkit.interruption import term_as_ctrl_c
from toolkit.lab import drill, drill_request, drill_validation, drillplan, faults
from toolkit.lab.drill import Drilled
from toolkit.lab.drillplan import Turn
from toolkit.lab.spec import LabSpec, make_spec
from validation.run.catalogue import load_criteria

CLEAN = judged(lambda m: None)
SLOW = judged(spoil("tcp-bandwidth", lambda a, b: "gpu2" in (a, b), 0.0985))
SENDING = judged(spoil("tcp-bandwidth", lambda a, b: a == "gpu2", 0.0985))
LINK = judged(spoil("tcp-bandwidth", lambda a, b: {a, b} == {"gpu1", "gpu2"}, 0.0985))
ALL = judged(spoil("tcp-bandwidth", lambda a, b: True, 0.0985))


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabSpec:
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path))
    return make_spec("x", 3, 4, 1)


@pytest.fixture
def acts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """What was planted and cleared."""
    done: list[tuple[str, str, str]] = []
    monkeypatch.setattr(faults, "plant", lambda lab, node, kind, say: done.append(("plant", node, kind)))
    monkeypatch.setattr(faults, "clear", lambda lab, node, say: done.append(("clear", node, "")))
    return done


def turn(spec: LabSpec, *planted: tuple[str, str], suites: tuple[str, ...] = ("preflight", "transport")) -> Turn:
    return Turn("turn-1", tuple((kind, spec.node(node)) for kind, node in planted), suites)


@pytest.mark.parametrize(
    ("kind", "node", "verdict", "found", "localised", "cause", "blamed"),
    [
        ("slow-link", "gpu2", SLOW, True, True, True, 0),
        ("slow-sending", "gpu2", SENDING, True, True, True, 0),
        ("slow-sending", "gpu2", SLOW, True, True, False, 0),  # the direction was not seen
        ("slow-link", "gpu2", LINK, True, False, True, 0),  # the link, and not its end
        ("slow-link", "gpu2", CLEAN, False, False, False, 0),
        ("slow-link", "gpu1", SLOW, True, False, False, 1),  # its criterion failed, and another node was named
        ("slow-link", "gpu2", ALL, True, False, False, 0),
        ("ecc", "gpu2", SLOW, True, False, False, 0),  # the node was named for something else, and no GPU
        ("slow-gpu", "gpu2", SLOW, False, False, False, 0),
        ("", "", CLEAN, False, False, False, 0),
        ("", "", SLOW, False, False, False, 1),
        ("", "", ALL, False, False, False, 1),
    ],
)
def test_what_a_verdict_says_of_a_fault(spec, kind, node, verdict, found, localised, cause, blamed):
    (one,) = drill.weighed(turn(spec, (kind, node)) if kind else turn(spec), verdict, 1.0)
    assert (one.found, one.localised, one.cause, len(one.blamed)) == (found, localised, cause, blamed)
    reasons = [f"{f.subject}: {f.text}" for f in verdict.findings]
    assert not blamed or "; ".join(reasons) in drill.told(one), "with what is said of who was blamed"


def test_a_node_whose_fault_another_ones_is_too_is_not_blamed_for_nothing(spec):
    slow = judged(lambda m: spoil("tcp-bandwidth", lambda a, b: "gpu2" in (a, b), 0.0985)(m))
    planted = turn(spec, ("cables-crossed", "gpu1"))
    assert drill.weighed(planted, slow, 1.0)[0].blamed
    assert drill.weighed(planted, slow, 1.0, ["gpu2"])[0].blamed == ()


def test_several_faults_of_a_turn_are_weighed_each_by_its_own_node(spec):
    both = judged(lambda m: spoil("tcp-bandwidth", lambda a, b: "gpu2" in (a, b), 0.0985)(m))
    done = drill.weighed(turn(spec, ("slow-link", "gpu2"), ("lossy-link", "gpu1")), both, 1.0)
    assert [(d.kind, d.found, d.localised) for d in done] == [("slow-link", True, True), ("lossy-link", False, False)]
    assert [d.blamed for d in done] == [(), ()]
    done = drill.weighed(turn(spec, ("ecc", "gpu1"), ("lossy-link", "client1")), both, 1.0)
    assert [d.blamed for d in done] == [("gpu2/fab0",), ()]  # told once


def test_clean_runs_first_then_each_fault_is_planted_and_cleared(spec, acts):
    asked: list[str] = []
    said: list[str] = []
    kept: list[Drilled] = []

    def validate(turn, begun):
        asked.append(turn.words)
        acts.append(("validate", turn.words, ""))
        return SLOW if "slow" in turn.words else CLEAN

    turns = [drillplan.clean(1, ("preflight",)), *drillplan.turns(spec, ["slow-link", "few-files"], alone=True)]
    done = drill.drill(spec, turns, validate, said.append, kept.extend)
    assert asked == ["clean", "few-files on gpu2", "slow-link on gpu2"]
    assert [a[0] for a in acts] == ["validate", *("plant", "validate", "clear") * 2]
    assert [d.found for d in done] == [False, False, True]
    assert kept == done
    assert said[0] == "[1 of 3, 0 min] clean: preflight"
    assert said[2].startswith("[2 of 3, 0 min, about 0 min left] few-files on gpu2: preflight, as-built")
    assert "1 of 2 found, 1 localised, 1 with their cause; 0 of 2 runs with faults and 0 of 1 clean" in (
        drill.summary(done)
    )
    assert not drill.passed(done)
    assert drill.passed([done[0], done[2]])


def test_faults_are_cleared_when_the_validation_comes_to_nothing(spec, acts):
    def fails(turn, begun):
        raise LabError("no route to host")

    both = [turn(spec, ("slow-link", "gpu2"), ("ecc", "gpu1"))]
    done = drill.drill(spec, both, fails, lambda text: None)
    assert [d.trouble for d in done] == ["no route to host"] * 2
    assert "no verdict" in drill.told(done[0])
    assert not drill.passed(done)
    assert "2 without a verdict" in drill.summary(done)

    def interrupted(turn, begun):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drill.drill(spec, both, interrupted, lambda text: None)
    assert [a[0] for a in acts] == ["plant", "plant", "clear", "clear"] * 2


def test_what_is_interrupted_while_it_is_planted_is_cleared_too(spec, acts, monkeypatch):
    def plant(lab, node, kind, say):
        if node == "gpu1":
            raise KeyboardInterrupt

    monkeypatch.setattr(faults, "plant", plant)
    with pytest.raises(KeyboardInterrupt):
        drill.drill(spec, [turn(spec, ("ecc", "gpu2"), ("ecc", "gpu1"))], lambda t, b: CLEAN, lambda text: None)
    assert [a[1] for a in acts] == ["gpu2", "gpu1"]


def test_a_fault_that_cannot_be_planted_costs_only_itself(spec, acts, monkeypatch):
    plant = faults.plant

    def fails(lab, node, kind, say):
        if kind == "docker-stopped":
            raise LabError("no docker here")
        plant(lab, node, kind, say)

    monkeypatch.setattr(faults, "plant", fails)
    both = [turn(spec, ("docker-stopped", "gpu1"), ("slow-link", "gpu2"))]
    done = {d.kind: d for d in drill.drill(spec, both, lambda t, b: SLOW, lambda text: None)}
    assert done["slow-link"].found
    assert done["docker-stopped"].trouble == "it could not be planted: no docker here"
    asked = []
    alone = [turn(spec, ("docker-stopped", "gpu1"))]
    done = {d.kind: d for d in drill.drill(spec, alone, lambda t, b: asked.append(t), lambda text: None)}
    assert not asked  # nothing is there to be found
    assert done["docker-stopped"].trouble


def test_what_cannot_be_cleared_is_said_after_the_rest_is_cleared(spec, acts, monkeypatch):
    def fails(lab, node, say):
        acts.append(("clear", node, ""))
        if node == "gpu2":
            raise LabError("no ssh")

    monkeypatch.setattr(faults, "clear", fails)
    with pytest.raises(LabError, match="not cleared: gpu2: no ssh"):
        drill.drill(spec, [turn(spec, ("slow-link", "gpu2"), ("ecc", "gpu1"))], lambda t, b: SLOW, lambda text: None)
    assert [a[1] for a in acts if a[0] == "clear"] == ["gpu2", "gpu1"]


def test_the_load_of_the_machine_and_the_time_stand_with_each_fault(spec, acts, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (17.26, 3.0, 1.0))
    (one,) = drill.drill(spec, [turn(spec, ("slow-link", "gpu2"))], lambda t, b: SLOW, lambda text: None)
    assert one.load == 17.3
    assert "| 17.3 |" in drill.table([one], {})


def test_a_node_dies_when_the_first_results_are_there(spec, acts):
    def validate(turn, begun):
        acts.append(("begun", "", ""))
        begun()
        return CLEAN

    drill.drill(spec, drillplan.turns(spec, ["dead-node"]), validate, lambda text: None)
    assert [a[0] for a in acts] == ["begun", "plant", "clear"]


# --- what is planted at once ------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [4, 6, 8, 12])
def test_faults_of_a_turn_cannot_hide_each_other(spec, nodes):
    lab = make_spec("y", 3, nodes, 1, bmc=True, switch=True, storage=True)
    turns = drillplan.turns(lab, faults.FAULTS)
    planted = [kind for one in turns for kind, _ in one.planted]
    assert sorted(planted) == sorted(k for k in faults.FAULTS if drillplan.candidates(lab, k))
    assert len(planted) == sum(not fault.vm_only for fault in faults.FAULTS.values())
    servers = {n.name for n in lab.nodes if n.group == "gpu_servers"}
    for one in turns:
        names = [node.name for _, node in one.planted]
        assert len(set(names)) == len(names)
        assert "head" not in names
        ports = [node for kind, node in one.planted if kind in drillplan.AT_PORT]
        assert len(ports) < nodes / 2
        assert len(servers - set(names)) >= (len(servers) > 2)
        assert all(set(drillplan.suites_of(kind)) <= set(one.suites) for kind, _ in one.planted)
        if drillplan.ALONE & {kind for kind, _ in one.planted}:
            assert len(one.planted) == 1
        for kind, node in one.planted:
            if kind in ("duplicate-address", "cables-crossed"):
                assert faults.twin(lab, node).name not in names
    if nodes == 8:
        assert len(turns) <= 11


def test_each_fault_is_looked_for_in_the_suites_that_find_it(spec):
    assert drillplan.suites_of("ecc") == ("preflight",)
    assert drillplan.suites_of("few-files") == ("preflight", "as-built")
    assert drillplan.suites_of("cable-swapped") == ("preflight",)
    assert drillplan.suites_of("flapping-port") == ("preflight", "transport")
    assert all(f.found_by for kind, f in faults.FAULTS.items() if kind != "dead-node")


def test_a_narrow_validation_has_what_finds_its_faults_and_leaves_the_rest_out(spec):
    criteria = {c.id: c for c in load_criteria()}
    both = turn(spec, ("lossy-link", "gpu2"), ("ecc", "gpu1"))
    out = set(drillplan.without(both, narrow=True))
    measured = {c.kind for c in criteria.values() if c.suite in both.suites and c.id not in out}
    assert measured == {"facts", "tcp-bandwidth", "gpu-health"}
    assert {criteria[id_].suite for id_ in out} == {"preflight", "transport", "as-built"}  # pf.converged alone of that
    assert drillplan.without(both, narrow=False) == drillplan.WITHOUT
    for one in drillplan.turns(spec, faults.FAULTS):
        needed = {id_ for kind, _ in one.planted for id_ in faults.FAULTS[kind].found_by}
        assert not needed & set(drillplan.without(one, narrow=True)), one.words
    clean = drillplan.clean(1, drill_request.CLEAN)
    out = set(drillplan.without(clean, narrow=True))
    measured = {c.kind for c in criteria.values() if c.suite in clean.suites and c.id not in out}
    assert {"facts", "tcp-bandwidth", "gpu-health", "gpu-copies", "path-mtu"} < measured
    assert not {"tcp-latency", "incast"} & measured


def test_faults_that_no_node_can_have_are_left_out(spec):
    chosen = {kind: node for one in drillplan.turns(spec, faults.FAULTS) for kind, node in one.planted}
    assert chosen["dead-node"].name == "gpu2"
    assert "port-down" not in chosen  # of machines alone
    assert drill_request.why_not(spec, "port-down") == "needs a virtual machine"
    assert drill_request.why_not(spec, "ipmi-on") == "needs a BMC (lab up --bmc)"
    assert drill_request.why_not(spec, "cables-crossed") == "needs a switch (lab up --switch)"
    assert drill_request.why_not(spec, "storage-slow") == "needs a storage (lab up --storage, containers)"
    machines = make_spec("y", 3, 4, 1, vms=True, bmc=True, switch=True)
    of_machines = {kind for kind, fault in faults.FAULTS.items() if not fault.storage}
    assert {k for t in drillplan.turns(machines, faults.FAULTS) for k, _ in t.planted} == of_machines


def test_the_short_drill_and_its_words_are_of_faults_that_there_are(spec):
    assert len(drillplan.SHORT) == 10
    for kinds in (drillplan.SHORT, drillplan.AT_PORT, drillplan.ALONE, drillplan.BESIDES, drill.WORDS, drill.TOLD):
        assert not set(kinds) - set(faults.FAULTS)
    assert sum(len(t.planted) for t in drillplan.turns(spec, drillplan.SHORT)) == 10


def test_a_line_a_false_alarm_and_the_table(spec):
    (one,) = drill.weighed(turn(spec, ("slow-link", "gpu2")), SLOW, 1.0)
    line = drill.told(one)
    assert "found, localised, cause named" in line
    assert "gpu2/fab0" in line
    (alarm,) = drill.weighed(drillplan.clean(1, ()), SLOW, 1.0)
    assert "false alarm: gpu2/fab0" in drill.told(alarm)
    (quiet,) = drill.weighed(drillplan.clean(2, ()), CLEAN, 1.0)
    assert "no alarm" in drill.told(quiet)
    text = drill.table([one, alarm, quiet], {"port-down": "needs a virtual machine"})
    assert "| turn-1 | `slow-link` | gpu2 | yes | yes | yes | nobody | 1 | 0 |" in text
    assert "| clean-1 | none |  |  |  |  | gpu2/fab0 | 1 | 0 |" in text
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1
    assert "1 of 1 found" in text
    assert "0 of 1 run with faults and 1 of 2 clean ones" in text
    assert "Not planted: `port-down` (needs a virtual machine)" in text


def test_the_newest_run_is_read_and_none_is_an_error(tmp_path):
    with pytest.raises(LabError, match="no run"):
        drill.newest(tmp_path)
    run = tmp_path / "2026-11-21T10-00-00Z-tcp10"
    run.mkdir()
    (run / "run.json").write_text("{}")
    with pytest.raises(LabError, match="no verdict"):
        drill.newest(tmp_path)
    (run / "verdict.json").write_text(SLOW.model_dump_json())
    assert drill.newest(tmp_path) == SLOW


# --- the command ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [2, 70])
def test_a_validation_that_ends_early_is_no_verdict(tmp_path, code):
    script = f"import sys; print('one'); print('no such file', file=sys.stderr); sys.exit({code})"
    with pytest.raises(LabError, match=f"ended with {code}: no such file"):
        drill_validation.run([sys.executable, "-c", script], tmp_path)
    with pytest.raises(LabError, match="ended with -9"):
        drill_validation.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], tmp_path)


def test_the_first_results_are_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(drill_validation, "LOOK_S", 0.02)
    results = tmp_path / "run/results.jsonl"
    script = f"import pathlib, time; p = pathlib.Path({str(results)!r}); p.parent.mkdir(); p.write_text('x')\n"
    script += f"while not pathlib.Path({str(tmp_path / 'seen')!r}).exists(): time.sleep(0.02)"
    seen: list[bool] = []

    def begun():
        seen.append(results.exists())
        (tmp_path / "seen").touch()

    with pytest.raises(LabError, match="no run"):
        drill_validation.run([sys.executable, "-c", script], tmp_path, begun)
    assert seen == [True]


def test_ctrl_c_and_term_end_the_validation_first(tmp_path):
    ready = tmp_path / "ready"
    script = f"import pathlib, time\ntry: pathlib.Path({str(ready)!r}).touch(), time.sleep(60)\n"
    script += f"except KeyboardInterrupt: pathlib.Path({str(tmp_path / 'ended')!r}).touch()"

    def term():
        while not ready.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=term)
    with term_as_ctrl_c():
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            drill_validation.run([sys.executable, "-c", script], tmp_path)
    thread.join()
    assert (tmp_path / "ended").exists()


@pytest.fixture
def commands(spec, acts, monkeypatch) -> list[list[str]]:
    """The validations that the command asked for; those of slow links say so."""
    monkeypatch.setattr(drill_request, "become_root", lambda: None)
    monkeypatch.setattr(drill_request, "load", lambda name: spec)
    found: list[list[str]] = []

    def run(words, folder, begun):
        found.append(words)
        folder.mkdir(parents=True)
        return SLOW if ("plant", "gpu2", "slow-link") in acts[-1:] else CLEAN

    monkeypatch.setattr(drill_validation, "run", run)
    return found


def drilled(*words: str, code: int = 0):
    done = CliRunner().invoke(lab, ["drill", *map(str, words)])
    assert done.exit_code == code, done.output
    return done.output


def test_the_command_drills_and_fails_where_a_fault_was_missed(commands, tmp_path):
    said = drilled("--fault", "lossy-link", "--out", tmp_path, code=1)
    assert "0 of 1 found" in said
    assert [c.count("--suite") for c in commands] == [3, 2]
    assert all(c[c.index("--without") + 1] == "pf.converged" for c in commands)
    assert "lossy-link" in (tmp_path / "drill.md").read_text()
    said = drilled("--fault", "slow-link", "--clean", "0", "--narrow", "--out", tmp_path, "--json", code=1)
    assert '"summary": "1 of 2 found' in said  # with what was there before
    assert "tr.netlat" in commands[-1]
    assert "tr.tcpbw" not in commands[-1]
    assert all("tr.netlat" not in words for words in commands[:-1])
    assert CliRunner().invoke(lab, ["drill", "--all", "--fault", "ecc"]).exit_code != 0


def test_what_is_done_is_not_done_again_unless_it_is_asked_for(commands, tmp_path):
    drilled("--fault", "slow-link", "--out", tmp_path)
    assert len(commands) == 2
    drilled("--fault", "slow-link", "--fault", "few-files", "--out", tmp_path, code=1)
    assert len(commands) == 3
    assert {p.name for p in tmp_path.iterdir() if p.is_dir()} == {"clean-1", "turn-1", "turn-2"}
    said = drilled("--fault", "slow-link", "--out", tmp_path, "--anew", "--clean", "0")
    assert len(commands) == 4
    assert "1 of 1 found" in said
    (tmp_path / "drill.json").write_text(json.dumps({"lab": "other", "drilled": []}))
    for text, words in ((None, "is of lab 'other'"), ("{", "not written by a drill")):
        (tmp_path / "drill.json").write_text(text or (tmp_path / "drill.json").read_text())
        done = CliRunner().invoke(lab, ["drill", "--fault", "slow-link", "--out", str(tmp_path)])
        assert isinstance(done.exception, LabError)
        assert words in str(done.exception)


def test_clean_alone_plants_nothing(commands, acts, tmp_path):
    said = drilled("--clean", "3", "--out", tmp_path)
    assert len(commands) == 3
    assert not acts
    assert "0 of 3 clean ones with a false alarm" in said
    drilled("--clean", "5", "--out", tmp_path)
    assert len(commands) == 5


def test_ctrl_c_keeps_what_is_done(commands, acts, tmp_path, monkeypatch):
    def run(words, folder, begun):
        folder.mkdir(parents=True)
        if acts:
            raise KeyboardInterrupt
        return CLEAN

    monkeypatch.setattr(drill_validation, "run", run)
    said = drilled("--fault", "slow-link", "--out", tmp_path, code=130)
    assert "what was planted is cleared" in said
    assert [a[0] for a in acts] == ["plant", "clear"]
    assert [one["turn"] for one in json.loads((tmp_path / "drill.json").read_text())["drilled"]] == ["clean-1"]


def test_median_of_no_run():
    assert "0 of 0 found" in drill.summary([])
    assert Drilled("", "", False, False, False, (), "", 1.0).trouble == ""


@pytest.mark.parametrize("kind", sorted(drill.WORDS))
def test_the_words_of_a_cause_are_words_that_the_toolkit_has(kind: str) -> None:
    """A sentence that is worded anew would leave its drill without a named cause."""
    root = Path(drill.__file__).parents[2]
    ours = Path(drill.__file__)
    files = [path for folder in ("validation", "toolkit") for path in (root / folder).rglob("*.py") if path != ours]
    text = "\n".join(path.read_text() for path in files)
    for word in drill.WORDS[kind]:
        head, colon, _ = word.partition(": ")  # what comes behind a colon is filled in
        assert word in text or (colon and f"{head}: {{" in text), word
