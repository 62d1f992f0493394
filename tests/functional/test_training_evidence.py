"""What a training on GPUs leaves as evidence: clocks judged, a trace in the report and as a file, a GPU of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support import answers
from tests.support.figures_case import added
from tests.support.raw_case import keep
from tests.support.report_fixture import make_run
from tests.support.site import CRITERIA, criterion, hardware, lab, real_results, result, verdict_of, write_run
from tests.support.tool_documents import doc
from tests.support.tool_texts import training, watched
from toolkit.cli import cli
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.training.evidence_figures import evidence_figures
from validation.measures.training.facts import TrainingFacts
from validation.model import Bom, CriterionVerdict, Measurement, Plan, Topology
from validation.plan.suites import make_plan
from validation.probes.train_trace import line_of
from validation.report.documents import read_run
from validation.rules.fabric import load_fabric

pytestmark = pytest.mark.engines

BOM = Bom(model="PowerEdge XE9680", gpu_model="NVIDIA H100 80GB HBM3", gpu_count=2)
TRACE = {
    "by": "kernels", "names": ["gemm_fp16", "ncclDevKernel_AllReduce"], "of_steps": 1, "left_out": "",
    "steps": [{"wall_us": 1000.0, "events": [[0, 0, 0.0, 600.0, 0], [1, 0, 650.0, 200.0, 1]]}],
}  # fmt: skip


def site() -> Topology:
    return hardware(("gpu1", "gpu2"), slots=2, bom=BOM)


def plan_of(topology: Topology) -> Plan:
    return make_plan("run-1", topology, load_fabric("tcp10"), CRITERIA, ("preflight", "training"), {})


def printed(m: Measurement, trace: dict[str, Any] | None = TRACE, **changes: Any) -> str:
    """What rank 0 prints of a job; `changes` of its report."""
    hosts = [name for name in m.params["hosts"] for _ in range(int(str(m.params["ranks_per_node"])))]  # type: ignore[union-attr]
    report = {**json.loads(training(m.params, hosts, 5000.0)), **changes}
    return (line_of(trace) + "\n" if trace else "") + json.dumps(report) + "\n"


def read(m: Measurement, **changes: Any) -> TrainingFacts:
    found = parse("training-short", doc("training-short", printed(m, **changes)), m.params)[1]
    assert isinstance(found, TrainingFacts)
    return found


def job(label: str = "inter") -> Measurement:
    return plan_of(site()).measurement(f"training-short.resnet50-b128-fp16.{label}")


def clocks(topology: Topology | None = None, slow: dict[str, Any] | None = None) -> CriterionVerdict:
    """tn.clocks of a site whose jobs are all well, but of the last rank of the job across nodes."""
    topology = topology or site()
    plan = plan_of(topology)

    def trained(m: Measurement) -> Any:
        if m.kind != "training-short":
            return None
        watch = json.loads(printed(m, None)).get("watch", [])
        if slow and len(watch) == 4:
            watch[3] = watched(1, **slow)
        text = printed(m, None, **({"watch": watch} if watch else {}))
        samples, facts = parse("training-short", doc("training-short", text), m.params)
        return result(m, samples, facts=facts)

    return criterion(verdict_of(topology, plan, real_results(plan, spoil=trained)), "tn.clocks")  # type: ignore[no-any-return]


def test_gpus_at_their_clocks_pass_each_once() -> None:
    found = clocks()
    assert (found.verdict, found.coverage) == ("pass", "4/4 GPUs")
    assert {str(j.about) for j in found.judgements} == {
        f"{name}, GPU 0000:{at}:00.0" for name in ("gpu1", "gpu2") for at in ("17", "18")
    }


def test_a_throttled_gpu_of_one_job_fails_by_its_name_and_no_other() -> None:
    found = clocks(slow={"reasons": {"hw_thermal_slowdown": 0.5}, "reason_s": {"hw_thermal_slowdown": 12.0}})
    assert found.verdict == "fail"
    failed = [j for j in found.judgements if j.verdict == "fail"]
    assert [str(j.about) for j in failed] == ["gpu2, GPU 0000:18:00.0"]
    assert failed[0].reason.startswith("training-short.resnet50-b128-fp16.inter: ")
    assert "hw_thermal_slowdown for 12.0 of 24.0 s (it was too hot)" in failed[0].reason


def test_a_clock_that_was_held_low_fails_and_power_that_holds_it_does_not() -> None:
    low = {"sm_mhz": {"least": 300, "median": 345, "most": 400}}
    assert clocks(slow=low).verdict == "fail"
    assert clocks(slow={**low, "reasons": {"sw_power_cap": 0.9}}).verdict == "pass"


def test_without_looks_nothing_is_judged() -> None:
    empty = {"samples": 0, "said": "the GPU driver is not installed"}
    unseen = {**{key: None for key in ("sm_mhz", "memory_mhz", "power_w", "temperature_c", "utilisation_percent")}}
    found = clocks(slow={**empty, **unseen})
    assert found.verdict == "not-measured"
    assert "the GPU driver is not installed" in found.reason


def test_where_the_inventory_declares_no_gpu_it_has_no_meaning() -> None:
    found = clocks(lab())
    assert (found.verdict, found.reason) == ("not-applicable", "the inventory declares no GPU of any node")


def test_a_rank_on_the_gpu_of_anothers_lease_is_refused() -> None:
    others = [[0, 0], [0, 0], [2, 20 * 2**30], [0, 0]]
    words = "rank 2 was on GPU 0000:17:00.0 GPU of gpu2, where 2 processes of others held 20480 MiB"
    with pytest.raises(ParseError, match=words):
        read(job(), others=others)
    with pytest.raises(ParseError, match=words):  # and not that its own batch has no room
        read(job(), others=others, cannot="out of memory: a batch of 128 images does not fit on GPU 0000:17:00.0")


def test_gpus_of_all_ranks_were_looked_at_or_none() -> None:
    with pytest.raises(ParseError, match="3 GPUs of 4 ranks were looked at"):
        read(job(), watch=[watched(0)] * 3)


@pytest.mark.parametrize("course", [[[0.0, -1.0, None, None, None]], [["x", None, None, None, None]], [[]]])
def test_a_course_that_cannot_be_is_refused(course: Any) -> None:
    with pytest.raises(ParseError):
        read(job("1"), watch=[{**watched(0), "course": course}])


def test_the_report_has_kernels_gaps_and_what_each_gpu_did(tmp_path: Path) -> None:
    m = job()
    documents = added(read_run(make_run(tmp_path)), [(m, result(m, facts=read(m)))])
    figures = {figure.id: figure for figure in evidence_figures(documents)}
    trace = figures["trace"]
    assert trace.table is not None
    assert [row[1:] for row in trace.table.rows] == [
        ("gemm_fp16", "600.0", "75.0 %", "1"),
        ("ncclDevKernel_AllReduce", "200.0", "25.0 %", "1"),
    ]
    assert "kernels ran 80.0 % of the time, the all-reduce 25.0 % of it" in trace.caption
    assert "longest gap 50 us after gemm_fp16" in trace.caption
    assert "38.4 %" in trace.caption
    table = figures["training-gpus"].table
    assert table is not None
    assert len(table.rows) == 4
    assert table.rows[3][1:4] == ("gpu2, GPU 0000:18:00.0", "97 (82 to 100)", "245 (180 to 290)")
    assert all(figures[f"training-{key}"].svg is not None for key in ("use", "power", "clock"))


def test_a_job_without_a_trace_says_why(tmp_path: Path) -> None:
    m = job("1")
    bare = {**TRACE, "steps": [], "left_out": "torch's profiler: no CUPTI"}
    documents = added(read_run(make_run(tmp_path)), [(m, result(m, facts=read(m, trace=bare)))])
    assert evidence_figures(documents)[0].empty == "Not measured: torch's profiler: no CUPTI."


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with one job that left a trace, as execute keeps it."""
    topology = site()
    plan = plan_of(topology)
    m = job()
    folder = tmp_path / "runs" / "run-1"
    logs = keep(folder, m, {"out": printed(m), "err": ""})
    made = result(m, facts=read(m))
    made = made.model_copy(update={"provenance": made.provenance.model_copy(update={"raw": logs})})
    write_run(folder, topology, plan, [made])
    return folder


def traced(run: Path, *words: str) -> Any:
    return CliRunner().invoke(cli, ["report", str(run), "--trace", *words])


def test_the_trace_is_written_as_browsers_open_it(run: Path, tmp_path: Path) -> None:
    name = job().id
    assert traced(run).stdout == f"{name}\n"
    out = tmp_path / "trace.json"
    assert traced(run, name, "--out", str(out)).exit_code == 0
    assert answers.check(traced(run, "--json").stdout, "traces")["jobs"] == [name]
    assert answers.check(traced(run, name, "--out", str(out), "--json").stdout, "trace")["trace"] == str(out)
    spans = [row for row in json.loads(out.read_text())["traceEvents"] if row["ph"] == "X"]
    assert [(row["name"], row["ts"], row["dur"], row["tid"]) for row in spans] == [
        ("gemm_fp16", 0.0, 600.0, 0),
        ("ncclDevKernel_AllReduce", 650.0, 200.0, 1),
    ]


def test_a_job_without_trace_and_a_changed_log_are_named(run: Path) -> None:
    name = job().id
    wrong = traced(run, name.replace("inter", "ynter"))
    assert wrong.exit_code == 2
    assert f"did you mean {name}?" in wrong.output
    assert "has no trace" in traced(run, job("1").id).output
    log = run / "raw" / name / "gpu1.out"
    log.write_text(log.read_text() + " ")
    changed = traced(run, name)
    assert changed.exit_code == 2
    assert "changed since it was recorded" in changed.output
