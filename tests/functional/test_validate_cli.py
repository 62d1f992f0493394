"""`toolkit validate`, `report` and `fabrics` from outside: exit codes, streams, interruption, resuming."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import answers
from tests.support.run_case import processes_of
from tests.support.warm import COMMAND_PATH, command
from validation.model import DENIED, REPORT, RunInfo, VerdictDoc
from validation.model.load import load_json, read_results
from validation.run.read import tied

SUPPORT = Path(__file__).parents[1] / "support"
TOOLS = pytest.mark.skipif(
    not (shutil.which("iperf3") and shutil.which("sockperf")), reason="iperf3 and sockperf are not installed here"
)
HOST = """
        gpu{n}:
          ansible_host: 127.0.0.{a}
          fabric_ports: [{{interface: lo, address: 127.0.0.{a}/8}}]
          bom: {{gpu_count: 0}}
"""


def start(cwd: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SUPPORT / "cli_here.py"), *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": COMMAND_PATH, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def toolkit(cwd: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": COMMAND_PATH, **environment}
    return command(cwd, arguments, environment, SUPPORT / "cli_here.py")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with an inventory of two nodes, both this machine."""
    return new_site(tmp_path)


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Such a folder with one run, of preflight, and what it ended with; to be copied."""
    folder = new_site(tmp_path_factory.mktemp("looked-at"))
    return folder, toolkit(folder, *TCP10, *PLAIN, "--suite", "preflight").returncode


@pytest.fixture
def run(looked_at: tuple[Path, int], tmp_path: Path) -> Path:
    """A copy of that run; the folder with its inventory is the parent of its parent."""
    shutil.copytree(looked_at[0], tmp_path, dirs_exist_ok=True)
    (found,) = runs(tmp_path)
    return found


def new_site(tmp_path: Path) -> Path:
    folder = tmp_path / "inventories" / "here"
    folder.mkdir(parents=True)
    hosts = "".join(HOST.format(n=n, a=n + 20) for n in (1, 2))
    (folder / "hosts.yml").write_text(
        "all:\n  vars: {elastic_ai_virtual: loopback, lab_link: {rate_gbps: 1.0, rtt_max_us: 5000}}\n"
        f"  children:\n    gpu_servers:\n      hosts:{hosts}"
    )
    return tmp_path


HERE_SITE = ("-i", "inventories/here")
TCP10 = ("validate", "--fabric", "tcp10", *HERE_SITE)
PLAIN = ("--format", "none")  # where the test is not about the report


def reports(run: Path) -> set[str]:
    """What was written of the report."""
    return {p.name for p in run.iterdir()} & {"report.html", "report.pdf", "report.json", "junit.xml", "metrics.prom"}


def runs(site: Path) -> list[Path]:
    return sorted((site / "runs").glob("*")) if (site / "runs").exists() else []


def test_the_long_test_by_itself_is_all_of_its_suite(site: Path) -> None:
    words = ("--suite", "training", "--long", "--data", "tiny", "--models", "small-resnet", "--epochs", "4")
    plan = json.loads(toolkit(site, *TCP10, *words, "--dry-run", "--json").stdout)["plans"][0]
    trained = [m for m in plan["measurements"] if m["suite"] == "training"]
    assert [(m["kind"], m["params"]["model"], m["params"]["epochs"]) for m in trained] == [
        ("training-long", "small-resnet", 4)
    ]
    assert {m["suite"] for m in plan["measurements"]} == {"preflight", "training"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("validate", *HERE_SITE), "give --fabric NAME, or set fabric in the inventory"),
        (("validate", "--fabric", "rose40", *HERE_SITE), "unknown fabric 'rose40'; did you mean roce40"),
        ((*TCP10, "--suite", "trnsport"), "unknown suite 'trnsport'; did you mean transport?"),
        (("validate", "--fabric", "tcp10", "-i", "inventories/lab"), "no such file; the lab's inventory is "),
        ((*TCP10, "--resume", "x"), "--fabric and --resume exclude each other"),
        (("validate", "--resume", "x", "--suite", "transport"), "--resume uses the suites and plan of the run"),
        (("validate", "--resume", "no-such-run"), "no-such-run: no such run"),
        ((*TCP10, "--summary"), "give --dry-run --summary"),
        ((*TCP10, "--suite", "training", "--long"), "--long: --data DIR is missing"),
        ((*TCP10, "--long", "--suite", "transport", "--data", "tiny"), "omit --suite transport"),
        ((*TCP10, "--epochs", "4"), "--epochs is of the long test; give --data DIR"),
        (("validate", "--resume", "x", "--long", "--data", "tiny"), "--long, --data: of a new run of suite training"),
        (("validate", "--resume", "x", "--dry-run", "--summary"), "omit --suite, --soak and --dry-run"),
        ((*TCP10, "--quick"), "--quick goes with --here"),
        ((*TCP10, "--anyway"), "--anyway goes with --here"),
        (("report",), "no run yet"),
        (("fabrics", "show", "tcp1"), "unknown fabric 'tcp1'"),
        ((*TCP10, "--suite", "training", "--bogus"), "No such option"),
        ((*TCP10, "--format", "docx"), "docx: no such format; there are: html, pdf, json, junit, prom, none"),
        ((*TCP10, "--format", "json", "--format", "none"), "none cannot go with others"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(site: Path, arguments: Sequence[str], words: str) -> None:
    done = toolkit(site, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert runs(site) == []


def test_unreachable_nodes_are_named_and_nothing_is_begun(site: Path) -> None:
    done = toolkit(site, *TCP10, REFUSE="gpu2")
    assert done.returncode == 2
    assert "1 of 2 nodes cannot be used; nothing was measured:\n  gpu2: does not answer" in done.stderr
    assert runs(site) == []


def test_a_fabric_without_its_devices_is_refused_before_anything_is_measured(site: Path) -> None:
    if any(Path("/sys/class/infiniband").glob("*")):
        pytest.skip("this machine has an RDMA device")
    done = toolkit(site, "validate", "--fabric", "roce40", *HERE_SITE)
    assert done.returncode == 2
    assert "2 of 2 nodes cannot do" in done.stderr
    assert "\n  gpu1: no RDMA device\n  gpu2: no RDMA device\n" in done.stderr
    assert "--fabric tcp10" in done.stderr
    assert done.stderr.endswith("; a lab with RDMA is brought up by: toolkit lab up --fabric roce40\n")
    pvrdma = toolkit(site, "validate", "--fabric", "pvrdma100", *HERE_SITE)
    assert pvrdma.returncode == 2
    assert "toolkit lab up" not in pvrdma.stderr, "no lab has such a device"
    assert runs(site) == []


def test_a_plan_is_no_verdict(site: Path) -> None:
    done = toolkit(site, *TCP10, "--dry-run", REFUSE="gpu1,gpu2")
    assert done.returncode == 0
    assert "NOT a verdict" in done.stdout
    assert not re.search(r"\b(ACCEPTED|REHEARSAL|PASS|passed)\b", done.stdout)
    planned = toolkit(site, *TCP10, "--dry-run", "--json", REFUSE="gpu1,gpu2")
    assert len(json.loads(planned.stdout)["plans"][0]["measurements"]) == 16
    assert runs(site) == []


def test_a_plan_in_a_few_lines_is_no_verdict_either(site: Path) -> None:
    done = toolkit(site, *TCP10, "--dry-run", "--summary", REFUSE="gpu1,gpu2")
    assert done.returncode == 0, done.stderr
    assert re.search(r"16 measurements in \d+ rounds, predicted \S+ without repeats", done.stdout)
    assert "covered: fabric ports, all pairs: 2 of 2 ports, 1 of 1 pair of ports" in done.stdout
    assert "NOT a verdict" in done.stdout
    (told,) = json.loads(toolkit(site, *TCP10, "--dry-run", "--summary", "--json").stdout)["outlines"]
    assert sum(step["measurements"] for step in told["steps"]) == 16
    assert told["predicted_s"] > 0
    several = toolkit(site, "validate", "--fabric", "tcp10,tcp25", *HERE_SITE, "--dry-run", "--summary", "--json")
    assert [one["fabric"] for one in json.loads(several.stdout)["outlines"]] == ["tcp10", "tcp25"]
    assert runs(site) == []


@TOOLS
def test_a_whole_run_is_judged_reported_and_can_be_judged_again(site: Path) -> None:
    suites = ("--suite", "preflight", "--suite", "transport")
    done = toolkit(site, *TCP10, *suites, "--json", "--format", "html", "--format", "junit", PORT_BANDWIDTH="15411")
    verdict = answers.check(done.stdout, "verdict")
    (run,) = runs(site)
    stored = load_json(run / "verdict.json", VerdictDoc)
    # Loopback is far faster than the 1 Gbit/s that the inventory declares: a fault of the measurement, never a pass.
    assert verdict["sign_off"] == stored.sign_off == "REHEARSAL"
    assert {c.id: c.verdict for c in stored.criteria}["tr.tcpbw"] == "not-measured"
    assert done.returncode == stored.exit_code != 0
    assert (verdict["measured"], verdict["planned"], verdict["missing"]) == (10, 10, []), done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("[")]
    assert len(lines) < 10, "no line for each, and none within 15 seconds"
    pattern = r"\[10/10\] tcp-latency gpu\d/lo>gpu\d/lo .*  left 0s"
    assert re.fullmatch(pattern, lines[-1])
    assert lines[-1].endswith("left 0s")
    info = load_json(run / "run.json", RunInfo)
    assert (info.site, info.inventory, info.command[:4]) == ("here", "inventories/here", ("toolkit", *TCP10[:3]))
    assert {p.name for p in run.iterdir()} >= {"topology.json", "plan.json", "fabric.yml", "criteria"}
    assert reports(run) == {"report.html", "junit.xml"}

    results = (run / "results.jsonl").read_bytes()
    again = toolkit(site, "validate", *PLAIN, "--rejudge", run.name, REFUSE="gpu1,gpu2", PORT_BANDWIDTH="15411")
    assert again.returncode == done.returncode
    assert f"run     {Path('runs') / run.name}\n" in again.stdout
    assert "above what is possible" in again.stdout
    assert again.stdout.endswith(f"exit code {done.returncode}\n")
    assert reports(run) == set()  # those of the earlier verdict neither
    assert (run / "results.jsonl").read_bytes() == results
    (kept,) = (run / "superseded").iterdir()
    assert (kept / "verdict.json").is_file()
    assert (run / "verdict.json").read_text() == (kept / "verdict.json").read_text()

    report = toolkit(site, "report", PORT_BANDWIDTH="15411")
    assert report.returncode == 0, report.stderr
    assert report.stdout.split()[0] == f"runs/{run.name}/report.html"
    names = {Path(line).name for line in report.stdout.split()}
    assert names == {"report.html", "report.pdf", "report.json", "junit.xml", "metrics.prom"}
    assert all((site / line).stat().st_size for line in report.stdout.split())
    assert (
        json.loads(toolkit(site, "report", run.name, "--json", PORT_BANDWIDTH="15411").stdout)["sign_off"]
        == "REHEARSAL"
    )


@TOOLS
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("tc"), reason="needs root, and tc, to shape the loopback")
def test_a_healthy_rehearsal_ends_with_0(site: Path) -> None:
    # Slow enough that the buffers bridge the moments in which a busy machine runs neither end.
    hosts = site / "inventories/here/hosts.yml"
    hosts.write_text(hosts.read_text().replace("rate_gbps: 1.0", "rate_gbps: 0.1"))
    run = [sys.executable, str(SUPPORT / "cli_here.py"), *TCP10, "--suite", "transport"]
    script = (
        'ip link set lo mtu 9000 up && tc qdisc add dev lo root tbf rate 100mbit burst 32kb latency 100ms && exec "$@"'
    )
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script, "sh", *run],
        cwd=site,
        env={**os.environ, "PYTHONPATH": COMMAND_PATH, "SECONDS_BANDWIDTH": "3"},
        capture_output=True,
        text=True,
        timeout=300,  # a busy machine measures again, four times at most
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("\nPASSED (rehearsal)   ")
    assert re.search(r"^report  runs/.*/report\.html$", done.stdout, re.MULTILINE)
    assert done.stdout.endswith("\nexit code 0\n")


def wait_until_measuring(process: subprocess.Popen[str], port: str) -> None:
    until = time.monotonic() + 120  # a busy machine takes its time to start Python
    while not processes_of("iperf3 -c", port):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "the measurement did not begin"
        time.sleep(0.2)


@TOOLS
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_an_interrupted_run_goes_on_where_it_was(site: Path, number: signal.Signals) -> None:
    port = str(15420 + number)
    suites = ("--suite", "preflight", "--suite", "transport")
    process = start(site, *TCP10, *suites, SECONDS_BANDWIDTH="30", PORT_BANDWIDTH=port)
    wait_until_measuring(process, port)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    (run,) = runs(site)
    if number == signal.SIGKILL:
        until = time.monotonic() + 10
        while processes_of(port, "iperf3"):
            assert time.monotonic() < until
            time.sleep(0.05)
    else:
        assert (process.returncode, out) == (130, "")
        assert "interrupted; 6 of 10 measurements are finished and kept" in err
        assert f"continue with: toolkit validate --resume runs/{run.name}" in err
    assert processes_of("iperf3", port) == []
    assert not (run / "verdict.json").exists()
    before = (run / "results.jsonl").read_bytes()
    assert before.count(b"\n") == 6

    if number != signal.SIGKILL:
        return  # resuming is the same for all
    # What is measured is the plan of the run, so make that shorter instead of waiting for two minutes.
    quick = {"SECONDS_BANDWIDTH": "2", "PORT_BANDWIDTH": port}
    plan = json.loads(toolkit(site, *TCP10, *suites, "--dry-run", "--json", **quick).stdout)["plans"][0]
    (run / "plan.json").write_text(json.dumps(plan | {"run": run.name}))
    refused = toolkit(site, "validate", *PLAIN, "--resume", str(run), **quick)
    assert refused.returncode == 2
    assert "plan.json: was changed since the run began" in refused.stderr
    info = load_json(run / "run.json", RunInfo).model_copy(update={"documents": tied(run)})
    (run / "run.json").write_text(info.model_dump_json())
    done = toolkit(site, "validate", *PLAIN, "--resume", str(run), **quick)
    assert "10 measurements in" in done.stderr
    assert "6 of them finished earlier" in done.stderr
    after, torn = read_results(run / "results.jsonl", run.name)
    assert torn is None
    assert (run / "results.jsonl").read_bytes().startswith(before), (
        "finished measurements are neither lost nor repeated"
    )
    assert len(after) == len({r.measurement for r in after}) == 10
    assert load_json(run / "verdict.json", VerdictDoc).missing == ()
    assert done.returncode == load_json(run / "verdict.json", VerdictDoc).exit_code


@TOOLS
def test_control_c_that_was_ignored_from_the_start_stays_ignored(site: Path) -> None:
    """As `nohup toolkit validate ... &` is started: only the operator's TERM ends it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = start(site, *TCP10, "--suite", "transport", SECONDS_BANDWIDTH="30", PORT_BANDWIDTH="15440")
    finally:
        signal.signal(signal.SIGINT, before)
    wait_until_measuring(process, "15440")
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=1)
    assert processes_of("iperf3 -c", "15440")
    process.send_signal(signal.SIGTERM)
    assert "continue with:" in process.communicate(timeout=30)[1]
    assert process.returncode == 130


def test_resuming_measures_failures_again_and_the_last_result_counts(looked_at: tuple[Path, int], run: Path) -> None:
    site, first = run.parents[1], looked_at[1]
    lines = (run / "results.jsonl").read_text().splitlines()
    broken = json.loads(lines[0])
    broken.update(status="failed", error="it was switched off")
    shutil.rmtree(run / "raw" / broken["measurement"])
    node, left = broken["provenance"]["nodes"][0], run / "raw" / broken["measurement"]
    left.mkdir()
    for name, text in (("out", ""), ("err", ""), (REPORT, json.dumps({DENIED: broken["denied"]}))):
        (left / f"{node}.{name}").write_text(text)
    broken["provenance"]["raw"] = [
        {"path": path.relative_to(run).as_posix(), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in sorted(left.iterdir())
    ]
    (run / "results.jsonl").write_text("\n".join([json.dumps(broken), *lines[1:]]) + "\n")
    judged = toolkit(site, "validate", *PLAIN, "--rejudge", run.name, "--json")
    assert json.loads(judged.stdout)["missing"] == [broken["measurement"]]
    done = toolkit(site, "validate", *PLAIN, "--resume", run.name)
    results, _ = read_results(run / "results.jsonl", run.name)
    assert [r.measurement for r in results].count(broken["measurement"]) == 2
    assert len(results) == len(lines) + 1
    assert done.returncode == first
    finished = toolkit(site, "validate", *PLAIN, "--resume", run.name, REFUSE="gpu1,gpu2")
    assert "every measurement is finished" in finished.stderr
    assert finished.returncode == first


def test_two_validates_do_not_write_one_run(run: Path) -> None:
    site = run.parents[1]
    code = (
        "from pathlib import Path; from toolkit.rundir import lock\nimport time\n"
        f"with lock(Path({str(run)!r})):\n    print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        refused = toolkit(site, "validate", *PLAIN, "--resume", run.name)
        holder.kill()
    assert refused.returncode == 2
    assert f"another toolkit validate (process {holder.pid}) is writing this run" in refused.stderr
    assert "is writing this run" not in toolkit(site, "validate", *PLAIN, "--resume", run.name).stderr


def test_a_damaged_run_is_refused_with_file_and_line(run: Path) -> None:
    site = run.parents[1]
    text = (run / "plan.json").read_text()
    (run / "plan.json").write_text(text[: len(text) // 2])
    done = toolkit(site, "validate", *PLAIN, "--resume", run.name)
    assert done.returncode == 2
    assert re.search(r"plan\.json:\d+: ", done.stderr)
    assert done.stderr.count("\n") == 1


def test_fabrics_lists_and_explains(tmp_path: Path) -> None:
    listed = json.loads(toolkit(tmp_path, "fabrics", "--json").stdout)["fabrics"]
    assert {"tcp10", "roce40", "ib-edr"} <= {fabric["name"] for fabric in listed}
    shown = toolkit(tmp_path, "fabrics", "show", "roce40")
    assert shown.returncode == 0
    for words in ("line rate", "ceiling = 40 x (9000-52)/(9000+38)", "floor = ", "rdma_mtu: 4096 bytes"):
        assert words in shown.stdout
    document = json.loads(toolkit(tmp_path, "fabrics", "show", "tcp10", "--json").stdout)
    assert document["fabric"]["line_rate_gbps"] == 10
    bound = document["bounds"]["tcp_bandwidth"]
    assert bound["floor"] < bound["ceiling"]


@pytest.mark.parametrize("command", ["validate", "report", "fabrics"])
def test_help_teaches_by_example(tmp_path: Path, command: str) -> None:
    done = toolkit(tmp_path, command, "--help")
    assert done.returncode == 0
    assert done.stdout.count(f"toolkit {command}") >= 3
