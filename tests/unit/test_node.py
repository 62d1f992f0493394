"""`toolkit node`: what is refused before anything changes, how leases are waited for, and what accepts a node."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support import site
from tests.support.lease_texts import answer, node_text, slurm_job
from tests.support.report_fixture import make_run
from tests.support.signing_case import NEEDS_SSH, make_key
from toolkit.errors import UsageFault
from toolkit.lease.jobs.slurm_text import parse_nodes
from toolkit.node import accept, checks, join, leave, playbooks
from toolkit.node.drain import DrainReason, read_drain
from toolkit.node.head import Head
from toolkit.node.leave import wait_empty
from toolkit.node.state import Kept
from validation.base.project import ROOT
from validation.run.catalogue import load_criteria
from validation.verdict.addendum import facts_of, faults_of, figures_of

LAB = site.lab(("head", "client1", "gpu1", "gpu2"))
GROWN = site.lab(("head", "client1", "gpu1", "gpu2", "gpu3"))
CATALOGUE = {c.id: c for c in load_criteria()}
SUITES = ("preflight", "transport")


def of_node(spoil=None, suites=SUITES):
    """The verdict of gpu3 and its peers."""
    topology = GROWN.model_copy(update={"nodes": tuple(n for n in GROWN.nodes if n.name not in ("gpu1", "gpu2"))})
    plan = site.plan_of(topology, suites)
    return site.verdict_of(topology, plan, site.results_of(plan, spoil))


def accepted():
    plan = site.plan_of(LAB)
    return site.verdict_of(LAB, plan, site.results_of(plan))


def test_a_healthy_node_is_accepted_although_training_is_not_repeated():
    assert faults_of(accepted(), of_node(), CATALOGUE, SUITES) == ()


def test_a_slow_link_a_missing_measurement_and_a_silent_probe_are_faults():
    def slow(m):
        mine = m.kind == "tcp-bandwidth" and "gpu3" in m.nodes
        return site.with_value(m, 0.1) if mine else None

    assert any("tr.tcpbw fails" in fault for fault in faults_of(accepted(), of_node(slow), CATALOGUE, SUITES))

    def silent(m):
        return site.result(m, status="failed") if m.kind == "tcp-latency" else None

    found = faults_of(accepted(), of_node(silent), CATALOGUE, SUITES)
    assert any("was planned and is missing" in fault for fault in found)


def test_what_was_accepted_and_is_not_shown_is_a_fault_only_where_its_suite_was_measured():
    now = of_node()
    bare = now.model_copy(
        update={
            "criteria": tuple(
                c.model_copy(update={"verdict": "not-measured", "reason": "nobody looked"}) if c.id == "tr.tcpbw" else c
                for c in now.criteria
            )
        }
    )
    assert any(
        "tr.tcpbw passed in run-1 and is not measured" in f for f in faults_of(accepted(), bare, CATALOGUE, SUITES)
    )
    assert faults_of(accepted(), bare, CATALOGUE, ("preflight",)) == ()


def test_a_figure_worse_than_any_accepted_one_is_told():
    def less(m):
        return site.with_value(m, 0.97) if m.kind == "tcp-bandwidth" and "gpu3" in m.nodes else None

    found = {one.criterion: one for one in figures_of("gpu3", accepted(), of_node(less), CATALOGUE)}
    assert found["tr.tcpbw"].beyond
    assert found["tr.tcpbw"].value < found["tr.tcpbw"].accepted_low
    assert "gpu3" in found["tr.tcpbw"].subject
    assert not next(o for o in figures_of("gpu3", accepted(), of_node(), CATALOGUE) if o.criterion == "tr.tcpbw").beyond


def test_facts_are_held_against_the_same_node_else_against_most_of_its_group():
    before = {"gpu1": {"os": "a", "driver": "1"}, "gpu2": {"os": "a", "driver": "1"}, "head": {"os": "b"}}
    now = {"gpu3": {"os": "a", "driver": "2", "clock_offset_s": "1"}}
    (one,) = facts_of("gpu3", ["gpu1", "gpu2"], before, now)
    assert (one.fact, one.accepted, one.now) == ("driver", "1", "2")
    (one,) = facts_of("gpu2", ["gpu1"], before, {"gpu2": {"os": "a", "driver": "9"}})
    assert (one.accepted, one.now) == ("1", "9")
    assert facts_of("gpu3", [], {}, now) == ()


class Asked(Head):
    """The head, whose commands are answered here: the ssh that would carry them is what is not there."""

    def __init__(self, *jobs: bytes, nodes: str = "") -> None:
        super().__init__(LAB)
        self.jobs, self.text, self.said = list(jobs), nodes, []

    def run(self, words, timeout_s=0.0):
        self.said.append(list(words))
        out = b""
        if words[0] == "squeue":
            out = self.jobs.pop(0) if len(self.jobs) > 1 else self.jobs[0]
        elif words[:2] == ["scontrol", "show"]:
            out = self.text.encode()
        return subprocess.CompletedProcess(words, 0, out, b"")

    @property
    def ended(self):
        return [words for words in self.said if words[0] in ("toolkit", "scancel")]


def waited(head, grace_s=None):
    clock, said = [0.0], []

    def pause(s):
        clock[0] += s

    wait_empty(head, "gpu1", grace_s, said.append, pause, lambda: clock[0])
    return said, clock[0]


def test_leases_are_waited_for_and_nobody_is_ended_without_grace():
    busy = answer(slurm_job(41) + slurm_job(42, node="gpu2"))
    head = Asked(busy, busy, answer(slurm_job(42, node="gpu2")))
    said, took_s = waited(head)
    assert len(said) == 1
    assert "1 still there after 0 s: lease 41 of alice" in said[0]
    assert took_s == 4
    assert head.ended == []


def test_with_grace_a_lease_is_told_at_once_and_a_native_job_ends_when_it_is_over():
    busy = answer(slurm_job(41) + slurm_job(43, name="train", comment="", gres="gpu:v100:1(IDX:0)"))
    head = Asked(*[busy] * 6, answer([]))
    waited(head, 8)
    assert head.ended == [["toolkit", "lease", "release", "41", "--grace", "8"], ["scancel", "43"]]
    first = head.said.index(["scancel", "43"])
    assert sum(words[0] == "squeue" for words in head.said[:first]) == 5  # after 8 s, and not at once


def test_jobs_that_end_or_wait_hold_nobody_up():
    head = Asked(answer(slurm_job(41, state="COMPLETED") + slurm_job(44, state="PENDING", gres="", node="")))
    assert waited(head) == ([], 0.0)


def pool(**states):
    """Servers with a state and a reason."""
    text = "\n\n".join(node_text(name, state=state) for name, state in states.items())
    return {node.name: node for node in parse_nodes(text)}


def test_nodes_that_cannot_join_are_refused():
    with pytest.raises(UsageFault, match=r"gpu9 is not in inv; add it to group gpu_servers there first \(in a lab"):
        checks.node_of(LAB, Path("inv"), "gpu9")
    with pytest.raises(UsageFault, match="client1 is no GPU server"):
        checks.node_of(LAB, Path("inv"), "client1")
    with pytest.raises(UsageFault, match="gpu1 is in the pool and serves"):
        checks.joinable(pool(gpu1="IDLE"), "gpu1", again=False)
    with pytest.raises(UsageFault, match=r"in the pool already, idle\+drain"):
        checks.joinable(pool(gpu1="IDLE+DRAIN"), "gpu1", again=False)
    checks.joinable(pool(gpu1="IDLE+DRAIN"), "gpu1", again=True)
    checks.joinable(pool(gpu1="IDLE"), "gpu3", again=False)


def test_the_last_server_does_not_leave(tmp_path):
    with pytest.raises(UsageFault, match="last GPU server"):
        checks.removable(site.lab(("head", "gpu1")), tmp_path, pool(gpu1="IDLE"), "gpu1")


def test_the_head_does_not_leave_although_it_is_a_gpu_server(tmp_path, monkeypatch):
    head = LAB.node("head").model_copy(update={"groups": ("heads", "gpu_servers")})
    lab = LAB.model_copy(update={"nodes": (head, *LAB.nodes[1:])})
    assert checks.node_of(lab, Path("inv"), "head") == head
    asked = Asked(answer([]), nodes=node_text("head", state="IDLE"))
    found = type("Site", (), {"topology": lab})()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for module in (leave, join):
        monkeypatch.setattr(module, "read_site", lambda inventory: found)
        monkeypatch.setattr(module, "Head", lambda topology: asked)
    with pytest.raises(UsageFault, match=r"head is the head .*node remove would take Slurm"):
        leave.remove("head", tmp_path / "inventory", None, False, print)
    newcomer = join.Newcomer("head", tmp_path / "inventory", tmp_path, None, (), None, None)
    with pytest.raises(UsageFault, match=r"head is the head .*node replace would take Slurm"):
        join.Joining("replace", newcomer, print)
    assert asked.said == []


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("  reservations: {course: {for: [all], class: v100, nodes: [gpu1], from: '08:00', hours: 4}}", "names gpu1"),
        ("  reservations: {course: {for: [all], class: v100, nodes: 2, from: '08:00', hours: 4}}", "wants 2 servers"),
    ],
)
@pytest.mark.parametrize("name", ["pool.yml", "everything.yml"])
def test_a_server_that_the_policy_needs_does_not_leave(tmp_path, policy, words, name):
    file = tmp_path / "group_vars/all" / name
    file.parent.mkdir(parents=True)
    (tmp_path / "hosts.yml").write_text("all: {children: {gpu_servers: {hosts: {head: , gpu1: , gpu2: }}}}\n")
    file.write_text(
        f"---\nslurm_pool:\n  users: {{all: {{users: [anna], max_hours: '{{{{ 4 }}}}'}}}}\n"
        f"  classes: {{v100: {{}}}}\n{policy}\n"
    )
    with pytest.raises(UsageFault, match=f"{name}:5: reservation course {words}"):
        checks.removable(LAB, tmp_path, pool(gpu1="IDLE", gpu2="IDLE"), "gpu1")


def test_peers_are_nodes_where_measuring_disturbs_nobody():
    busy = {"gpu1": [object()], "gpu2": []}
    assert [n.name for n in checks.peers_of(GROWN, "gpu3", (), busy)] == ["head", "client1"]
    servers = site.lab(("gpu1", "gpu2", "gpu3"))
    assert [n.name for n in checks.peers_of(servers, "gpu3", (), busy)] == ["gpu2"]
    with pytest.raises(UsageFault, match="no peer for gpu3"):
        checks.peers_of(servers, "gpu3", (), {"gpu1": [1], "gpu2": [1]})
    with pytest.raises(UsageFault, match="--peers gpu1: 1 lease or jobs run there"):
        checks.peers_of(servers, "gpu3", ["gpu1"], busy)
    with pytest.raises(UsageFault, match="--peers gpu3: not another node"):
        checks.peers_of(servers, "gpu3", ["gpu3"], busy)


def test_the_accepted_run_is_the_newest_that_was_accepted_of_this_site(tmp_path):
    with pytest.raises(UsageFault, match="no accepted run of site lab, which gpu3"):
        checks.accepted_run(tmp_path, None, LAB, "gpu3")
    good = make_run(tmp_path / "2026-11-21")
    bad = make_run(tmp_path / "2026-11-22", slow="gpu2")
    part = make_run(tmp_path / "2026-11-23", suites=("preflight",))  # passes, and shows nothing of the network
    assert checks.accepted_run(tmp_path, None, LAB, "gpu3") == good
    assert checks.accepted_run(tmp_path, part.name, LAB, "gpu3") == part
    with pytest.raises(UsageFault, match="held against a run that was accepted"):
        checks.accepted_run(tmp_path, bad.name, LAB, "gpu3")


def test_what_is_unfinished_goes_on_and_another_command_for_the_node_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    kept = Kept(tmp_path / "hosts.yml", "gpu3")
    assert kept.read() is None
    kept.step(kept.begin("add", "gpu3"), "provisioned")
    assert kept.begin("add", "gpu3").done == ("provisioned",)
    with pytest.raises(UsageFault, match=r"'toolkit node add gpu3' of .* is not finished"):
        kept.begin("replace", "gpu3")
    assert kept.begin("remove", "gpu3").done == ()  # its machine died, say: no add of it ever ends
    with pytest.raises(UsageFault, match=r"'toolkit node remove gpu3' of .* is not finished"):
        kept.begin("add", "gpu3")
    kept.path.write_text("torn {")
    assert kept.read() is None
    kept.clear()


class Way:
    """A node's way in: what was done in which order. Playbooks and measurements, made elsewhere, stand in here."""

    def __init__(self, tmp_path, monkeypatch, slow=None, fails=None):
        self.done: list[str] = []
        self.head = Asked(answer([]), nodes=node_text("gpu1", state="IDLE") + "\n" + node_text("gpu2", state="IDLE"))
        self.runs = tmp_path / "runs"
        make_run(self.runs / "2026-11-21")
        self.slow, self.fails = slow, fails
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        record = type("Record", (), {"model_copy": lambda self, update: self, "hosts": ()})()
        monkeypatch.setattr(join, "read_site", lambda inventory: type("S", (), {"topology": GROWN, "record": record})())
        monkeypatch.setattr(join, "Head", lambda topology: self.head)
        monkeypatch.setattr(join, "answers", lambda node: True)
        monkeypatch.setattr(checks, "declared", lambda *_: None)
        monkeypatch.setattr(join.accept, "measure_node", self._measure)
        monkeypatch.setattr(playbooks, "run", self._playbook)
        self.inventory = tmp_path / "inventory"

    def _playbook(self, playbook, inventory, limit, arguments=()):
        if self.fails and self.fails in self.done:
            raise playbooks.PlaybookFault("gpu3 failed", 1)
        what = f"{playbook} {limit or 'all'}"
        self.done.append(what)
        assert any("slurm_joining" in word and "gpu3" in word for word in arguments)
        self.head.text = "\n".join(node_text(n, state="IDLE") for n in ("gpu1", "gpu2"))
        self.head.text += "\n" + node_text("gpu3", state="IDLE+DRAIN", reason="toolkit node add: not accepted yet")

    def _measure(self, asked, runs_dir, earlier, begun):
        self.done.append("measured")
        names = ("head", "client1", "gpu3")
        run = earlier or make_run(runs_dir / "2026-11-23", names=names, slow=self.slow, suites=SUITES)
        begun(run)
        return run

    def join(self, key=None, who=None):
        joining = join.Joining(
            "add", join.Newcomer("gpu3", self.inventory, self.runs, None, (), key, who), self.done.append
        )
        return joining.join()

    @property
    def updates(self):
        return [words[2:] for words in self.head.said if words[:2] == ["scontrol", "update"]]


def test_a_node_is_resumed_only_after_it_was_accepted(tmp_path, monkeypatch):
    way = Way(tmp_path, monkeypatch)
    resume = way.head.resume

    def resumed(name):
        resume(name)
        way.done.append("resumed")
        way.head.text = way.head.text.replace("IDLE+DRAIN", "IDLE")

    monkeypatch.setattr(way.head, "resume", resumed)
    found = way.join()
    assert found.accepted
    steps = [one for one in way.done if one.startswith("site.yml") or one in ("measured", "resumed")]
    assert steps == ["site.yml gpu3,head", "site.yml all", "measured", "resumed"]
    assert (way.runs / "2026-11-23/addendum.json").is_file()
    assert "suite training" in found.not_repeated


def test_a_node_that_fails_its_acceptance_stays_drained_and_nothing_else_is_touched(tmp_path, monkeypatch):
    way = Way(tmp_path, monkeypatch, slow="gpu3")
    found = way.join()
    assert not found.accepted
    assert any("tr.tcpbw fails" in fault for fault in found.faults)
    assert way.updates == [["nodename=gpu3", "state=drain", f"reason=toolkit node add: not accepted, {found.run}"]]
    assert any("gpu3 is not accepted: " in line for line in way.done)
    assert Kept(way.inventory, "gpu3").read() is None  # the next time it is provisioned and measured anew


def test_an_interrupted_add_goes_on_after_what_is_done(tmp_path, monkeypatch):
    way = Way(tmp_path, monkeypatch, fails="site.yml gpu3,head")
    with pytest.raises(playbooks.PlaybookFault):
        way.join()
    assert way.updates == []
    way.fails, way.done = None, []
    way.slow = "gpu3"
    way.join()
    assert [one for one in way.done if one.startswith("site.yml")] == ["site.yml all"]


def test_a_node_that_serves_before_its_acceptance_stops_everything(tmp_path, monkeypatch):
    way = Way(tmp_path, monkeypatch)
    playbook = way._playbook

    def undrained(*args):
        playbook(*args)
        way.head.text = way.head.text.replace("IDLE+DRAIN", "IDLE")

    monkeypatch.setattr(playbooks, "run", undrained)
    with pytest.raises(UsageFault, match="it should be drained until accepted"):
        way.join()
    assert "measured" not in way.done


def test_refusals_come_before_anything_is_done(tmp_path, monkeypatch):
    way = Way(tmp_path, monkeypatch)
    for path in (way.runs / "2026-11-21").glob("verdict.json"):
        path.unlink()
    with pytest.raises(UsageFault, match="no accepted run"):
        way.join()
    assert way.done == []
    assert way.updates == []


def test_another_engine_than_the_site_has_is_refused_while_leases_run(tmp_path, monkeypatch):
    """All others would get it as they learn of the node, and every program on it would lose its lease."""
    wanted, there = "ab" * 32, "cd" * 32
    way = Way(tmp_path, monkeypatch)
    monkeypatch.setattr(checks, "declared", lambda *_: wanted)
    run, mark = way.head.run, {"sha256": there, "code": 0}

    def answered(words, timeout_s=0.0):
        if words[0] == "cat":
            return subprocess.CompletedProcess(words, mark["code"], mark["sha256"].encode() + b"\n", b"")
        return run(words, timeout_s)

    monkeypatch.setattr(way.head, "run", answered)
    busy, way.head.jobs = [answer(slurm_job(41) + slurm_job(42, node="gpu2"))], [answer([])]
    checks.engine_stays(way.inventory, way.head)  # nobody loses anything
    way.head.jobs = busy
    with pytest.raises(UsageFault, match=r"site has the engine cdcdcdcdcdcd…; to exchange it would end 2 leases"):
        way.join()
    assert [one for one in way.done if one.startswith("site.yml")] == []
    for sha256, code in ((wanted, 0), ("", 1)):  # the same, and none
        mark.update(sha256=sha256, code=code)
        checks.engine_stays(way.inventory, way.head)


def test_so_is_another_engine_beside_the_first(tmp_path, monkeypatch):
    way = Way(tmp_path, monkeypatch)
    monkeypatch.setattr(checks, "declared", lambda _inventory, _node, name: "ab" * 32 if "torch" in name else None)

    def answered(words, timeout_s=0.0):
        there = words == ["cat", "/opt/elastic-ai/engine/beside/torch/current/.sha256"]
        return subprocess.CompletedProcess(words, 0 if there else 1, b"cd" * 32 if there else b"", b"")

    run = way.head.run
    monkeypatch.setattr(way.head, "run", lambda words, t=0.0: answered(words) if words[0] == "cat" else run(words, t))
    way.head.jobs = [answer(slurm_job(41))]
    with pytest.raises(UsageFault, match=r"remoting_engine_torch_sha256 is abab.*would end 1 lease\."):
        checks.engine_stays(way.inventory, way.head)


@NEEDS_SSH
def test_the_addendum_is_signed_with_its_run(tmp_path):
    before = make_run(tmp_path / "before")
    run = make_run(tmp_path / "run", names=("head", "client1", "gpu3"), suites=SUITES)
    node, peers = GROWN.node("gpu3"), [GROWN.node("head"), GROWN.node("client1")]
    found = accept.conclude("add", run, before, node, peers)
    assert found.accepted, found.faults
    key = make_key(tmp_path / "key")
    assert "signed by A. Example" in accept.signed(run, key, "A. Example, Example AG")
    assert "addendum.json" in (run / "MANIFEST.sha256").read_text()
    assert accept.conclude("add", run, before, node, peers) == found  # what is signed stands


@pytest.mark.parametrize(
    "drain", [DrainReason("add"), DrainReason("replace", "not accepted, runs/a: b"), DrainReason("remove")]
)
def test_why_a_node_is_drained_is_read_as_it_was_written(drain: DrainReason) -> None:
    assert read_drain(drain.text) == drain


def test_a_node_on_its_way_in_is_known_by_what_the_role_writes_and_others_drains_are_not() -> None:
    role = yaml.safe_load((ROOT / "roles/slurm/vars/main.yml").read_text(encoding="utf-8"))
    assert read_drain(role["__slurm_joining_reason"]) == DrainReason("add", "not accepted yet")
    for text in ("", "toolkit node", "toolkit node addled", "maintenance; toolkit node add", "Not responding"):
        assert read_drain(text) is None
