"""Each fault of a lab's emulated GPUs, by the real probes on two nodes of four: found by its criteria and no other.

The probes load the emulated libcuda and libnvidia-ml, as in a lab, on this machine; no rate of these is judged.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from tests.support.engine_run import ROOT, built
from tests.support.gpu_health_case import read
from tests.support.site import CRITERIA, criterion, healthy, lab, plan_of, result, results_of, verdict_of
from toolkit.engine import build
from toolkit.lab import devices, faults
from toolkit.lab.drill import weighed
from toolkit.lab.drillplan import Turn
from toolkit.lab.gpufaults import GPU_FAULTS
from toolkit.lab.spec import make_spec
from validation.kinds import parse
from validation.measures.gpu.kinds import EMULATED
from validation.model import Measurement, Result, VerdictDoc

pytestmark = [
    pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}"),
    pytest.mark.engines,
]
NODES = ("gpu1", "gpu2")
JUDGED = ("pf.gpuhealth", "pf.nvlink", "tr.matrix")  # of emulated GPUs, whether they pass
IF_BAD = ("tr.clocks", "pf.fabric")  # of these, if they fail
LAST, BEFORE = "0000:1e:00.0", "0000:1d:00.0"
ASKED = {**EMULATED, "gpus": 4}
#: What names the GPU in the reason of the criterion that finds the fault.
NAMED = {
    "gpu-missing": "3 of 4 GPUs", "ecc": f"GPU 3 ({LAST}): 2 uncorrectable", "ecc-off": f"GPU 3 ({LAST}): ECC is off",
    "throttled": f"GPU 3 ({LAST}): the hardware lowers its clock", "pcie-x8": f"GPU 3 ({LAST}): its PCIe link has 8",
    "nvlink-missing": f"1 between {BEFORE} and {LAST}", "no-persistence": f"GPU 3 ({LAST}): persistence mode is off",
    "gpu-exclusive": f"GPU 3 ({LAST}): its compute mode is exclusive-process", "wrong-result": "its data were wrong",
    "gpu-illegal": "an empty kernel on GPU 3: ", "gpu-hang": "GPU 3 of CUDA: an empty kernel had not ended after 10 s",
    "slow-gpu": "GPU 3", "gpu-lost": "GPU 3", "gpu-xid": "GPU 3",
    "fabric-unready": f"GPU {LAST}: fabric state in progress",
}  # fmt: skip
NVLINK = "import json; from validation.measures.node import facts_probe; print(json.dumps(facts_probe.nvlink(0)))"


def say(environment: dict[str, str], *arguments: str) -> Any:
    """What a probe prints."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """kind of fault or None -> what the probes say of a node of the lab with it."""
    spec = make_spec("x", 4, 4, 1)

    @cache
    def of(kind: str | None) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("node")
        (folder / "gpus.json").write_text(devices.description(spec, spec.node("gpu1"), kind))
        environment = {
            **os.environ, "LD_LIBRARY_PATH": str(built() / "devices"),
            "ELASTIC_AI_EMULATED_GPUS": str(folder / "gpus.json"), "ELASTIC_AI_EMULATED_STATE": str(folder / "state"),
        }  # fmt: skip
        probes = ("-m", "validation.probes")
        return {
            "health": say(environment, *probes, "gpu-health", "{}"),
            "copies": say(environment, *probes, "gpu-copies", json.dumps(ASKED)),
            "nvlink": say(environment, "-c", NVLINK),
            "health after": say(environment, *probes, "gpu-health", "{}"),
        }

    return of


def verdict(first: dict[str, Any], second: dict[str, Any]) -> VerdictDoc:
    """Of a rehearsal whose nodes say these."""
    topology = lab(NODES, emulated_gpus=4)
    plan = plan_of(topology, ("preflight", "transport"))

    def said(m: Measurement) -> Result | None:
        of = second if m.nodes == ("gpu2",) else first
        if m.kind == "gpu-health":
            after = m.id.startswith("gpu-health-after")
            return read(m, of["health after" if after else "health"]["facts"], 5 if after else 0)
        if m.kind == "gpu-copies":
            samples, facts = parse("gpu-copies", of["copies"], m.params)
            return result(m, samples, facts=facts)
        return healthy(m, facts=of["nvlink"]) if m.kind == "facts" else None

    return verdict_of(topology, plan, results_of(plan, said))


def words(document: VerdictDoc, id_: str, node: str) -> str:
    """Why a criterion judged a node as it did; of a whole cluster, what it says of the node's parts."""
    found = criterion(document, id_).judgements
    return "; ".join(j.reason for j in found if str(j.subject).startswith(node) or node in j.reason)


def test_nothing_is_blamed_where_nothing_is_planted(probed: Any) -> None:
    document = verdict(probed(None), probed(None))
    assert {c.id for c in document.criteria if c.verdict == "fail"} == set()
    assert {id_: criterion(document, id_).verdict for id_ in JUDGED} == dict.fromkeys(JUDGED, "pass")
    assert "emulated" in words(document, "pf.nvlink", "gpu1")
    assert "below the median" not in criterion(document, "tr.uniform").reason


@pytest.mark.parametrize("kind", GPU_FAULTS)
def test_a_planted_fault_is_found_by_its_criteria_names_the_gpu_and_blames_nobody_else(probed: Any, kind: str) -> None:
    document = verdict(probed(None), probed(kind))
    failed = {c.id for c in document.criteria if c.verdict == "fail"}
    assert failed == set(GPU_FAULTS[kind].found_by) & {*JUDGED, *IF_BAD}
    for id_ in GPU_FAULTS[kind].found_by:
        named = "GPU 3" if id_ == "tr.clocks" else NAMED[kind]
        assert named in words(document, id_, "gpu2"), criterion(document, id_).reason
    for id_ in failed:
        found = {str(j.subject) for j in criterion(document, id_).judgements if j.verdict == "fail"}
        assert found == {"gpu2, GPU 3" if id_ == "tr.clocks" else "gpu2"}
    assert not [f for f in document.findings if "gpu1" in f.text]
    (one,) = weighed(Turn("turn-1", ((kind, make_spec("x", 4, 4, 1).node("gpu2")),), ()), document, 1.0)
    assert (one.found, one.localised, one.cause, one.blamed) == (True, True, True, ()), one


def test_wrong_data_are_of_the_last_gpu_alone(probed: Any) -> None:
    facts = parse("gpu-copies", probed("wrong-result")["copies"], ASKED)[1]  # type: ignore[arg-type]
    wrong = {(c.source, c.target) for c in facts.copies if c.fault}  # type: ignore[union-attr]
    assert (None, 3) in wrong
    alone = {(c.source, c.target) for c in facts.copies if c.fault and c.what != "scatter"}  # type: ignore[union-attr]
    assert all(3 in pair for pair in alone), "of one to all others each has the last among them"
    assert not [c for c in parse("gpu-copies", probed(None)["copies"], ASKED)[1].copies if c.fault]  # type: ignore


def test_a_slow_gpu_is_told_and_no_other(probed: Any) -> None:
    document = verdict(probed("slow-gpu"), probed("slow-gpu"))
    said = [j.reason for j in criterion(document, "tr.uniform").judgements if "below the median" in j.reason]
    assert any("inside GPU 3" in why for why in said)
    parts = [part for why in said for part in why.split("; ") if "below the median" in part]
    assert parts
    assert all("GPU 3" in part for part in parts), parts


def test_every_fault_names_criteria_that_there_are() -> None:
    known = {c.id for c in CRITERIA}
    for kind, fault in faults.FAULTS.items():
        assert set(fault.found_by) <= known, kind
    assert all(fault.found_by for fault in GPU_FAULTS.values())
    assert set(NAMED) == set(GPU_FAULTS)


def test_the_list_has_every_fault_with_who_finds_it() -> None:
    command = [sys.executable, "-m", "toolkit", "lab", "fault", "list"]
    wide = {key: value for key, value in os.environ.items() if key != "COLUMNS"}  # a line for each row
    plain = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=wide).stdout.splitlines()
    listed = json.loads(subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, check=True).stdout)
    assert [row["kind"] for row in listed["faults"]] == list(faults.FAULTS) == [line.split()[0] for line in plain[1:]]
    assert any(line.split()[:4] == ["nvlink-missing", "GPU", "servers", "pf.nvlink"] for line in plain)
    page = (ROOT / "docs/how-to/lab.md").read_text()
    assert [kind for kind in faults.FAULTS if f"`{kind}`" not in page] == []
