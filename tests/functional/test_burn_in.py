"""Burn-in on emulated devices and processors: what is planted in reports and devices is found, and nothing stays."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.burn_in_case import document, judged, report
from tests.support.engine_run import MIB, ROOT, built, describe, local
from tests.support.figures_case import added, measurement
from tests.support.report_fixture import make_run
from tests.support.run_case import processes_of
from tests.support.site import criterion, hardware, lab, plan_of, result, verdict_of
from toolkit.engine import build
from toolkit.lab.gpufaults import described
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.compute import burn_copies_probe
from validation.measures.compute.burn_facts import BurnFacts, failures
from validation.measures.compute.burn_in_figures import burn_figures
from validation.plan.suites import PlanError
from validation.probes import torch_burn, torch_compute
from validation.probes.supervise import descendants
from validation.report.documents import read_run

compiles = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
ASKED = {"seconds": 2.0, "gpus": 2, "copy_bytes": MIB, "python": ""}
Report = dict[str, Any]


def started(devices: dict[str, str], **asked: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, **devices, "LD_LIBRARY_PATH": str(built() / "devices"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "validation.probes", "burn-in", json.dumps({**ASKED, **asked})]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def probed(devices: dict[str, str], **asked: Any) -> Report:
    out, err = started(devices, **asked).communicate(timeout=100)
    assert out, err
    found: Report = json.loads(out)
    return found


@compiles
def test_all_gpus_are_loaded_at_once_read_whole_and_nothing_stays(tmp_path: Path) -> None:
    devices = describe(tmp_path, sm_mhz=1530, sm_max_mhz=1530, temperature_c=41, throttle_reasons=0)
    doc = probed(devices)
    samples, facts = parse("burn-in", doc, {"seconds": 2.0, "gpus": 2})  # type: ignore[arg-type]
    assert isinstance(facts, BurnFacts)
    assert (facts.load, facts.emulated, [s.value for s in samples]) == ("copies", True, [0, 0])
    assert facts.gpu_hours == 0  # emulated: of no GPU
    for one in facts.devices:
        assert (one.wrong, one.products, one.bad, one.fault) == (0, 2, {}, "")
        assert len(one.rates) >= 3
        assert one.checks >= len(one.rates)
        assert one.watch is not None
        assert one.watch.samples >= 3
        assert [point[2] for point in one.course] == [41.0] * len(one.course)
        assert len(one.course) == one.watch.samples
    assert local(tmp_path, devices).run("start(); said(info())")[0] == [256 * MIB, 256 * MIB]


@compiles
def test_wrong_bits_and_heat_that_are_planted_in_a_lab_are_found_and_nothing_else(tmp_path: Path) -> None:
    devices = describe(tmp_path, sm_mhz=1530, sm_max_mhz=1530, throttle_reasons=0)
    whole = json.loads((tmp_path / "gpus.json").read_text())["gpus"]
    site = lab(("gpu1",), emulated_gpus=2)
    plan = plan_of(site, ("burn-in",), options={"minutes": 1})
    (m,) = plan.measurements
    short = m.model_copy(update={"params": {**m.params, "seconds": 1.0}})
    plan = plan.model_copy(update={"measurements": (short,)})
    for fault, failed in ((None, set()), ("wrong-result", {"bi.exact"}), ("throttled", {"bi.clocks"})):
        (tmp_path / "gpus.json").write_text(json.dumps({"gpus": described(whole, fault)}))
        doc = probed(devices, **short.params)
        samples, facts = parse("burn-in", doc, short.params)  # type: ignore[arg-type]
        verdict = verdict_of(site, plan, [result(short, samples, facts=facts)])
        assert {v.id for v in verdict.criteria if v.verdict == "fail"} == failed
        found = criterion(verdict, "bi.exact")
        assert [j.verdict for j in found.judgements] == ["pass", "fail" if fault == "wrong-result" else "pass"]
        assert "the GPUs are emulated" in found.judgements[0].reason
        assert {j.reason_code for j in criterion(verdict, "bi.rate").judgements} == {"virtual"}


@compiles
def test_an_error_that_ends_its_process_is_one_gpus_and_the_others_come_to_their_end(tmp_path: Path) -> None:
    devices = describe(tmp_path, ecc_enabled=1, ecc_uncorrected=0)
    first, last = json.loads((tmp_path / "gpus.json").read_text())["gpus"]
    (tmp_path / "gpus.json").write_text(json.dumps({"gpus": [{**first, "xid_after": 100}, last]}))
    doc = probed(devices)
    facts = parse("burn-in", doc, {"seconds": 2.0, "gpus": 2})[1]  # type: ignore[arg-type]
    assert isinstance(facts, BurnFacts)
    bad, good = facts.devices
    assert "CUDA_ERROR_ECC_UNCORRECTABLE (214); an uncorrectable memory error" in bad.fault
    assert (good.fault, good.wrong, good.products) == ("", 0, 2)
    assert len(good.rates) >= 3
    plan = plan_of(hardware(("gpu1",)), ("burn-in",), options={"minutes": 1})
    assert failures([(plan.measurements[0], facts)]) == 1


@compiles
def test_a_process_that_dies_costs_its_gpu_alone(tmp_path: Path) -> None:
    process = started(describe(tmp_path), seconds=4.0)
    until, mine = time.monotonic() + 30, list[int]()
    while not mine and time.monotonic() < until:
        time.sleep(0.1)
        for pid in descendants(process.pid):
            with contextlib.suppress(OSError):
                if b'"number": 1' in Path(f"/proc/{pid}/cmdline").read_bytes():
                    mine.append(pid)
    os.kill(mine[0], signal.SIGKILL)
    out, err = process.communicate(timeout=100)
    facts = parse("burn-in", json.loads(out), {"seconds": 4.0, "gpus": 2})[1]
    assert isinstance(facts, BurnFacts)
    assert [one.fault for one in facts.devices] == ["", "its process ended with -9: no word"], err


@compiles
def test_told_to_stop_it_stops_and_leaves_nothing_on_the_gpus(tmp_path: Path) -> None:
    devices = describe(tmp_path)
    process = started(devices, seconds=60)
    holders = local(tmp_path, devices)
    until = time.monotonic() + 30
    while holders.run("start(); said(info())")[0] == [256 * MIB] * 2 and time.monotonic() < until:
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert holders.run("start(); said(info())")[0] == [256 * MIB] * 2


@compiles
def test_a_gpu_that_somebody_works_on_is_refused_and_one_that_is_missing_is_said(tmp_path: Path) -> None:
    devices = describe(tmp_path)
    busy = started(devices, seconds=30)
    try:
        holders = local(tmp_path, devices)
        until = time.monotonic() + 30
        while holders.run("start(); said(info())")[0] == [256 * MIB] * 2 and time.monotonic() < until:
            time.sleep(0.2)
        refused = probed(devices)
        assert "GPU 0000:10:00.0 is in use by process" in refused["error"]
    finally:
        busy.kill()
        busy.communicate()
    assert "NVML shows 2 of 4 GPUs" in probed(devices, gpus=4)["error"]


def test_without_gpus_the_processors_work_and_are_told_as_such() -> None:
    doc = probed({}, gpus=0, device="cpu", seconds=1.0)
    params = {"seconds": 1.0, "gpus": 0, "device": "cpu"}
    samples, facts = parse("burn-in", doc, params)  # type: ignore[arg-type]
    assert isinstance(facts, BurnFacts)
    assert (facts.load, facts.gpus, [s.value for s in samples]) == ("processors", 0, [0])
    site = hardware(("gpu1",))
    plan = plan_of(site, ("burn-in",), options={"minutes": 1})
    verdict = verdict_of(site, plan, [result(plan.measurements[0], samples, facts=facts)])
    assert {v.id: v.verdict for v in verdict.criteria if v.id.startswith("bi.")} == {
        "bi.exact": "pass", "bi.events": "not-applicable", "bi.rate": "not-applicable", "bi.clocks": "not-applicable",
        "bi.fabric": "not-measured", "bi.storage": "not-measured",
    }  # fmt: skip
    with pytest.raises(ParseError, match="0 of 2 GPUs were loaded"):
        parse("burn-in", doc, {"seconds": 1.0, "gpus": 2})  # type: ignore[arg-type]


def line(code: int) -> dict[str, Any]:
    return {"at_us": 70_000_000, "kind": "xid", "code": code, "address": "0000:1b:00.0", "words": "constructed"}


@pytest.mark.parametrize(
    ("id_", "spoil", "verdict", "said"),
    [
        ("bi.exact", lambda r: None, "pass", "all 4 devices pass"),
        ("bi.exact", lambda r: r["devices"][2].update(wrong=3), "fail", "GPU 2, Tesla V100-SXM2-16GB, 0000:1c:00.0: 3"),
        ("bi.exact", lambda r: r["devices"][1]["exact"][-1].update(digests={"0" * 64: 1}), "fail", "bf16 hot 1 times"),
        ("bi.exact", lambda r: r["devices"][3].update(fault="CUDA error: unspecified"), "fail", "GPU 3, Tesla"),
        ("bi.exact", lambda r: r["devices"].__setitem__(0, {"device": "cuda:0", "fault": "its process ended"}), "fail",
         "GPU 0 did not come to its end: its process ended"),
        ("bi.rate", lambda r: None, "pass", "all 4 devices pass"),
        ("bi.rate", lambda r: r["devices"][1].update(rates=[100 - n / 24 for n in range(240)]), "fail",
         "91.25 TFLOP/s at the end, 92.4% of the 98.75 at the begin"),
        ("bi.rate", lambda r: r["devices"][1].update(rates=[1.0, *[100.0] * 239]), "pass", "all 4 devices pass"),
        ("bi.rate", lambda r: r["devices"][1].update(rates=[100.0] * 9), "not-measured", "12 are needed"),
        ("bi.clocks", lambda r: None, "pass", "all 4 GPUs pass"),
        ("bi.clocks", lambda r: r["watch"]["gpus"][0]["reason_s"].update(hw_thermal_slowdown=41.0), "fail",
         "hw_thermal_slowdown for 41.0 of 600.0 s (it was too hot)"),
        ("bi.clocks", lambda r: r.update(watch={"said": "no NVML", "gpus": []}), "not-measured", "no NVML"),
        ("bi.events", lambda r: None, "pass", "no counter grew, no Xid in the run"),
        ("bi.events", lambda r: r["after"]["gpus"][1].update(ecc_uncorrected=1), "fail", "1 uncorrectable memory err"),
        ("bi.events", lambda r: r["after"]["gpus"][1].update(ecc_corrected=9), "pass", "no counter grew"),
        ("bi.events", lambda r: r["after"]["gpus"][1].update(pcie_replays=900), "fail", "900 PCIe replays in 10.2"),
        ("bi.events", lambda r: r["after"]["gpus"].pop(), "fail", "GPU 3 (0000:1d:00.0) is gone"),
        ("bi.events", lambda r: r["after"]["kernel_log"].update(lines=[line(79)]), "fail", "Xid 79 of 0000:1b:00.0"),
        ("bi.events", lambda r: r["after"]["kernel_log"].update(lines=[line(13)]), "pass", "Xid 13"),
        ("bi.events", lambda r: r["after"]["kernel_log"].update(unread="not allowed"), "not-measured", "not allowed"),
        ("bi.events", lambda r: [r[when]["kernel_log"].update(lines=[{**line(79), "at_us": 9}])
                                 for when in ("before", "after")], "pass", "Before the run: Xid 79"),
        ("bi.events", lambda r: r["after"]["gpus"][2].update(ecc_uncorrected=None), "not-measured", "memory errors"),
    ],
)  # fmt: skip
def test_what_is_planted_is_found(id_: str, spoil: Callable[[Report], object], verdict: str, said: str) -> None:
    found = judged(id_, spoil)
    assert (found.verdict, said in found.reason) == (verdict, True), found.reason


@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: r.update(devices=[]),
        lambda r: r.update(took_s=10.0),
        lambda r: r.update(window_s=1.0),
        lambda r: r.update(seconds=599.0),
        lambda r: r["devices"].pop(0),
        lambda r: r["devices"][0].update(rates=[]),
        lambda r: r["devices"][0].update(rates=[float("nan")] * 9),
        lambda r: r["devices"][0].update(rates=[1.0] * 999),
        lambda r: r["devices"][0].update(checks=2),
        lambda r: r["devices"][0].update(wrong=10**6),
        lambda r: r["devices"][0].update(unit="GB/s"),
        lambda r: r["devices"][0].update(exact=[]),
        lambda r: r["devices"][0]["exact"].pop(),  # no digest at the end
        lambda r: r["devices"][0]["exact"][0].update(digests={}),
        lambda r: r["devices"][0]["exact"][0].update(size=7),
        lambda r: r["after"].update(gpus=None),
        lambda r: r.update(load="hope"),
    ],
)
def test_what_does_not_add_up_is_refused(spoil: Callable[[Report], object]) -> None:
    whole = report()
    assert parse("burn-in", document(whole), {"seconds": 600.0})  # type: ignore[arg-type]
    spoil(whole)
    with pytest.raises(ParseError):
        parse("burn-in", document(whole), {"seconds": 600.0})  # type: ignore[arg-type]


def test_a_result_that_is_not_the_first_one_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in of torch whose every third comparison says unequal."""
    calls: list[int] = []
    torch = SimpleNamespace(equal=lambda *_: calls.append(1) or len(calls) % 3 != 0)
    product = SimpleNamespace(clone=lambda: None)
    device: Any = SimpleNamespace(
        torch=torch,
        cuda=False,
        supports=lambda _: "",
        use=lambda _: "bf16",
        random=lambda *_, dtype: None,
        seconds=lambda *_: time.sleep(0.01) or 0.01,
    )
    monkeypatch.setattr(torch_burn, "digest_of", lambda _: "0" * 64)
    monkeypatch.setattr(torch_burn, "matrix_product", lambda *_: lambda: product)
    monkeypatch.setattr(torch_burn, "exactly", lambda _, __, when: [{"when": when}])
    found: Report = {"rates": [], "checks": 0, "wrong": 0, "exact": []}
    torch_burn.load(device, found, {"seconds": 0.5, "window_s": 0.1, "precisions": ("bf16",)})
    assert found["checks"] == len(calls) >= 5
    assert found["wrong"] == len(calls) // 3
    assert [one["when"] for one in found["exact"]] == ["cold", "hot"]
    assert 4 <= len(found["rates"]) <= 6


def test_the_plan_says_the_minutes_and_holds_them_to_a_week() -> None:
    site = lab(("gpu1", "gpu2"), emulated_gpus=2)
    plan = plan_of(site, ("burn-in",), options={"minutes": 50})
    assert {m.params["seconds"] for m in plan.measurements} == {3000.0}
    assert [m.id for m in plan.measurements if m.kind == "burn-in"] == ["burn-in.gpu1", "burn-in.gpu2"]
    assert all(m.timeout_s > 3000 for m in plan.measurements)
    assert plan.estimated_s >= 2 * 3000  # virtual nodes take turns
    assert plan_of(hardware(), ("burn-in",)).measurements[0].params["seconds"] == 900.0
    with pytest.raises(PlanError, match="a week"):
        plan_of(site, ("burn-in",), options={"minutes": 10_081})


def test_windows_are_few_however_long_it_takes() -> None:
    for seconds in (1.0, 30.0, 60.0, 3600.0, 168 * 3600.0):
        windows = seconds / burn_copies_probe.window_s(seconds)
        assert 12 < windows <= burn_copies_probe.WINDOWS + 1


def test_the_command_line_says_what_goes_with_minutes_prints_the_plan_and_stops_clean(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "toolkit", "validate"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True,
                              check=False, timeout=100)  # fmt: skip

    assert "--suite burn-in" in ran("--here", "--minutes", "5").stderr
    assert "exclude each other" in ran("--here", "--suite", "burn-in", "--minutes", "5", "--hours", "1").stderr
    day = ran("--here", "--suite", "burn-in", "--hours", "24", "--dry-run", "--json")
    assert sum(m["params"]["seconds"] for m in json.loads(day.stdout)["plans"][0]["measurements"]) == 86400.0
    shown = ran("--here", "--suite", "burn-in", "--minutes", "7", "--dry-run", "--json")
    assert json.loads(shown.stdout)["plans"][0]["measurements"][0]["params"]["seconds"] == 420.0
    assert "7m15s" in ran("--here", "--suite", "burn-in", "--minutes", "7", "--dry-run").stdout
    process = subprocess.Popen([*command, "--here", "--suite", "burn-in", "--minutes", "3"], cwd=tmp_path,
                               env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    until = time.monotonic() + 60
    while not (mine := processes_of("burn-in", "180.0")) and time.monotonic() < until:
        time.sleep(0.2)
    assert mine
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "0 of 1 measurement are finished" in err
    assert not processes_of("burn-in", "180.0")


@pytest.mark.parametrize("gpus", [2, 8])
def test_the_report_draws_the_course_and_has_the_figures_of_each_gpu(gpus: int, tmp_path: Path) -> None:
    m = measurement("burn-in", "gpu1", ("gpu1",))
    _, facts = parse("burn-in", document(report(gpus)), {"seconds": 600.0})  # type: ignore[arg-type]
    run = read_run(make_run(tmp_path))
    assert burn_figures(run) == ()
    documents = added(run, [(m, result(m, facts=facts))])
    whole, *drawn = burn_figures(documents)
    assert [figure.id for figure in drawn] == ["burn-use-gpu1", "burn-heat-gpu1", "burn-power-gpu1"]
    assert whole.table is not None
    assert len(whole.table.rows) == gpus
    assert whole.table.rows[1][1:3] == ("GPU 1", "100, 100 TFLOP/s")
    said = f"Burn-in of {gpus} GPUs of 1 node for 10 min 00 s. No failure in {gpus / 6:.4g} GPU-hours: "
    assert whole.caption.startswith(said)
    assert f"is {gpus / 6 / 1.6094:.3g} hours at least ({gpus / 6:.4g} / 1.61)" in whole.caption
    assert all(figure.svg is not None for figure in drawn)
    assert "From 40 to 59.67" in drawn[1].caption
    assert ("median of 8 GPUs" in str(drawn[0].svg)) == (gpus == 8)
    gone = burn_figures(added(run, [(m, result(m, status="failed", error="the driver went away"))]))
    assert gone[0].empty == "Not measured: gpu1: the driver went away."


def test_a_gpus_process_that_never_ends_costs_that_gpu_alone(tmp_path: Path) -> None:
    program = tmp_path / "stand_in.py"
    program.write_text(
        "import json, sys, time\n"
        "if sys.argv[2] == '1': print('it hangs', file=sys.stderr, flush=True); time.sleep(600)\n"
        "print(json.dumps({'device': f'cuda:{sys.argv[2]}', 'fault': ''}))\n"
    )
    began = time.monotonic()
    found = list(torch_compute.every({}, 3, str(program), 10.0))
    assert time.monotonic() - began < 60
    assert [one["fault"] for one in found] == ["", "its process had not ended after 10 s: it hangs", ""]
    assert [one["device"] for one in found] == ["cuda:0", "cuda:1", "cuda:2"]
