"""What is said of a GPU while it is measured: on emulated devices, and where nothing can be said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import compute_case
from tests.support import gpu_copies_documents as made
from tests.support.collectives_documents import healthy_collectives
from tests.support.engine_run import ROOT, UUIDS, built, describe
from tests.support.gpu_copies_case import judged, planned
from tests.support.site import REAL_FACTS, criterion, hardware, healthy, lab, plan_of, result, verdict_of
from toolkit.engine import build
from toolkit.lab.gpufaults import described
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.gpu.copies_facts import GpuCopyFacts
from validation.measures.gpu.watch import checked
from validation.model import Measurement, Result, VerdictDoc
from validation.nvml import NvmlError, State
from validation.probes.gpu_watch import POINTS, SHARE, Sampler, Seen, from_numbers, numbers

pytestmark = pytest.mark.engines

WATCH = """
import json, sys, time
from validation.probes.gpu_watch import Watch, address
watch = Watch(address(int(sys.argv[1])))
with watch:
    time.sleep(0.9)
print(json.dumps({"address": watch.address, "who": watch.who, "watch": watch.document()}))
"""


def watched(index: int, environment: dict[str, str]) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", WATCH, str(index)], env={**os.environ, **environment}, cwd=ROOT, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
def test_the_gpu_that_cuda_means_is_watched_and_no_other(tmp_path: Path) -> None:
    environment = {"LD_LIBRARY_PATH": str(built() / "devices"), **describe(tmp_path)}
    found = [watched(index, environment) for index in (0, 1)]
    assert [one["who"]["uuid"] for one in found] == UUIDS
    assert len({one["address"] for one in found}) == 2
    for one in found:
        assert one["who"]["others"] == {}
        assert one["watch"]["said"] == ""
        assert one["watch"]["samples"] >= 2


def test_without_a_driver_there_is_a_reason_and_no_figure(tmp_path: Path) -> None:
    found = watched(0, {"LD_LIBRARY_PATH": str(tmp_path)})
    assert found["address"] == ""
    assert found["watch"]["samples"] == 0
    assert "the GPU driver is not installed" in found["watch"]["said"]
    assert "sm_mhz" not in found["watch"]


class StandIn:
    """A GPU that answers in `takes_s`, and is lost after so many looks."""

    uuid, address = "GPU-1", "0000:10:00.0"

    def __init__(self, takes_s: float = 0.0, lost_after: int = 10**9, **state: Any) -> None:
        self.takes_s, self.left, self.said = takes_s, lost_after, state

    def state(self) -> State:
        self.left -= 1
        if self.left < 0:
            raise NvmlError("GPU 0: NVML error 15, it has fallen off the bus")
        time.sleep(self.takes_s)
        return State(**{**dict.fromkeys(State.__dataclass_fields__), **self.said})


def looked(*gpus: StandIn, seconds: float, every_s: float = 0.001) -> Sampler:
    """A sampler that looked at these for so long."""
    sampler = Sampler(every_s=every_s)
    sampler.seen = [Seen(gpu) for gpu in gpus]  # type: ignore[arg-type]
    thread = threading.Thread(target=sampler._look_on)
    thread.start()
    time.sleep(seconds)
    sampler.over.set()
    sampler.wake.set()
    thread.join()
    return sampler


def test_where_nvml_is_slow_it_is_asked_less_often() -> None:
    sampler = looked(StandIn(takes_s=0.01), seconds=1.2)
    assert 1 <= sampler.seen[0].samples <= 3  # one in half a second, and not one in 11 ms
    assert sampler.cost_s <= 3.0 * SHARE


def test_a_gpu_that_is_lost_says_so_and_the_others_go_on() -> None:
    sampler = looked(StandIn(lost_after=2, sm_mhz=900), StandIn(sm_mhz=1000), seconds=0.3)
    lost, other = sampler.document()["gpus"]
    assert "fallen off the bus" in lost["said"]
    assert (lost["samples"], lost["sm_mhz"]["median"]) == (2, 900)
    assert other["said"] == ""
    assert other["samples"] > 2


def test_however_long_it_looks_it_holds_the_same_and_the_figures_are_of_all_looks() -> None:
    seen = Seen(StandIn())  # type: ignore[arg-type]
    for at in range(20_000):
        state = StandIn(sm_mhz=1000 + at % 5, throttle_reasons=("hw_slowdown",) if at % 4 == 0 else ()).state()
        seen.take(state, at / 5, 0.2, counts=at % 2 == 0)
    assert POINTS / 2 <= len(seen.course) <= POINTS
    steps = {round(b[0] - a[0], 2) for a, b in zip(seen.course, seen.course[1:], strict=False)}
    assert len(steps) == 1  # as far apart everywhere
    found = seen.document()
    assert (found["samples"], found["seconds"]) == (10_000, 4000.0)
    assert found["sm_mhz"] == {"least": 1000, "median": 1002, "most": 1004}
    assert found["reason_s"] == {"hw_slowdown": 1000.0}
    assert found["reasons"] == {"hw_slowdown": 0.5}  # of the looks while it was measured


@pytest.mark.parametrize(
    "change",
    [
        {"sm_mhz": {"least": 9, "median": 8, "most": 9}},
        {"samples": 0},
        {"reason_s": {"hw_slowdown": 29.0}},
        {"reasons": {"hw_slowdown": 1.5}},
        {"power_w": {"least": -1, "median": 8, "most": 9}},
    ],
)
def test_what_contradicts_itself_is_refused(change: dict[str, Any]) -> None:
    one = made.watch(made.gpu(0))
    assert checked(one)["sm_mhz"]["median"] == 1455
    with pytest.raises(ParseError):
        checked({**one, **change})


def verdict_with(**watch: Any) -> VerdictDoc:
    """Two GPUs of which the second was seen so."""

    def spoilt(params: Any) -> dict[str, Any]:
        report = made.report(params)
        report["watch"]["gpus"][1].update(watch)
        return report

    return judged(spoilt)


def test_a_throttled_gpu_in_a_pair_fails_and_is_named_beside_its_figures_though_they_pass() -> None:
    assert criterion(judged(made.report), "tr.clocks").verdict == "pass"
    verdict = verdict_with(reason_s={"hw_thermal_slowdown": 3.5}, reasons={"hw_thermal_slowdown": 0.1})
    found = criterion(verdict, "tr.clocks")
    assert (found.verdict, found.reason_code) == ("fail", "not-working")
    assert "hw_thermal_slowdown for 3.5 of 28.0 s (it was too hot)" in found.reason
    assert [j.verdict for j in found.judgements] == ["pass", "fail"]
    pairs = {j.subject: j for j in criterion(verdict, "tr.p2p").judgements}
    assert {j.verdict for j in pairs.values()} == {"pass"}
    assert all("GPU 1: 1455 of 1530 MHz" in j.reason and "too hot" in j.reason for j in pairs.values())
    # in another GPU's turn, too: what was slowed down is no healthy pair
    assert criterion(verdict_with(reason_s={"hw_power_brake_slowdown": 0.4}), "tr.clocks").verdict == "fail"
    assert criterion(verdict_with(reason_s={"sw_power_cap": 20.0}), "tr.clocks").verdict == "pass"


def test_clocks_that_are_held_low_are_remarked_upon_of_copies_and_fail_what_was_computed() -> None:
    low = {"least": 345, "median": 345, "most": 360}
    held = {"sm_mhz": low, "reasons": {"applications_clocks_setting": 1.0}}
    found = criterion(verdict_with(**held), "tr.clocks")
    assert (found.verdict, found.reason_code) == ("pass", "remarked")
    assert "held at 345 of 1530 MHz (applications_clocks_setting)" in found.reason
    assert criterion(verdict_with(sm_mhz=low, reasons={"sw_power_cap": 0.9}), "tr.clocks").reason_code != "remarked"

    newer = {"sm_mhz": low, "reasons": {"board_limit": 1.0, "0x8000": 0.5}}
    assert "held at 345 of 1530 MHz (board_limit, 0x8000)" in criterion(verdict_with(**newer), "tr.clocks").reason

    def computed(spoil: Any) -> Any:
        plan = plan_of(hardware(("gpu1",)), ("compute",))
        mine = plan.model_copy(update={"measurements": tuple(m for m in plan.measurements if m.kind == "gpu-compute")})
        results = [compute_case.result_of(m, result, {2: spoil}) for m in mine.measurements]
        return criterion(verdict_of(hardware(("gpu1",)), mine, results), "co.clocks")

    assert computed(lambda d: d).verdict == "pass"
    found = computed(lambda d: d["watch"].update(**held))
    assert (found.verdict, [j.verdict for j in found.judgements].count("fail")) == ("fail", 1)
    assert "GPU 2: 345 of 1980 MHz (345 to 360)" in found.reason
    unseen = computed(lambda d: d.update(watch={"samples": 0, "said": "no NVML in this container", "reasons": {}}))
    assert (unseen.verdict, "no NVML in this container" in unseen.reason) == ("not-measured", True)


def test_a_reason_without_a_name_is_said_and_does_not_pass_for_none() -> None:
    """A driver newer than this release may have one."""
    found = criterion(verdict_with(reasons={"0x8000": 0.3}, reason_s={"0x8000": 8.4}), "tr.clocks")
    assert (found.verdict, found.reason_code) == ("pass", "remarked")
    said = next(j.reason for j in found.judgements if j.reason_code == "remarked")
    assert "reasons for its clock without a name here: 0x8000 in 30% of the looks" in said
    assert "nothing slowed it down" not in said


@pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
def test_the_probe_of_copies_looks_at_each_gpu_in_its_turn(tmp_path: Path) -> None:
    """On emulated devices of which the second is described as throttled, as a fault of the lab does it."""
    environment = describe(tmp_path, sm_mhz=1530, sm_max_mhz=1530, throttle_reasons=0)
    whole = json.loads((tmp_path / "gpus.json").read_text())["gpus"]
    rehearsal = lab(("gpu1",), emulated_gpus=2)
    plan = planned(rehearsal)
    (m,) = plan.measurements
    for fault, verdict in ((None, "pass"), ("throttled", "fail")):
        (tmp_path / "gpus.json").write_text(json.dumps({"gpus": described(whole, fault)}))
        command = [sys.executable, "-m", "validation.probes", "gpu-copies", json.dumps(m.params)]
        environment |= {"LD_LIBRARY_PATH": str(built() / "devices"), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
        document = json.loads(done.stdout)
        samples, facts = parse("gpu-copies", document, m.params)
        assert isinstance(facts, GpuCopyFacts)
        assert all(gpu.watch is not None and gpu.watch.samples >= 1 for gpu in facts.gpus)
        found = criterion(verdict_of(rehearsal, plan, [result(m, samples, facts=facts)]), "tr.clocks")
        assert (found.verdict, "the GPU is emulated" in found.reason or fault is None) == (verdict, True), found.reason
        cost_s = json.loads(document["stdout"])["watch"]["cost_s"]
        assert cost_s <= max(0.05, 2 * SHARE * document["duration_s"])


def test_what_ranks_exchange_as_numbers_is_what_they_saw() -> None:
    whole = made.watch(made.gpu(0), reasons={"sw_power_cap": 0.5}, reason_s={"sw_power_cap": 9.0})
    assert from_numbers(numbers(whole), whole["address"], "") == {**whole, "uuid": ""}
    odd = {"0x8000": 0.25, "board_limit": 1.0, "reliability": 0.5}  # the last is a bit that no release names
    whole = made.watch(made.gpu(0), reasons=odd, reason_s=dict.fromkeys(odd, 4.0))
    assert from_numbers(numbers(whole), whole["address"], "") == {**whole, "uuid": ""}
    bare = {"samples": 0, "said": "no NVML", "reasons": {}, "reason_s": {}}
    found = from_numbers(numbers(bare), "", "no NVML")
    assert (found["samples"], found["said"], "sm_mhz" in found, found["sm_max_mhz"]) == (0, "no NVML", False, None)
    assert checked(found)["said"] == "no NVML"


def test_a_rank_whose_gpu_was_slowed_down_stands_beside_the_figure_of_its_job() -> None:
    site = hardware(["gpu1", "gpu2", "gpu3"], slots=8)
    plan = plan_of(site, ("training",), "ib-ndr")

    def one(m: Measurement, ranks: int = 0) -> Result:
        if m.kind != "collectives":
            return healthy(m, facts=REAL_FACTS)
        ranks = ranks or int(str(m.params["ranks_per_node"])) * len(m.params["hosts"])  # type: ignore[arg-type]
        seen = [from_numbers(numbers(made.watch(made.gpu(n))), f"0000:{n:02x}:00.0", "") for n in range(ranks)]
        if m.id == "collectives.inside.gpu2":
            seen[3].update(reason_s={"hw_thermal_slowdown": 2.0})
        return healthy_collectives(m, gpus=True, port_gb_s=50.0, watch=seen)

    verdict = verdict_of(site, plan, [one(m) for m in plan.measurements], fabric="ib-ndr")
    said = {str(j.about): j.reason for j in criterion(verdict, "tr.nccl").judgements}
    assert [about for about, reason in said.items() if "slowdown" in reason] == ["gpu2, 8 ranks"]
    assert "rank 3 on gpu2, GPU 0000:03:00.0: 1455 of 1530 MHz" in said["gpu2, 8 ranks"]
    assert "hw_thermal_slowdown for 2.0 of 28.0 s (it was too hot)" in said["gpu2, 8 ranks"]
    with pytest.raises(ParseError, match="3 GPUs of 8 ranks"):
        one(plan.measurement("collectives.inside.gpu1"), 3)
