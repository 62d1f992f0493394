"""DCGM's diagnostic, versions 3 and 4: each status told apart, what is no clean pass is a remark.

The reports are constructed after those that NVIDIA/DCGM prints (nvvs/include/NvvsCommon.h and its tests); none was made
on a GPU.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import BOM, REAL_FACTS, criterion, hardware, lab, plan_of, result, results_of, verdict_of
from tests.support.tool_documents import doc
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.gpu import dcgm_diag_probe
from validation.measures.gpu.dcgm import DcgmFacts
from validation.model import Judgement, Measurement, Result

DATA = Path(__file__).parents[1] / "data/dcgm"
SITE = hardware(("gpu1",), bom=BOM.model_copy(update={"gpu_count": 2, "gpu_model": "H100"}))
Report = dict[str, Any]


def three(*results: Report, root: str = "DCGM GPU Diagnostic", **more: Any) -> Report:
    """A report of DCGM 3: deployment of all GPUs at once, then one test of each."""
    deployed = {"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "PASS"}]}
    memory = {"name": "Memory", "results": list(results)}
    tests = [{"category": "Deployment", "tests": [deployed, None]}, {"category": "Hardware", "tests": [memory]}]
    return {root: {"test_categories": tests, "version": "3.3.5", **more}}


def four(*results: Report, summary: Report | None = None) -> Report:
    """A report of DCGM 4: each result names an entity, and each test has a summary."""
    of = [{"entity_group": "GPU", "entity_group_id": 1, "entity_id": n, **one} for n, one in enumerate(results)]
    memory = {"name": "memory", "results": of, "test_summary": summary or {"status": "Pass"}}
    metadata = {"version": "4.5.3", "Driver Version Detected": "580.159.03"}
    return {"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [memory]}]}, "metadata": metadata}


def gpu(number: int, status: str = "Pass", **more: Any) -> Report:
    return {"gpu_ids": str(number), "status": status, **more}


def document(report: Report | str, returncode: int = 0, level: int = 2, said: str = "") -> Any:
    text = report if isinstance(report, str) else "WARNING: printed before it\n" + json.dumps(report)
    return doc("dcgm-diag", text, {"level": level, "returncode": returncode, "said": said}, tool="DCGM")


def judged(report: Report | str, returncode: int = 0) -> Judgement:
    plan = plan_of(SITE, ("preflight", "compute"))

    def spoil(m: Measurement) -> Result | None:
        if m.kind == "dcgm-diag":
            samples, facts = parse(m.kind, document(report, returncode), m.params)
            return result(m, samples, facts=facts)
        return None if m.kind in ("facts", "gpu-health") else result(m, status="failed", error="not of interest")

    verdict = verdict_of(SITE, plan, results_of(plan, spoil, facts=REAL_FACTS))
    [mine] = criterion(verdict, "co.dcgm").judgements
    return mine


FINE = {"status": "Pass"}
ALLOC = "DCGM_FR_MEMORY_ALLOC: could not allocate"


@pytest.mark.parametrize(
    ("report", "code", "said"),
    [
        (three(gpu(0), gpu(1)), "within-bounds", "which is no acceptance by itself"),
        (four(FINE, FINE), "within-bounds", "DCGM's own tests of level 2 passed (memory)"),
        (three(gpu(0), gpu(1, "FAIL", warnings=["a row failed"])), "not-working", "Memory, GPU 1: a row failed"),
        (
            four(FINE, {"status": "Fail", "warnings": [{"warning": "a row\n failed", "error_id": 29}]}),
            "not-working",
            "memory, GPU 1: a row failed",
        ),
        (four(FINE, FINE, summary={"status": "Fail"}), "not-working", "memory"),
        (three(gpu(0), gpu(1, "SKIPPED", info=["not allowed on this SKU"])), "remarked", "GPU 1: not allowed on"),
        (four(FINE, {"status": "Skip"}), "remarked", "not run: memory, GPU 1"),
        (four({"status": "Not Run"}, FINE), "remarked", "not run: memory, GPU 0"),
        (four(*[{"status": "Skip"}] * 2, summary={"status": "Skip"}), "reported", "no test of DCGM passed or failed"),
        (four(FINE, {**FINE, "warnings": [{"warning": ALLOC}]}), "remarked", f"same: memory, GPU 1: {ALLOC}"),
        (four(FINE, FINE, summary={**FINE, "warnings": [ALLOC]}), "remarked", "an error all the same: memory:"),
        (three(gpu(0), gpu(1, "WARN", warnings="too warm")), "remarked", "warned: Memory, GPU 1: too warm"),
        (four(FINE), "remarked", "it names 1 of 2 GPUs"),
        (three(gpu(0), gpu(1), runtime_error="the host engine went away"), "remarked", "the host engine went away"),
    ],
)  # fmt: skip
def test_every_status_is_told_apart(report: Report, code: str, said: str) -> None:
    found = judged(report)
    assert (found.reason_code, said in found.reason) == (code, True), found.reason
    of = {"not-working": "fail", "reported": "not-applicable"}
    assert found.verdict == of.get(code, "pass")


def test_an_exit_status_that_no_test_explains_is_a_remark() -> None:
    found = judged(four(FINE, FINE), 226)
    assert (found.reason_code, "exit status 226, which no test explains" in found.reason) == ("remarked", True)
    assert judged(four(FINE, {"status": "Fail"}), 226).verdict == "fail"


@pytest.mark.parametrize("said", ["dcgmi is not installed on this node", "Error: unable to connect to the host engine"])
def test_a_node_where_dcgm_says_nothing_withholds_no_acceptance(said: str) -> None:
    def spoil(m: Measurement) -> Result | None:
        if m.kind != "dcgm-diag":
            return None
        samples, facts = parse(m.kind, document("", 127, said=said), m.params)
        return result(m, samples, facts=facts)

    plan = plan_of(SITE, ("preflight", "compute"))
    few = tuple(m for m in plan.measurements if m.suite == "preflight" or m.kind == "dcgm-diag")
    rounds = tuple(one for one in plan.rounds if set(one) <= {m.id for m in few})
    plan = plan.model_copy(update={"measurements": few, "rounds": rounds})
    found = verdict_of(SITE, plan, results_of(plan, spoil, facts=REAL_FACTS))
    [mine] = criterion(found, "co.dcgm").judgements
    assert (mine.verdict, mine.reason) == ("not-applicable", f"DCGM said nothing of this node: {said}")
    without = plan.model_copy(update={"measurements": tuple(m for m in few if m.kind != "dcgm-diag")})
    plain = verdict_of(SITE, without, results_of(without, None, facts=REAL_FACTS))
    assert (found.sign_off, found.exit_code) == (plain.sign_off, plain.exit_code)


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("constructed-3-skip", "remarked", "not run: PCIe, GPU 1: Test skipped on this GPU"),
        ("constructed-4-pass-with-error", "remarked", "an error all the same: memory, GPU 1: Couldn't allocate"),
        ("constructed-4-fail", "not-working", "pcie, GPU 0: Bandwidth of GPU 0 in direction Host to GPU"),
    ],
)
def test_whole_reports_in_the_public_forms(name: str, code: str, said: str) -> None:
    found = judged((DATA / f"{name}.json").read_text(), 226 if code == "not-working" else 0)
    assert (found.reason_code, said in found.reason) == (code, True), found.reason


@pytest.mark.parametrize("text", ["", "Error: unable to connect to the host engine", '{"tests": []}', '{"DCGM Diag'])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse("dcgm-diag", document(text))


def test_a_status_that_nobody_knows_and_a_test_without_result_are_refused() -> None:
    for report in (four(FINE, {"status": "Maybe"}), three()):
        with pytest.raises(ParseError):
            parse("dcgm-diag", document(report))
    with pytest.raises(ParseError, match="2 planned"):
        parse("dcgm-diag", document(four(FINE), level=1), {"level": 2})


def test_versions_and_gpus_of_both_forms() -> None:
    for report, form, version in ((three(gpu(0), gpu(1)), 3, "3.3.5"), (four(FINE, FINE), 4, "4.5.3")):
        _, facts = parse("dcgm-diag", document(report))
        assert isinstance(facts, DcgmFacts)
        assert (facts.form, facts.version, facts.gpus) == (form, version, (0, 1))


def test_the_probe_keeps_what_a_failed_run_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    gone = dcgm_diag_probe.probe(dcgm_diag_probe.Asked())
    said = "dcgmi is not installed on this node"
    assert (gone["error"], gone["facts"]) == (None, {"level": 1, "returncode": 127, "said": said})
    tool = tmp_path / "dcgmi"
    asked, said = "[ \"$*\" = 'diag -r 2 -j' ] || exit 9", json.dumps(four(FINE))
    tool.write_text(f"#!/bin/sh\n{asked}\ncat <<'END'\n{said}\nEND\nexit 226\n")
    tool.chmod(0o755)
    found = dcgm_diag_probe.probe(dcgm_diag_probe.Asked(level=2))
    assert (found["error"], found["facts"]["returncode"], found["tool_version"]) == (None, 226, "4.5.3")
    assert parse("dcgm-diag", found)[1].gpus == (0,)  # type: ignore[union-attr]
    tool.write_text("#!/bin/sh\necho 'Error: no host engine' >&2\nexit 1\n")
    found = dcgm_diag_probe.probe(dcgm_diag_probe.Asked())
    assert (found["error"], found["facts"]["said"]) == (None, "Error: no host engine")
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    found = dcgm_diag_probe.probe(dcgm_diag_probe.Asked(limit_s=0.3))
    assert (found["error"], "came to no end within 0.3 s" in found["facts"]["said"]) == (None, True)


def test_it_is_planned_where_there_are_gpus_of_hardware_alone() -> None:
    assert [m.id for m in plan_of(SITE, ("compute",)).measurements if m.kind == "dcgm-diag"] == ["dcgm-diag.gpu1"]
    assert not [m for m in plan_of(lab(emulated_gpus=4), ("compute",)).measurements if m.kind == "dcgm-diag"]
