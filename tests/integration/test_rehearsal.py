"""The spine, end to end on real nodes; and broken on purpose: the validation must find what broke."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from conftest import BIN, ROOT, Lab, Provisioned, Run, toolkit

from tests.support.browser import Browser, complaints, requests
from tests.support.lab_runs import nothing_left, planned, result_ids
from toolkit.lab import lab as labs
from toolkit.lab import network

pytestmark = pytest.mark.usefixtures("quiet")


def criterion(verdict: dict, id_: str) -> dict:
    return next(c for c in verdict["criteria"] if c["id"] == id_)


def payload_rate(rate_gbps: float) -> float:
    """What TCP carries over a link of that rate in packets of 9000 bytes, whose headers are no payload."""
    return rate_gbps * (9000 - 52) / (9000 + 38)


def begin(lab: Lab, runs: Path, *args: str) -> tuple[subprocess.Popen[str], Path]:
    """A validation in the background, and its run directory once it has three results."""
    words = [BIN / "toolkit", "validate", "--fabric", "tcp10", "-i", lab.inventory, "--runs-dir", runs, *args]
    process = subprocess.Popen([str(w) for w in words], cwd=ROOT, text=True, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        folders = list(runs.iterdir()) if runs.is_dir() else []
        if folders and len(result_ids(folders[0])) >= 3:
            return process, folders[0]
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.1)
    raise AssertionError("the validation made no results")


def test_containers_run_on_a_node(provisioned: Provisioned):
    """Its image stays, as users leave theirs: the clean validation below finds the site converged all the same."""
    lab = provisioned.lab
    libraries = "usr/lib/x86_64-linux-gnu/libc.so.6 usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 usr/lib64"
    lab.ssh("gpu1", f"tar -C / -c bin lib lib64 {libraries} usr/bin/echo | docker import - tiny >/dev/null")
    out = lab.ssh("gpu1", "docker run --rm --privileged --ulimit memlock=-1:-1 --network host tiny /bin/echo works")
    assert out.strip() == "works"


def test_mpirun_uses_neither_root_nor_the_operators_key(provisioned: Provisioned):
    lab = provisioned.lab
    operator = (lab.inventory / ".lab" / "id_ed25519").read_text()
    assert "PRIVATE KEY" in operator
    held = lab.ssh("head", "cat /etc/elastic-ai/training/* /root/.ssh/* /home/*/.ssh/* 2>/dev/null || true")
    assert operator not in held
    assert "elastic-ai-train" in lab.ssh("gpu1", "stat -c %U /etc/elastic-ai/training/id_ed25519")


def test_clean_lab_rehearses_with_all_criteria_passing(clean: Run):
    """Everything that this lab can show passes, everything else says why it was not measured; no suspect is named."""
    run, verdict = clean, clean.verdict
    assert run.exit_code == 0, run.stderr
    assert (verdict["sign_off"], verdict["outcome"]) == ("REHEARSAL", "passed")
    assert verdict["measured"] == verdict["planned"] == len(planned(run.folder).measurements)
    assert verdict["findings"] == []
    for id_ in ("pf.bom", "pf.stack", "pf.mtu", "tr.tcpbw", "tr.netlat", "tn.short"):
        assert criterion(verdict, id_)["verdict"] == "pass", criterion(verdict, id_)
    assert len(criterion(verdict, "tr.tcpbw")["judgements"]) == 12
    for id_ in ("tn.intra", "tn.inter", "tr.nccl"):
        assert criterion(verdict, id_)["reason_code"] == "virtual"
        assert all(j["value"] > 0 for j in criterion(verdict, id_)["judgements"])
    assert criterion(verdict, "rm.ratio")["verdict"] == "not-measured"
    steps = [r for r in map(json.loads, (run.folder / "results.jsonl").read_text().splitlines())]
    inter = next(r for r in steps if r["measurement"] == "training-short.inter")
    assert len([s for s in inter["samples"] if s["metric"] == "images_per_s"]) == 100


def test_a_validation_finds_it_as_built_and_converged(clean: Run):
    """By checks that know nothing of the roles, and by site.yml in check mode, which sees nothing to do."""
    for id_ in ("pf.asbuilt", "pf.converged"):
        found = criterion(clean.verdict, id_)
        assert (found["verdict"], found["coverage"]) == ("pass", "4/4 nodes"), found


def test_every_link_of_the_clean_lab_is_measured_at_its_true_payload_rate(clean: Run):
    """The pipeline from iperf3 to the judgement tells the rate that the lab shaped, of each of twelve directions."""
    truth = payload_rate(1.0)
    for j in criterion(clean.verdict, "tr.tcpbw")["judgements"]:
        assert j["low"] / 1.03 <= truth <= j["high"] * 1.03, j
        assert j["value"] <= truth * 1.03, j


def test_report_of_the_lab_opens_in_a_browser(clean: Run, browser: Browser):
    """What real measurements leave in the report is shown without a complaint, a request or a scroll bar."""
    page = clean.folder / "report.html"
    events = browser.open(page, 1280)
    assert complaints(events) == []
    assert [url for url in requests(events) if url != "data:,"] == [page.as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") <= 1280, "scrolls sideways"
    assert browser.evaluate("document.querySelector('.mark').innerText").startswith("REHEARSAL")


def test_rdma_fabric_is_refused_by_name_before_anything_runs(provisioned: Provisioned, tmp_path: Path):
    done = toolkit("validate", "--fabric", "roce40", "-i", provisioned.lab.inventory, "--runs-dir", tmp_path / "runs")
    assert done.returncode == 2
    for name in ("head", "client1", "gpu1", "gpu2"):
        assert name in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.rest
def test_killed_validation_resumes_without_repeating(provisioned: Provisioned, tmp_path: Path):
    lab = provisioned.lab
    process, run = begin(lab, tmp_path / "runs", "--suite", "preflight", "--suite", "transport")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert nothing_left(lab) == {}
    with (run / "results.jsonl").open("a") as results:
        results.write('{"measurement": "tcp-bandwi')  # as a kill in the middle of a write leaves it
    before = result_ids(run)
    done = toolkit("validate", "--resume", run, "--json")
    assert done.returncode == 0, done.stderr
    after = result_ids(run)
    assert after[: len(before)] == before
    assert len(after) == len(set(after)) == len(planned(run).measurements)


@pytest.mark.rest
def test_ctrl_c_leaves_nothing_on_the_nodes(provisioned: Provisioned, tmp_path: Path):
    lab = provisioned.lab
    process, run = begin(lab, tmp_path / "runs")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert f"--resume {run}" in stderr
    assert nothing_left(lab) == {}


@pytest.mark.rest
def test_ctrl_c_during_training_ends_every_rank(provisioned: Provisioned, tmp_path: Path):
    lab = provisioned.lab
    words = [BIN / "toolkit", "validate", "--fabric", "tcp10", "--suite", "training", "-i", lab.inventory]
    process = subprocess.Popen([str(w) for w in [*words, "--runs-dir", tmp_path / "runs"]], cwd=ROOT)
    deadline = time.monotonic() + 120
    while not lab.processes("gpu2", "train_cnn") and time.monotonic() < deadline:
        time.sleep(0.3)
    assert lab.processes("gpu2", "train_cnn"), "the job never reached gpu2"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert nothing_left(lab) == {}


@pytest.mark.rest
def test_a_node_that_dies_costs_only_its_own_measurements(provisioned: Provisioned, tmp_path: Path):
    lab = provisioned.lab
    process, run = begin(lab, tmp_path / "runs", "--suite", "preflight", "--suite", "transport", "--json")
    toolkit("lab", "fault", "set", "--name", lab.name, "client1", "dead-node")
    try:
        process.communicate(timeout=300)
    finally:
        toolkit("lab", "fault", "clear", "--name", lab.name, "client1")
    assert process.returncode == 3
    verdict = json.loads((run / "verdict.json").read_text())
    assert (verdict["sign_off"], verdict["outcome"]) == ("REHEARSAL", "incomplete")
    assert verdict["missing"]
    for id_ in verdict["missing"]:
        assert "client1" in planned(run).measurement(id_).nodes
    assert {f["about"]["ends"][0]["node"] for f in verdict["findings"]} <= {"client1"}


@pytest.mark.rest
@pytest.mark.parametrize("rate_gbps", [0.1, 10.0])
def test_measured_bandwidth_is_the_links_true_payload_rate(provisioned: Provisioned, tmp_path: Path, rate_gbps: float):
    """Through the whole pipeline, between the two GPU servers, at a rate that the inventory declares."""
    lab = provisioned.lab
    spec = labs.load(lab.name)
    nodes = [spec.node(n) for n in ("gpu1", "gpu2")]
    if rate_gbps > 1:
        for node in nodes:
            network.shape_link(spec, node, 40)
        free = pair_bandwidth(lab, tmp_path / "free", 40)
        if min(free) < 1.25 * rate_gbps:
            for node in nodes:
                network.shape_link(spec, node, spec.rate_gbps)
            pytest.skip(f"this machine carries {min(free):.1f} Gbit/s between two nodes, too near to {rate_gbps:g}")
    for node in nodes:
        network.shape_link(spec, node, rate_gbps)
    try:
        measured = pair_bandwidth(lab, tmp_path / "shaped", rate_gbps)
    finally:
        for node in nodes:
            network.shape_link(spec, node, spec.rate_gbps)
    for value in measured:
        assert value == pytest.approx(payload_rate(rate_gbps), rel=0.03)


def pair_bandwidth(lab: Lab, folder: Path, rate_gbps: float) -> list[float]:
    """Medians of both directions between gpu1 and gpu2, measured and parsed by `toolkit validate`."""
    document = yaml.safe_load((lab.inventory / "hosts.yml").read_text())
    document["all"]["vars"]["lab_link"]["rate_gbps"] = rate_gbps
    document["all"]["children"] = {"gpu_servers": document["all"]["children"]["gpu_servers"]}
    for host in document["all"]["children"]["gpu_servers"]["hosts"].values():
        host["fabric_ports"][0]["rate_gbps"] = rate_gbps
    folder.mkdir()
    (folder / "hosts.yml").write_text(yaml.safe_dump(document))
    where = ["-i", folder, "--runs-dir", folder / "runs"]
    done = toolkit("validate", "--fabric", "tcp10", "--suite", "transport", *where, "--json")
    assert done.returncode in (0, 1, 3), done.stderr
    judged = criterion(json.loads(done.stdout), "tr.tcpbw")["judgements"]
    assert len(judged) == 2
    return [j["value"] for j in judged]


@pytest.mark.rest
def test_unreachable_and_refusing_nodes_are_all_named_at_once(provisioned: Provisioned, tmp_path: Path):
    document = yaml.safe_load((provisioned.lab.inventory / "hosts.yml").read_text())
    gpus = document["all"]["children"]["gpu_servers"]["hosts"]
    gpus["gpu1"]["ansible_host"] = "10.77.255.254"  # nobody has it
    gpus["gpu2"]["ansible_user"] = "nobody"
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(document))
    done = toolkit("validate", "--fabric", "tcp10", "-i", tmp_path, "--runs-dir", tmp_path / "runs")
    assert done.returncode == 2
    assert "gpu1" in done.stderr
    assert "gpu2" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.rest
def test_full_disk_is_one_clear_error_and_nothing_is_corrupt(provisioned: Provisioned, tmp_path: Path):
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", small], check=True)
    try:
        done = toolkit("validate", "--fabric", "tcp10", "-i", provisioned.lab.inventory, "--runs-dir", small / "runs")
        assert done.returncode == 2, done.stderr
        assert "space" in done.stderr.lower()
        assert "Traceback" not in done.stderr
        for results in small.glob("runs/*/results.jsonl"):
            result_ids(results.parent)  # every whole line is readable
    finally:
        os.sync()
        subprocess.run(["umount", small], check=True)
    assert nothing_left(provisioned.lab) == {}
