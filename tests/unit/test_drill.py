"""The drill counts what a validation said of planted faults, and clears each whatever happens."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.site import judged, spoil
from toolkit.commands import lab_drill
from toolkit.commands.lab import lab
from toolkit.errors import LabError
from toolkit.lab import drill, faults
from toolkit.lab.drill import Drilled
from toolkit.lab.spec import LabSpec, make_spec

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
        ("ecc", "gpu2", SLOW, True, True, False, 0),
        ("", "", CLEAN, False, False, False, 0),
        ("", "", SLOW, False, False, False, 1),
        ("", "", ALL, False, False, False, 1),
    ],
)
def test_what_a_verdict_says_of_a_fault(kind, node, verdict, found, localised, cause, blamed):
    one = drill.weighed(kind, node, verdict, 1.0)
    assert (one.found, one.localised, one.cause, len(one.blamed)) == (found, localised, cause, blamed)


def test_clean_runs_first_then_each_fault_is_planted_and_cleared(spec, acts):
    asked: list[str] = []

    def validate(name):
        asked.append(name)
        acts.append(("validate", name, ""))
        return SLOW if "slow" in name else CLEAN

    chosen = drill.suitable(spec, ["slow-link", "few-files"])
    done = drill.drill(spec, chosen, 2, validate, lambda text: None)
    assert asked == ["clean-1", "clean-2", "slow-link-gpu2", "few-files-gpu2"]
    assert [a[0] for a in acts] == ["validate", "validate", *("plant", "validate", "clear") * 2]
    assert [d.found for d in done] == [False, False, True, False]
    assert "1 of 2 found, 1 localised, 1 with their cause; 0 of 4 runs with a false alarm (0 of 2 clean" in (
        drill.summary(done)
    )
    assert not drill.passed(done)
    assert drill.passed(done[:3])


def test_a_fault_is_cleared_when_the_validation_comes_to_nothing(spec, acts):
    def fails(name):
        raise LabError("no route to host")

    (one,) = drill.drill(spec, drill.suitable(spec, ["slow-link"]), 0, fails, lambda text: None)
    assert one.trouble == "no route to host"
    assert "no verdict" in drill.told(one)
    assert not drill.passed([one])
    assert "1 without a verdict" in drill.summary([one])

    def interrupted(name):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drill.drill(spec, drill.suitable(spec, ["slow-link"]), 0, interrupted, lambda text: None)
    assert [a[0] for a in acts] == ["plant", "clear"] * 2


def test_faults_that_no_node_can_have_are_left_out(spec):
    chosen = dict(drill.suitable(spec, faults.FAULTS))
    assert chosen["gpu-missing"].name == "gpu2"
    assert "port-down" not in chosen  # of machines alone
    machines = dict(drill.suitable(make_spec("y", 3, 4, 1, vms=True), faults.FAULTS))
    assert set(machines) == set(faults.FAULTS)


def test_the_short_drill_and_its_words_are_of_faults_that_there_are(spec):
    assert len(drill.SHORT) == 10
    for kinds in (drill.SHORT, drill.AT_PORT, drill.WORDS):
        assert not set(kinds) - set(faults.FAULTS)
    assert len(drill.suitable(spec, drill.SHORT)) == 10
    assert all(faults.FAULTS[kind].found_by for kind in drill.SHORT if kind != "cable-swapped")


def test_a_line_and_a_false_alarm():
    line = drill.told(drill.weighed("slow-link", "gpu2", SLOW, 1.0))
    assert "found, localised, cause named" in line
    assert "gpu2/fab0" in line
    assert "false alarm: gpu2/fab0" in drill.told(drill.weighed("", "", SLOW, 1.0))
    assert "no alarm" in drill.told(drill.weighed("", "", CLEAN, 1.0))


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


@pytest.mark.parametrize(("code", "words"), [(2, "no such file"), (70, "no such file"), (-9, "no such file")])
def test_a_validation_that_ends_early_is_no_verdict(tmp_path, monkeypatch, code, words):
    ended = subprocess.CompletedProcess([], code, "", f"one\n{words}\n")
    monkeypatch.setattr(lab_drill.subprocess, "run", lambda *_, **__: ended)
    with pytest.raises(LabError, match=words):
        lab_drill.run(["x"], tmp_path)


def test_the_command_drills_and_fails_where_a_fault_was_missed(spec, acts, monkeypatch, tmp_path):
    monkeypatch.setattr(lab_drill, "become_root", lambda: None)
    monkeypatch.setattr(lab_drill, "load", lambda name: spec)
    commands: list[list[str]] = []
    monkeypatch.setattr(lab_drill, "run", lambda words, folder: commands.append(words) or CLEAN)
    words = ["drill", "--fault", "slow-link", "--clean", "1", "--out", str(tmp_path), "--suite", "transport"]
    done = CliRunner().invoke(lab, words)
    assert done.exit_code == 1
    assert "0 of 1 found" in done.output
    assert [c[c.index("--suite") + 1] for c in commands] == ["transport", "transport"]
    monkeypatch.setattr(lab_drill, "run", lambda words, folder: SLOW if "slow" in folder.name else CLEAN)
    done = CliRunner().invoke(lab, [*words, "--json"])
    assert done.exit_code == 0
    assert '"summary": "1 of 1 found' in done.output
    assert CliRunner().invoke(lab, ["drill", "--all", "--fault", "ecc"]).exit_code != 0


def test_median_of_no_run():
    assert "0 of 0 found" in drill.summary([])
    assert Drilled("", "", False, False, False, (), "", 1.0).trouble == ""
