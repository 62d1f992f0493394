"""`toolkit status`: each topic of a site, well and not, from what nodes say and from what is kept here."""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result

from tests.support import answers
from toolkit import inventory as inventories
from toolkit.cli import cli
from toolkit.deploy.site_state import SiteState
from toolkit.exits import Exit
from toolkit.runs import Row
from toolkit.status import lines as said
from toolkit.status import looked, there
from toolkit.status.looked import Alert, Kept, KeptHere, Looked, NodeSaid, Notifications, PoolSaid
from validation.base.project import ROOT
from validation.model import Node, SshTarget, Topology
from validation.model.built import Deployment, NodeBuilt
from validation.model.load import ConfigError
from validation.rules.punch import Point
from validation.signing.statement import Statement

NOW = datetime(2026, 11, 28, 12, tzinfo=timezone.utc)
KEYS = Path(__file__).parents[2] / "roles/monitoring/files/keys_metrics.py"
POOL = Path(__file__).parents[1] / "data/lease/slurm-22.05.8-nodes.txt"
CERTIFICATE = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
               "/CN=x", "-keyout", "/dev/null")  # fmt: skip


def node(**changed: Any) -> NodeSaid:
    found = {"recorded": True, "release": "current", "packages": Kept(of=3), "files": Kept(of=5), "failed_units": (),
             "free": 0.5}  # fmt: skip
    return NodeSaid.model_validate({**found, **changed})


def head(**changed: Any) -> NodeSaid:
    backup = {"timestamp_seconds": NOW.timestamp() - 3600, "overdue_seconds": 90000.0, "unreadable": 0.0}
    return node(**{"certificates": {"registry": 900.0}, "backup": backup, "alerts": (),
                   "notifications": {"receivers": 2, "told": 0}, **changed})  # fmt: skip


def built(**changed: Any) -> Deployment:
    found = {"inventory": "site", "who": "ann", "began": "2026-11-27T10:00:00+00:00", "modified": False,
             "ended": "2026-11-27T10:30:00+00:00", "toolkit_version": "1", "commit": "", "check": False, "stages": (),
             "finished": True, "nodes": [NodeBuilt(node="gpu1", outcome="ok", ok=1, changed=0)]}  # fmt: skip
    return Deployment.model_validate({**found, **changed})


def row(sign_off: str = "ACCEPTED", outcome: str = "passed") -> Row:
    return Row("2026-11-27T11-00-00Z-tcp", Path("run"), "2026-11-27T11:00:00+00:00", "site", "tcp", sign_off, outcome)


def paper(last_day: str) -> Statement:
    return Statement(run="r", site="site", fabric="tcp", sign_off="ACCEPTED", outcome="passed", profile="", headline="",
                     toolkit="1", name="Ann", company="", time="2026-11-27T12:00:00Z", key="k", manifest_sha256="0",
                     last_day=last_day)  # fmt: skip


def point(**changed: Any) -> Point:
    found = {"id": "P1", "class": "C", "text": "label", "owner": "Ann", "due": date(2026, 12, 1), "blocking": False,
             "opened": date(2026, 11, 20)}  # fmt: skip
    return Point.model_validate({**found, **changed})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_figure_of_a_node_that_is_no_number_is_not_well(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    """JSON of Python takes NaN, and no comparison with it says that something is bad."""
    said_by = {"recorded": True, "release": "current", "packages": {"of": 3}, "files": {"of": 5}, "free": 0.5}
    target = Node(name="head", groups=(), ports=(), ssh=SshTarget(host="192.0.2.1", user="root", port=22))
    for odd in ({"free": value}, {"certificates": {"registry": value}}, {"backup": {"timestamp_seconds": value}}):
        monkeypatch.setattr(looked.sent, "ask", lambda *_, odd=odd: {**said_by, **odd})
        assert str(looked.ask_node(target, True)).startswith("its answer cannot be used: ")


def test_a_controller_that_answers_without_an_end_of_brackets_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    answers_of = iter([b"NodeName=gpu1 State=IDLE\n", b"[" * 200_000])
    monkeypatch.setattr(
        looked, "run_on", lambda *_: subprocess.CompletedProcess([], 0, stdout=next(answers_of), stderr=b"")
    )
    target = Node(name="head", groups=(), ports=(), ssh=SshTarget(host="192.0.2.1", user="root", port=22))
    assert isinstance(looked.ask_pool(target), str)


def test_after_ctrl_c_no_further_node_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A site has more nodes than are asked at once; each that hangs would be waited for."""
    asked: list[str] = []
    told = threading.Event()

    def ask(one: Node, head: bool) -> str:
        asked.append(one.name)
        if len(asked) > 1:
            told.wait(60)
            threading.Event().wait(0.2)
        return "does not answer"

    def interrupted(words: str) -> None:
        told.set()
        raise KeyboardInterrupt

    monkeypatch.setattr(looked, "AT_ONCE", 1)
    monkeypatch.setattr(looked, "ask_node", ask)
    monkeypatch.setattr(looked, "kept_here", lambda *_: KeptHere())
    nodes = [
        Node(name=f"gpu{n}", groups=(), ports=(), ssh=SshTarget(host="192.0.2.1", user="root", port=22))
        for n in range(40)
    ]
    with pytest.raises(KeyboardInterrupt):
        looked.look(tmp_path, Topology.model_construct(site="site", nodes=tuple(nodes)), tmp_path, interrupted)
    assert len(asked) < 30


def well() -> Looked:
    here = KeptHere(deployed=built(), run=row(), paper=paper("2027-11-27"))
    return Looked("site", NOW, {"head": head(), "gpu1": node()}, "head", (), {}, PoolSaid((), ()), here)


def of(seen: Looked, topic: str) -> said.Line:
    return next(line for line in said.lines(seen) if line.topic == topic)


def test_a_site_that_is_well_says_so_in_every_line() -> None:
    found = said.lines(well())
    assert {line.state for line in found} == {"ok"}, found
    assert said.exit_of(found) == Exit.OK
    assert [line.topic for line in found] == ["nodes", "release", "drift", "machines", "deployment", "pool", "leases",
                                             "validation", "paper", "alerts", "notifications", "certificates",
                                             "backup"]  # fmt: skip


def _with(name: str, said_by: NodeSaid | str) -> Callable[[Looked], Looked]:
    return lambda seen: replace(seen, nodes={**seen.nodes, name: said_by})


def _here(**changed: Any) -> Callable[[Looked], Looked]:
    return lambda seen: replace(seen, here=replace(seen.here, **changed))


def _told(**changed: Any) -> Callable[[Looked], Looked]:
    return _with("head", head(notifications={"receivers": 2, "told": 0, **changed}))


ALERT = Alert(name="GpuHot", severity="warning", where="gpu1", words="GPU 0 of gpu1 has 91 degrees")
FAILED = NodeBuilt(node="gpu1", outcome="failed", ok=1, changed=0, failure="cuda: no space")


@pytest.mark.parametrize(
    ("change", "topic", "state", "words"),
    [
        (_with("gpu1", "No route to host"), "nodes", "bad", "1 of 2 nodes do not answer: gpu1"),
        (_with("gpu1", node(recorded=False, release="")), "release", "bad", "not deployed: gpu1"),
        (_with("gpu1", node(release="previous")), "release", "note", "current on 1, previous on 1"),
        (lambda seen: replace(seen, wanted={"gpu1": "next"}), "release", "bad", "other than in the inventory: gpu1"),
        (_with("gpu1", node(packages=Kept(of=3, odd=("cuda is 2, deployed as 1",)))), "drift", "bad", "1 of 16 pinned"),
        (_with("gpu1", node(files=Kept(of=5, odd=("/etc/x is gone",), more=4))), "drift", "bad", "5 of 16 pinned"),
        (_with("gpu1", node(packages=Kept(of=3, read=False))), "drift", "unknown", "manager of gpu1 does not answer"),
        (_with("gpu1", node(waits=("kernel",))), "machines", "bad", "1 trouble on gpu1"),
        (_with("gpu1", node(failed_units=("a.service",))), "machines", "bad", "1 trouble on gpu1"),
        (_with("gpu1", node(free=0.05)), "machines", "bad", "1 trouble on gpu1"),
        (_with("gpu1", node(failed_units=None)), "machines", "unknown", "systemd of gpu1 does not answer"),
        (_here(deployed=built(nodes=[FAILED])), "deployment", "bad", "did not come to its end on every node"),
        (_here(deployed=built(interrupted=True, finished=False)), "deployment", "bad", "was interrupted"),
        (_here(deployed=None), "deployment", "note", "none from this machine"),
        (lambda seen: replace(seen, pool="no controller"), "pool", "bad", "no controller"),
        (lambda seen: replace(seen, servers=("gpu9",)), "pool", "bad", "1 of 1 server without work: gpu9"),
        (_here(run=row("REJECTED", "failed")), "validation", "bad", "REJECTED"),
        (_here(run=None), "validation", "note", "no judged run"),
        (_here(paper=paper("2026-11-27")), "paper", "bad", "EXPIRED on 2026-11-27"),
        (_here(paper=paper("2026-12-05")), "paper", "note", "holds until 2026-12-05"),
        (_here(paper=paper("")), "paper", "note", "names no last day"),
        (_here(paper=None), "paper", "note", "no signed run"),
        (_here(points=(point(),)), "punch list", "note", "1 point open"),
        (_here(points=(point(blocking=True),)), "punch list", "bad", "blocking: P1"),
        (_here(points=(point(due=date(2026, 11, 27)),)), "punch list", "bad", "late: P1"),
        (_here(points="cannot be read: punch.yml:3"), "punch list", "unknown", "punch.yml:3"),
        (_with("head", head(alerts=(ALERT, ALERT))), "alerts", "bad", "2 fire: GpuHot (2)"),
        (_with("head", head(alerts="Prometheus does not answer")), "alerts", "unknown", "does not answer"),
        (_with("head", head(notifications={"receivers": 0})), "notifications", "note", "nobody is notified"),
        (_with("head", head(notifications={"receivers": 0, "site": ["am:9093"]})), "notifications", "ok", "(am:9093)"),
        (_told(told=3, follow=2), "notifications", "ok", "2 receivers; 3 alerts notified, 2 left out"),
        (_told(silenced=1), "notifications", "note", "1 alert silenced by somebody"),
        (_told(fault="Alertmanager does not answer"), "notifications", "bad", "does not answer"),
        (_with("head", head(certificates={"a": 900.0, "b": 12.0})), "certificates", "bad", "b: ends in 12 days"),
        (_with("head", head(certificates={"a": -3.0})), "certificates", "bad", "a: ended 3 days ago"),
        (_with("head", head(certificates={"a": None})), "certificates", "unknown", "cannot be read: a"),
        (_with("head", head(backup=None)), "backup", "note", "makes none"),
        (_with("head", head(backup={})), "backup", "unknown", "no figures"),
        (_with("head", head(backup={"timestamp_seconds": 1.0, "overdue_seconds": 9.0})), "backup", "bad", "overdue"),
        (_with("head", head(backup={"timestamp_seconds": 1.0, "unreadable": 2.0})), "backup", "bad", "2 cannot"),
        (_with("head", head(rotations=("registry",))), "unfinished", "bad", "1 begun and not finished"),
        (_here(upgrade="upgrade to current: batch 1 of 2"), "unfinished", "bad", "1 begun and not finished"),
    ],
)  # fmt: skip
def test_what_is_not_well_is_said_of_its_topic(
    change: Callable[[Looked], Looked], topic: str, state: str, words: str
) -> None:
    seen = change(well())
    line = of(seen, topic)
    assert (line.state, words in line.words) == (state, True), line
    others = [one for one in said.lines(seen) if one.topic != topic and one.state not in ("ok", "note")]
    assert not others
    wanted = {"bad": Exit.FAILED, "unknown": Exit.INCOMPLETE}.get(state, Exit.OK)
    assert said.exit_of(said.lines(seen)) == wanted


def test_of_a_silent_head_nobody_is_sent_to_a_unit_that_runs_there() -> None:
    lost = replace(well(), pool="head (10.0.0.1) does not answer by ssh: No route to host")
    lost = replace(lost, nodes={**lost.nodes, "head": "No route to host"})
    found = {line.topic: line for line in said.lines(lost)}
    assert (found["pool"].state, found["pool"].do) == ("bad", "see nodes: it has to answer first")
    assert not any("systemctl" in line.do for line in found.values())
    there = {line.topic: line for line in said.lines(replace(well(), pool="no controller"))}
    assert there["pool"].do == "systemctl status slurmctld on head"


def test_a_site_without_pool_and_monitoring_has_no_lines_of_them() -> None:
    seen = replace(well(), pool=None, nodes={"head": node(), "gpu1": node()})
    topics = {line.topic for line in said.lines(seen)}
    assert not topics & {"pool", "leases", "alerts", "notifications", "certificates", "backup"}


def test_that_alerts_do_not_arrive_is_said_beside_the_alert_itself() -> None:
    alert = Alert(name="NotificationsFail", severity="critical", where="head", words="Alerts do not arrive by email")
    seen = _with("head", head(alerts=(alert,)))(well())
    assert (of(seen, "alerts").state, of(seen, "notifications").state) == ("bad", "bad")
    assert of(seen, "notifications").about == ("Alerts do not arrive by email",)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A node's files."""
    kept, key = tmp_path / "etc/kept.conf", tmp_path / "etc/munge/munge.key"
    for path, text in ((kept, "as written"), (key, "another key")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    sha256 = hashlib.sha256(b"as written").hexdigest()
    ledger = {"/etc/kept.conf": {"sha256": sha256}, "/etc/munge/munge.key": {"sha256": "0"},
              "/etc/taken": {"sha256": "0", "removed": True}}  # fmt: skip
    for path, document in ((there.RECORD, {"release": "current", "pinned": {"cuda": "13.0.2-1", "docker-ce": "5:28*"}}),
                           (f"{there.LEDGERS}/x.files.json", {"files": ledger})):  # fmt: skip
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(json.dumps(document))
    return tmp_path


def test_a_node_compares_packages_and_files_with_its_record(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dpkg = "cuda 13.0.2-1 installed\ndocker-ce 5:28.1 installed\nold 1 config-files\n"
    monkeypatch.setattr(there, "_ran", lambda words: dpkg if words[0] == "dpkg-query" else "")
    monkeypatch.setattr(there, "installed", lambda: real(lambda words: there._ran(words)))
    found = NodeSaid.model_validate(there.looked({}, root))
    assert (found.recorded, found.release, found.packages.of, found.files.of) == (True, "current", 2, 1)
    assert not found.packages.odd + found.files.odd, "a key that was rotated is no drift, nor what a role took away"
    dpkg = "cuda 13.0.3-1 installed\n"
    (root / "etc/kept.conf").write_text("by hand")
    (root / there.WAITS).mkdir(parents=True)
    (root / there.WAITS / "kernel").touch()
    found = NodeSaid.model_validate(there.looked({}, root))
    assert found.packages.odd == ("cuda is 13.0.3-1, deployed as 13.0.2-1", "docker-ce is gone, deployed as 5:28*")
    assert found.files.odd == ("/etc/kept.conf was changed",)
    assert found.waits == ("kernel",)
    (root / "etc/kept.conf").unlink()
    assert there.files(root)["odd"] == ["/etc/kept.conf is gone"]


real = there.installed


def test_rpm_says_versions_with_an_epoch_that_pins_leave_out() -> None:
    def ask(words: list[str]) -> str | None:
        return "cuda 0:13.0.2-1.el9\ndocker-ce 3:28-1\n" if words[0] == "rpm" else None

    found = real(ask)
    assert found == {"cuda": "13.0.2-1.el9", "docker-ce": "3:28-1"}
    pins = {"pinned": {"cuda": "13.0.2-1.el9", "docker-ce": "3:28-1"}}
    assert there.packages(pins, found)["odd"] == []
    assert there.packages(pins, None) == {"of": 2, "read": False, "odd": []}
    assert real(lambda _: None) is None


def test_the_head_reads_its_certificates_and_backups(root: Path) -> None:
    path = root / there.CERTIFICATES["registry"]
    path.parent.mkdir(parents=True)
    subprocess.run([*CERTIFICATE, "-days", "10", "-out", str(path)], check=True, capture_output=True)
    (root / there.CERTIFICATES["registry client"]).write_text("no certificate")
    found = there.certificates(root)
    assert found.pop("registry client") is None
    assert found == {"registry": pytest.approx(10, abs=0.1)}
    assert there.backup(root) is None
    for name, text in ((there.BACKUPS, "{}"), (there.BACKUP, "# TYPE x\nelastic_ai_backup_unreadable 0.0\nother 1\n")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    assert there.backup(root) == {"unreadable": 0.0}


@pytest.fixture
def answering() -> Iterator[HTTPServer]:
    """Prometheus and Alertmanager in one: `body` by path."""

    class Answer(BaseHTTPRequestHandler):
        body: ClassVar[dict[str, Any]] = {}

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(self.body[self.path]).encode() if self.path in self.body else b"")

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def addresses(root: Path, **said_there: Any) -> None:
    (root / there.PROMETHEUS).mkdir(parents=True, exist_ok=True)
    (root / there.ADDRESSES).parent.mkdir(parents=True, exist_ok=True)
    (root / there.ADDRESSES).write_text(json.dumps(said_there))


def test_alerts_that_fire_are_asked_of_prometheus_where_the_role_has_it_listen(
    root: Path, answering: HTTPServer
) -> None:
    body = answering.RequestHandlerClass.body  # type: ignore[attr-defined]
    assert there.alerts(root) is None, "no Prometheus is set up"
    addresses(root, prometheus=f"0.0.0.0:{answering.server_port}")
    assert str(there.alerts(root)).startswith(f"Prometheus does not answer at http://127.0.0.1:{answering.server_port}")
    labels = {"alertname": "GpuHot", "severity": "warning", "node": "gpu1"}
    rows = [{"state": state, "labels": labels, "annotations": {"summary": "hot"}} for state in ("firing", "pending")]
    body["/api/v1/alerts"] = {"data": {"alerts": rows}}
    assert there.alerts(root) == [{"name": "GpuHot", "severity": "warning", "where": "gpu1", "words": "hot"}]
    body["/api/v1/alerts"] = {"data": {"alerts": [7]}}
    assert str(there.alerts(root)).startswith("Prometheus does not answer")


def test_what_listens_everywhere_is_asked_here() -> None:
    asked_at = {"127.0.0.1:9090": "127.0.0.1:9090", ":9091": "127.0.0.1:9091", "0.0.0.0:1": "127.0.0.1:1",
                "[::]:9090": "[::1]:9090", "192.0.2.7:99": "192.0.2.7:99", "[fd00::1]:9": "[fd00::1]:9"}  # fmt: skip
    assert {listens: there.address_of(listens) for listens in asked_at} == {
        listens: f"http://{wanted}" for listens, wanted in asked_at.items()
    }


def test_what_alertmanager_tells_and_leaves_out(root: Path, answering: HTTPServer) -> None:
    assert there.notifications(root) is None
    addresses(root, prometheus="127.0.0.1:9090", alertmanager="", receivers=0, site=["am.example.net:9093"])
    assert there.notifications(root) == {"receivers": 0, "site": ["am.example.net:9093"]}
    addresses(root, alertmanager=f"127.0.0.1:{answering.server_port}", receivers=2, site=[])
    assert "Alertmanager does not answer" in there.notifications(root)["fault"]  # type: ignore[index]
    states: tuple[tuple[list[str], list[str]], ...] = (([], []), ([], ["a"]), (["s"], []), (["s"], ["a"]))
    rows = [{"status": {"silencedBy": silenced, "inhibitedBy": followed}} for silenced, followed in states]
    answering.RequestHandlerClass.body["/api/v2/alerts"] = rows  # type: ignore[attr-defined]
    found = there.notifications(root)
    assert found == {"receivers": 2, "site": [], "told": 1, "follow": 1, "silenced": 2}
    assert Notifications.model_validate(found).told == 1


def test_certificates_and_rotations_are_those_that_prometheus_is_told_of() -> None:
    """The program on the head and the one that is sent there cannot share a list; this holds them together."""
    texts = {path: ast.parse(path.read_text("utf-8")) for path in (KEYS, Path(there.__file__))}
    for name in ("CERTIFICATES", "ROTATIONS"):
        lists = [
            ast.literal_eval(one.value)
            for tree in texts.values()
            for one in tree.body
            if isinstance(one, ast.Assign) and one.targets[0].id == name  # type: ignore[attr-defined]
        ]
        assert len(lists) == 2
        assert lists[0] == lists[1]


def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said_by: dict[str, Any], *words: str) -> Result:
    """The command over three machines that say these things."""
    target = SshTarget(host="127.0.0.1", user="root")
    groups = {"head": ("heads",), "gpu1": ("gpu_servers",), "gpu2": ("gpu_servers",)}
    nodes = tuple(Node(name=name, groups=group, ssh=target, ports=()) for name, group in groups.items())
    topology = Topology(site="site", nodes=nodes)
    monkeypatch.setattr(inventories, "read_inventory", lambda _path: topology)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(looked.sent, "ask", lambda one, *_given: said_by.get(one.name, "No route to host"))
    done = subprocess.CompletedProcess[bytes]([], 0, POOL.read_bytes(), b"")
    jobs = replace_stdout(done, b'{"jobs": [], "errors": []}')
    monkeypatch.setattr(looked, "run_on", lambda _node, given, _limit: jobs if given[0] == "squeue" else done)
    (tmp_path / "runs").mkdir(exist_ok=True)
    return CliRunner().invoke(cli, ["status", "-i", str(tmp_path), "--runs-dir", str(tmp_path / "runs"), *words])


def replace_stdout(done: subprocess.CompletedProcess[bytes], out: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.CompletedProcess(done.args, 0, out, b"")


def test_the_command_prints_a_screen_and_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = node().model_dump(mode="json")
    every = {"head": head(backup=None).model_dump(mode="json"), "gpu1": good, "gpu2": good}
    done = asked(tmp_path, monkeypatch, every)
    assert done.exit_code == 0, done.output
    assert "nodes          all answer (3 nodes)" in done.output
    assert "validation     NOTE: no judged run of this site here" in done.output
    silent = asked(tmp_path, monkeypatch, {**every, "gpu2": "No route to host"}, "--json")
    assert silent.exit_code == Exit.FAILED
    found = answers.check(silent.stdout, "status")
    (line,) = [one for one in found["lines"] if one["topic"] == "nodes"]
    assert line["about"] == ["gpu2: No route to host"]


def test_what_a_node_says_is_held_to_its_form_and_printed_harmlessly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = node().model_dump(mode="json")
    hostile = {**good, "files": {"of": 1, "read": True, "odd": ["\x1b[2J gone\n0 bad"], "more": 0}}
    done = asked(tmp_path, monkeypatch, {"head": good, "gpu1": hostile, "gpu2": {**good, "free": "all"}})
    assert done.exit_code == Exit.FAILED
    assert "\x1b[2J" not in done.output
    assert "gpu2: its answer cannot be used: free" in done.output


def test_what_was_begun_here_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = node().model_dump(mode="json")
    every = {"head": good, "gpu1": good, "gpu2": good}
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = SiteState(tmp_path).folder
    folder.mkdir(parents=True)
    (folder / "upgrade.json").write_text("{")
    done = asked(tmp_path, monkeypatch, every)
    assert done.exit_code == Exit.FAILED
    assert "upgrade: cannot be read" in done.output


def test_what_a_look_does_not_need_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that has other work, each second of a processor is several of the operator's."""
    asked = "import toolkit.status.looked, sys; print([m for m in sys.modules if m.startswith('validation.report')])"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"
    monkeypatch.setattr(looked, "load_criteria", lambda: pytest.fail("there is no punch list to read by them"))
    (tmp_path / "hosts.yml").write_text("all: {}\n")
    assert looked._points(tmp_path) == ()
    (tmp_path / "punch.yml").symlink_to(tmp_path / "gone")
    monkeypatch.setattr(looked, "load_criteria", lambda: ())
    with pytest.raises(ConfigError, match=r"punch\.yml: no such file"):
        looked._points(tmp_path)
