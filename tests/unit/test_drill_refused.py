"""A fault with which a validation does not even begin is found where the refusal names the node and says why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from toolkit.lab import drill, drill_validation, drillplan, faults
from toolkit.lab.drill import Refused
from toolkit.lab.drillplan import Turn
from toolkit.lab.spec import LabSpec, make_spec

SAID = "error: fabric roce40 runs over RDMA (roce), which 1 of 2 nodes cannot do\n  {}: {}\n  what to do: install it"


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabSpec:
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path))
    return make_spec("x", 3, 4, 1, vms=True)


def refused(folder: Path, words: str) -> Refused:
    """What the command that validates raises where toolkit validate ends with 2 and says this."""
    with pytest.raises(Refused, match=r"ended with 2: .*what to do") as caught:
        drill_validation.run([sys.executable, "-c", f"print({words!r}); raise SystemExit(2)"], folder)
    return caught.value


@pytest.mark.parametrize(
    ("node", "why", "found", "cause", "blamed"),
    [
        ("gpu2", "no RDMA device", True, True, ()),
        ("gpu2", "no answer", True, False, ()),
        ("gpu1", "no RDMA device", False, False, ()),
    ],
)
def test_a_refusal_that_names_the_node_finds_its_fault(
    spec: LabSpec, tmp_path: Path, node: str, why: str, found: bool, cause: bool, blamed: tuple[str, ...]
) -> None:
    turn = Turn("turn-1", (("rxe-missing", spec.node("gpu2")),), ("preflight",))
    (one,) = drill.refused(spec, turn, refused(tmp_path, SAID.format(node, why)), 1.0)
    assert (one.found, one.localised, one.cause, one.blamed) == (found, cause, cause, blamed)
    assert (one.said if found else one.trouble).startswith(f"refused: {node}: {why}" if found else "toolkit validate")
    assert drill.passed([one]) is found
    assert ("| yes, refused | yes, refused |" in drill.table([one], {})) is cause


def test_a_refusal_that_names_others_too_blames_them(spec: LabSpec, tmp_path: Path) -> None:
    turn = Turn("turn-1", (("rxe-missing", spec.node("gpu2")),), ("preflight",))
    said = refused(tmp_path, SAID.format("gpu2", "no RDMA device\n  gpu1: no RDMA device"))
    (one,) = drill.refused(spec, turn, said, 1.0)
    assert one.blamed == ("gpu1",)
    assert "also blamed: gpu1: no RDMA device" in drill.told(one)
    assert not drill.passed([one])


def test_of_a_fault_that_is_none_to_refuse_a_refusal_says_nothing(
    spec: LabSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "plant", lambda lab, node, kind, say: None)
    monkeypatch.setattr(faults, "clear", lambda lab, node, say: None)
    fault = refused(tmp_path, SAID.format("gpu2", "no RDMA device"))

    def validate(turn: Turn, begun: object) -> None:
        raise fault

    planted = (("rxe-missing", spec.node("gpu2")), ("memlock-low", spec.node("gpu1")))
    done = drill.drill(spec, [Turn("turn-1", planted, ("preflight",))], validate, lambda text: None)  # type: ignore[arg-type]
    assert [(d.kind, d.refused, bool(d.trouble)) for d in done] == [
        ("rxe-missing", True, False), ("memlock-low", False, True),
    ]  # fmt: skip


def test_what_is_refused_is_planted_alone(spec: LabSpec) -> None:
    made = drillplan.turns(spec, ["memlock-low", "rxe-missing", "rocev1-gid"])
    assert [{kind for kind, _ in turn.planted} for turn in made if len(turn.planted) == 1] == [{"rxe-missing"}]
