"""Suite recovery: refused without consent, boots compared, a dead node found and back."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import hardware, lab, plan_of, result, results_of, verdict_of
from toolkit.errors import UsageFault
from toolkit.inventory import InventoryError, read_inventory
from toolkit.validate.request import NewRuns, Output, ValidateRequest
from toolkit.validate.training import TrainingRequest
from validation.kinds import job_for, parse
from validation.kinds.parsing import ParseError
from validation.measures.recovery import recovery_probe
from validation.model import Bmc, CriterionVerdict, Topology
from validation.plan.request import PlanError
from validation.probes import recovery_head, recovery_steps
from validation.probes.tool import Ran

DATA = Path(__file__).parents[1] / "data/recovery"
LAB = ValidateRequest(Path("inventories/lab"), Path("runs"), Output(("html",)), TrainingRequest(False, {}))


def recorded(what: str) -> Any:
    return json.loads((DATA / f"{what}.json").read_text())


def changed(what: str, **changes: Any) -> Any:
    doc = recorded(what)
    return {**doc, "stdout": json.dumps({**json.loads(doc["stdout"]), **changes})}


def judged(docs: dict[str, Any]) -> dict[str, CriterionVerdict]:
    """The verdict on recoveries whose documents are these; what has none was never taken."""
    topology = lab()
    plan = plan_of(topology, ("preflight", "recovery"), options={"reboots": 3})
    results = results_of(plan, lambda m: result(m, status="failed", error="x") if m.kind == "recovery" else None)
    for at, one in enumerate(results):
        m = plan.measurement(one.measurement)
        doc = docs.get(m.id)
        if doc is not None:
            samples, facts = parse("recovery", doc, m.params)
            results[at] = result(m, samples, facts=facts)
    return {c.id: c for c in verdict_of(topology, plan, results).criteria if c.id.startswith("rc.")}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"suites": ("recovery",)}, "suite recovery reboots every GPU server and the head, and lets a server die"),
        ({"suites": ("transport",), "reboots": 3}, "--reboots allows what suite recovery does; give --suite recovery"),
        ({"suites": ("transport",), "power_cycles": 1}, "--power-cycles allows what suite recovery does"),
        ({"reboots": 1, "power_cycles": 1}, "--reboots and --power-cycles allow what suite recovery does"),
    ],
)  # fmt: skip
def test_nothing_is_rebooted_without_consent(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageFault, match=words):
        replace(LAB, **given).checked()


def test_consent_is_an_option_of_the_plan_and_a_profile_that_names_the_suite_is_none() -> None:
    asked = replace(LAB, suites=("recovery",), reboots=2).checked()
    assert isinstance(asked, NewRuns)
    assert asked.options == {"reboots": 2}
    with pytest.raises(PlanError, match="--reboots N allows it"):
        plan_of(lab(), ("recovery",))
    both = plan_of(lab(), ("preflight", "recovery"))
    assert not [m for m in both.measurements if m.kind == "recovery"]
    assert any("--reboots N allows it" in left.why for left in both.left_out)


def test_each_gpu_server_is_rebooted_and_the_last_one_dies() -> None:
    plan = plan_of(hardware(), ("recovery",), options={"reboots": 3})
    assert [m.id for m in plan.measurements] == [
        "recovery-reboots.gpu1", "recovery-reboots.gpu2", "recovery-dead.gpu2", "recovery-head.head"
    ]  # fmt: skip
    assert all(len(ids) == 1 for ids in plan.rounds)
    job = job_for(plan.measurements[0], hardware())
    assert (job.probe.params["times"], job.probe.params["head"][-1]) == (3, "root@10.77.0.11")


def test_power_is_switched_only_where_that_was_allowed_and_alone_where_nothing_else_was() -> None:
    bmc = Bmc(address="10.0.0.9", port=443, user="x", ca=None, fingerprint=None, bios={})
    whole = hardware()
    topology = whole.model_copy(update={"nodes": tuple(n.model_copy(update={"bmc": bmc}) for n in whole.nodes)})
    plan = plan_of(topology, ("recovery",), options={"reboots": 1})
    assert not [m for m in plan.measurements if m.params["what"] == "cycles"]
    assert any("--power-cycles N allows it" in left.why for left in plan.left_out)
    plan = plan_of(topology, ("recovery",), options={"power_cycles": 2})
    assert [m.id for m in plan.measurements] == ["recovery-cycles.gpu1", "recovery-cycles.gpu2"]
    assert plan.measurements[0].criteria == ("rc.power",)
    asked = replace(LAB, suites=("recovery",), power_cycles=2).checked()
    assert isinstance(asked, NewRuns)
    assert asked.options == {"power_cycles": 2}


def withheld(*names: str) -> Topology:
    whole = hardware()
    nodes = tuple(n.model_copy(update={"recovery_allowed": n.name not in names}) for n in whole.nodes)
    return whole.model_copy(update={"nodes": nodes})


def test_what_the_inventory_withholds_is_never_touched_whatever_the_run_consents_to() -> None:
    plan = plan_of(withheld("gpu2", "head"), ("recovery",), options={"reboots": 3, "power_cycles": 2})
    assert [m.id for m in plan.measurements] == ["recovery-reboots.gpu1", "recovery-dead.gpu1"]
    said = {left.why: left.criteria for left in plan.left_out}
    assert said["recovery: the inventory withholds it of the head (recovery_allowed: false)"] == ("rc.head",)
    assert any("(recovery_allowed: false) of head, gpu2" in why for why in said)
    plan = plan_of(withheld("gpu1", "gpu2"), ("recovery",), options={"reboots": 3})
    assert [m.id for m in plan.measurements] == ["recovery-head.head"]


def test_the_inventory_withholds_it_of_a_group(tmp_path: Path) -> None:
    hosts = "gpu_servers:\n  vars: {recovery_allowed: WORD}\n  hosts:\n    gpu1: {ansible_host: 10.0.0.1}\n"
    path = tmp_path / "hosts.yml"
    path.write_text(hosts.replace("WORD", "false"))
    assert [n.recovery_allowed for n in read_inventory(path).nodes] == [False]
    path.write_text(hosts.replace("WORD", "sometimes"))
    with pytest.raises(InventoryError, match=r"hosts\.yml:2: gpu1: recovery_allowed"):
        read_inventory(path)


def test_boots_that_are_the_same_pass_and_one_that_is_not_fails_with_what_it_lacks() -> None:
    found = judged({"recovery-reboots.gpu1": recorded("reboots")})["rc.reboot"].judgements
    assert (found[0].verdict, found[0].text) == ("pass", "3 of 3 boots the same, ready after 3.4 to 3.8 s")
    assert (found[1].verdict, found[1].reason_code) == ("not-measured", "tool-failed")
    boots = json.loads(recorded("reboots")["stdout"])["boots"]
    boots[1]["reading"]["gpu"] = boots[1]["reading"]["gpu"][1:]
    boots[2]["reading"]["failed"] = ["slurmd.service"]
    first = judged({"recovery-reboots.gpu1": changed("reboots", boots=boots)})["rc.reboot"].judgements[0]
    assert (first.verdict, first.reason.startswith("1 of 3 boots the same")) == ("fail", True)
    assert "boot 2: GPU GPU-15d5ac90" in first.reason
    assert "boot 3: failed unit slurmd.service is new" in first.reason


def test_a_boot_id_that_is_there_twice_is_no_boot() -> None:
    boots = json.loads(recorded("reboots")["stdout"])["boots"]
    boots[1]["reading"]["boot"] = boots[0]["reading"]["boot"]
    with pytest.raises(ParseError, match="2 boots have an id of their own, not 3"):
        parse("recovery", changed("reboots", boots=boots), {"what": "reboots", "times": 3})


def test_a_dead_node_that_is_found_and_back_in_time_passes() -> None:
    found = judged({"recovery-dead.gpu2": recorded("dead")})
    assert (found["rc.dead"].verdict, found["rc.back"].verdict) == ("pass", "pass")


def test_a_dead_node_that_keeps_its_work_or_stays_away_fails() -> None:
    states = [[5.0, "mixed", "RUNNING"], [20.0, "mixed", "RUNNING"]]
    found = judged({"recovery-dead.gpu2": changed("dead", states=states)})
    assert (found["rc.dead"].verdict, found["rc.back"].verdict) == ("fail", "fail")
    late = [[5.0, "mixed", "RUNNING"], [400.0, "down*", "NODE_FAIL"], [9000.0, "idle", "back"]]
    doc = changed("dead", dead_at=10.0, alive_at=20.0, states=late)
    found = judged({"recovery-dead.gpu2": doc})
    assert (found["rc.dead"].judgements[0].value, found["rc.dead"].verdict) == (390.0, "fail")
    assert (found["rc.back"].judgements[0].value, found["rc.back"].verdict) == (8980.0, "fail")


def test_a_server_with_a_job_is_not_rebooted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(ssh: list[str], words: str, timeout_s: float = 0) -> Ran:
        asked.append(words)
        said = {"squeue": "17", "sinfo": "mixed", "LC_ALL=C; export": "EAI boot b\nEAI system running\nEAI end\n"}
        out = next((text for mark, text in said.items() if mark in words), "")
        return Ran(["ssh"], 0, out, "")

    monkeypatch.setattr(recovery_steps, "ask", answer)
    doc = recovery_probe.probe(recovery_probe.Asked("reboots", "gpu1", ["ssh", "root@gpu1"], ["ssh", "root@head"]))
    assert doc["error"] == "gpu1: 17 runs there; nothing was rebooted"
    assert not any("systemctl reboot" in words or "drain" in words for words in asked)


READ = "EAI boot {}\nEAI system running\nEAI link fab0 1\nEAI end\n"


class Head:
    """A head with Slurm: boots when it is told to, and what it says then."""

    def __init__(self, nodes: str = "gpu1 mixed\ngpu2 idle\n", job: str = "RUNNING", boot: str = "a") -> None:
        self.boot, self.after, self.job, self.asked = boot, nodes, job, list[str]()

    def ask(self, ssh: list[str], words: str, timeout_s: float = 0) -> Ran:
        self.asked.append(words)
        time.sleep(0.002)
        booted = any("systemctl reboot" in one for one in self.asked)
        said = {
            "sbatch": "17\n",
            "squeue": "17 RUNNING\n18 PENDING\n",
            "sinfo": self.after if booted else "gpu1 mixed\ngpu2 idle\n",
            "show job 17": f"JobState={self.job if booted else 'RUNNING'}\n",
            "show job 18": "JobState=PENDING\n",
            "EAI boot": READ.format("b" if booted else self.boot),
        }
        return Ran(["ssh"], 0, next((text for mark, text in said.items() if mark in words), ""), "")


def head_asked() -> recovery_probe.Asked:
    return recovery_probe.Asked("head", "head", ["ssh", "root@head"], ["ssh", "root@head"])


def restart(monkeypatch: pytest.MonkeyPatch, head: Head) -> Any:
    monkeypatch.setattr(recovery_steps, "ask", head.ask)
    monkeypatch.setattr(recovery_steps, "told", lambda words: 0)
    monkeypatch.setattr(recovery_head, "SETTLE_S", 0.0)
    return recovery_probe.probe(head_asked())


def test_a_head_whose_slurm_is_as_before_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    doc = restart(monkeypatch, Head())
    assert doc["error"] is None
    one = judged({"recovery-head.head": doc})["rc.head"].judgements[0]
    assert (one.verdict, "2 jobs and 2 nodes as before" in one.reason) == ("pass", True)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (Head(nodes="gpu1 mixed\ngpu2 down*\n"), "gpu2 was idle, is down*"),
        (Head(nodes="gpu1 mixed\n"), "gpu2 was idle, is unknown"),
        (Head(job="NODE_FAIL"), "job 17 was running, is node_fail"),
        (Head(job=""), "job 17 was running, is unknown"),
    ],
)
def test_what_the_heads_restart_cost_is_named(monkeypatch: pytest.MonkeyPatch, head: Head, words: str) -> None:
    one = judged({"recovery-head.head": restart(monkeypatch, head)})["rc.head"].judgements[0]
    assert (one.verdict, one.reason_code, words in one.reason) == ("fail", "not-equal", True), one.reason


def test_a_head_that_validates_is_not_rebooted(monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head(boot=recovery_head.BOOT_ID.read_text().strip())
    doc = restart(monkeypatch, head)
    assert doc["error"] == "head is the machine that validates; validate from another one"
    assert not any("reboot" in words for words in head.asked)


def test_a_restart_that_contradicts_itself_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    doc = restart(monkeypatch, Head())
    said = json.loads(doc["stdout"])
    for changes in (
        {"jobs": {}},
        {"settled_s": said["serves_s"] - 0.001},
        {"boot": {**said["boot"], "reading": said["before"]}},
    ):
        with pytest.raises(ParseError):
            parse("recovery", {**doc, "stdout": json.dumps({**said, **changes})}, {"what": "head"})
