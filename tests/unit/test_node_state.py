"""What a hand, a full disk or a forgotten program leaves behind is read from trees and sockets, and judged beside the
other nodes."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from tests.support.site import BOM, FACTS, LAB, criterion, healthy, plan_of, results_of, verdict_of, with_facts
from validation.model import Result, SshTarget
from validation.model.node_state import NodeState
from validation.model.times import moment
from validation.probes import carrier, node_state
from validation.probes.tool import Ran

MIB = 1 << 20
PLAN = plan_of(LAB, ("preflight",))
ADDRESSES = {n.name: n.ports[0].address for n in LAB.nodes}


def state(name="gpu2", **changes):
    """Of a healthy node."""
    room = {"folder": "/", "size_bytes": 1000 * MIB, "free_bytes": 500 * MIB, "inodes_free": 1000, "read_only": False}
    return {
        "addresses": [{"interface": "fab0", "address": ADDRESSES[name]}],
        "utc_offset_s": 0,
        "name_servers": [{"address": "10.0.2.3", "answers": True}],
        "file_systems": [room],
        "others_busy_processors": 0.1,
        **changes,
    }


def judged(id_, topology=LAB, changes=None, facts=None, path=None):
    """Judgements and findings of a site whose gpu2 is in that state; `path`: what path-mtu of gpu2 tells besides."""

    def change(m):
        if m.kind == "facts":
            mine = state(m.nodes[0], **(changes or {} if m.nodes[0] == "gpu2" else {}))
            more = (facts or {}) if m.nodes[0] == "gpu2" else {}
            return healthy(m, facts={"state": mine, "cpu_count": 4, **more})
        if m.kind == "path-mtu" and path and m.nodes[0] == "gpu2":
            found = healthy(m)
            return Result.model_validate({**dict(found), "facts": {"source": ADDRESSES["gpu2"], **path}})
        return None

    verdict = verdict_of(topology, PLAN, results_of(PLAN, change))
    return {str(j.about).partition("/")[0]: j for j in criterion(verdict, id_).judgements}, verdict.findings


def test_nodes_that_are_well_pass_and_nobody_is_named():
    for id_ in ("pf.state", "pf.ports"):
        mine, findings = judged(id_)
        assert {j.verdict for j in mine.values()} == {"pass"}
        assert len(mine) == 4
        assert not findings
    assert "500 MiB" in judged("pf.state")[0]["gpu2"].reason


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"utc_offset_s": 46800}, "its time zone is UTC+13:00, of 3 of 4 nodes UTC+00:00"),
        (
            {"name_servers": [{"address": "192.0.2.1", "answers": False}]},
            "none of its name servers answers (192.0.2.1)",
        ),
        (
            {"file_systems": [{"folder": "/tmp", "size_bytes": 65536, "free_bytes": 0, "read_only": False}]},
            "the file system of /tmp is full: 0 of 0.0625 MiB are free",
        ),
        (
            {"file_systems": [{"folder": "/var/log", "size_bytes": MIB, "free_bytes": 0, "read_only": True}]},
            "/var/log is read-only",
        ),
        (
            {
                "file_systems": [
                    {"folder": "/", "size_bytes": 1 << 40, "free_bytes": 1 << 39, "inodes_free": 0, "read_only": False}
                ]
            },
            "no inode left",
        ),
        (
            {"others_busy_processors": 2.0, "busiest": [{"name": "sh", "pid": 42, "processors": 1.0}]},
            "other programs keep 2 of its 4 processors busy, most of it sh (42) 1",
        ),
    ],
)
def test_what_is_wrong_with_a_node_is_said_of_it_alone(changes, words):
    mine, findings = judged("pf.state", changes=changes)
    assert [name for name, j in mine.items() if j.verdict == "fail"] == ["gpu2"]
    assert words in mine["gpu2"].reason
    assert [f.subject for f in findings] == ["gpu2"]
    assert findings[0].criteria == ("pf.state",)


def test_a_server_that_answers_one_node_of_four_is_slow_and_blames_none_of_the_others():
    """A forwarder that was busy for as long as three of them asked it."""

    def asks(*answered):
        def change(m):
            if m.kind != "facts":
                return None
            servers = [{"address": "192.0.2.53", "answers": m.nodes[0] in answered}]
            return healthy(m, facts={"state": state(m.nodes[0], name_servers=servers), "cpu_count": 4})

        verdict = verdict_of(LAB, PLAN, results_of(PLAN, change))
        return {j.subject for j in criterion(verdict, "pf.state").judgements if j.verdict == "fail"}

    assert asks("gpu1") == set()
    assert asks("gpu1", "head") == set()
    assert asks("gpu1", "head", "client1") == {"gpu2"}
    assert asks() == set()


def clock_s(node, ahead_s=0.0):
    """What a node's clock says while its facts are taken, where it is so much ahead of this machine's."""
    (m,) = (m for m in PLAN.measurements if m.kind == "facts" and m.nodes == (node,))
    return moment(healthy(m).provenance.started).timestamp() + 0.5 + ahead_s


def with_clocks(topology=LAB, **ahead_s):
    """Judgements of pf.state, by node; nodes that are not named have this machine's time."""
    plan = plan_of(topology, ("preflight",))

    def change(m):
        (name,) = m.nodes[:1]
        mine = state(name, utc_s=clock_s(name, ahead_s.get(name, 0.0)))
        return healthy(m, facts={"state": mine, "cpu_count": 4}) if m.kind == "facts" else None

    return {
        j.subject: j for j in criterion(verdict_of(topology, plan, results_of(plan, change)), "pf.state").judgements
    }


@pytest.mark.parametrize(
    ("ahead_s", "words"),
    [(3 * 3600, "3 h ahead of 4 of 5"), (-5000, "83.3 min behind 4 of 5"), (4 * 86400, "4 days ahead of 4 of 5")],
)
def test_a_clock_that_is_hours_from_the_others_is_named(ahead_s, words):
    judged = with_clocks(gpu2=ahead_s)
    assert [name for name, j in judged.items() if j.verdict == "fail"] == ["gpu2"]
    assert f"its clock is {words} clocks, the nodes' and this machine's" in judged["gpu2"].reason
    assert "clock" not in judged["gpu1"].reason


@pytest.mark.parametrize("ahead_s", [0.0, 30.0, -30.0])
def test_clocks_within_a_minute_are_nobodys_affair(ahead_s):
    judged = with_clocks(gpu2=ahead_s)
    assert {j.verdict for j in judged.values()} == {"pass"}
    assert not any("its clock" in j.reason for j in judged.values())


def test_of_two_nodes_this_machines_clock_decides_and_what_all_have_is_told_and_fails_nobody():
    two = LAB.model_copy(update={"nodes": tuple(n for n in LAB.nodes if n.name in ("gpu1", "gpu2"))})
    assert {n: j.verdict for n, j in with_clocks(two, gpu2=7200.0).items()} == {"gpu1": "pass", "gpu2": "fail"}
    for site, names in ((LAB, [n.name for n in LAB.nodes]), (two, ["gpu1", "gpu2"])):
        judged = with_clocks(site, **dict.fromkeys(names, 7200.0))
        assert {j.verdict for j in judged.values()} == {"pass"}
        assert all("2 h ahead of that of the machine that validates" in j.reason for j in judged.values())
    apart = with_clocks(two, gpu1=7200.0, gpu2=-7200.0)
    assert {j.verdict for j in apart.values()} == {"pass"}, "three clocks, three times: nobody knows"
    assert "2 h behind that of the machine that validates" in apart["gpu2"].reason


@pytest.mark.parametrize(
    "changes",
    [
        {"name_servers": []},  # a site without any
        {"name_servers": [{"address": "192.0.2.1", "answers": False}, {"address": "10.0.2.3", "answers": True}]},
        {"others_busy_processors": 0.9},
        {"file_systems": [{"folder": "/", "size_bytes": MIB, "free_bytes": 0, "read_only": True}]},  # by design
    ],
)
def test_what_a_node_may_be_like(changes):
    assert judged("pf.state", changes=changes)[0]["gpu2"].verdict == "pass"


def test_where_no_node_has_a_name_server_that_answers_nobody_is_the_odd_one():
    mute = {"name_servers": [{"address": "192.0.2.1", "answers": False}]}
    results = results_of(
        PLAN, lambda m: healthy(m, facts={"state": state(m.nodes[0], **mute)}) if m.kind == "facts" else None
    )
    verdict = verdict_of(LAB, PLAN, results)
    assert {j.verdict for j in criterion(verdict, "pf.state").judgements} == {"pass"}


def test_a_node_on_the_machine_that_validates_is_not_judged_by_its_programs():
    nodes = tuple(n.model_copy(update={"ssh": SshTarget(host="127.0.0.1")}) for n in LAB.nodes)
    here = LAB.model_copy(update={"nodes": nodes})
    assert judged("pf.state", here, {"others_busy_processors": 4.0})[0]["gpu2"].verdict == "pass"


def test_what_could_not_be_read_or_was_not_asked_is_not_measured():
    found = judged("pf.state", changes={"file_systems": None, "unread": "OSError: gone"})[0]["gpu2"]
    assert (found.verdict, "OSError: gone" in found.reason) == ("not-measured", True)
    for id_ in ("pf.state", "pf.ports"):
        results = results_of(PLAN, lambda m: healthy(m, facts={"state": None}) if m.kind == "facts" else None)
        verdict = verdict_of(LAB, PLAN, results)
        assert {j.verdict for j in criterion(verdict, id_).judgements} == {"not-measured"}
    found = judged("pf.ports", changes={"addresses": None, "unread": "OSError: no ip"})[0]["gpu2"]
    assert (found.verdict, found.reason) == ("not-measured", "OSError: no ip")


def test_an_address_of_another_node_is_told_of_the_one_that_has_it_too():
    both = [{"interface": "fab0", "address": ADDRESSES[name]} for name in ("gpu2", "head")]
    mine, findings = judged("pf.ports", changes={"addresses": both})
    assert [name for name, j in mine.items() if j.verdict == "fail"] == ["gpu2"]
    assert "fab0 has the address of head/fab0 too" in mine["gpu2"].reason
    assert [f.subject for f in findings] == ["gpu2/fab0"]
    elsewhere = [both[0], {"interface": "docker0", "address": ADDRESSES["head"]}]
    assert "docker0 has the address" in judged("pf.ports", changes={"addresses": elsewhere})[0]["gpu2"].reason


@pytest.mark.parametrize(
    ("changes", "port", "words"),
    [
        ({"addresses": []}, {}, "fab0 has no address, 10.78.0.14 is declared"),
        ({}, {"operstate": "down"}, "fab0 is down"),
        ({}, {"operstate": "lowerlayerdown"}, "fab0 is lowerlayerdown"),
    ],
)
def test_a_port_that_is_down_or_has_another_address(changes, port, words):
    ports = [{**FACTS["fabric_ports"][0], **port}]
    found = judged("pf.ports", changes=changes, facts={"fabric_ports": ports})[0]["gpu2"]
    assert (found.verdict, found.reason) == ("fail", words)


@pytest.mark.parametrize(("later", "verdict"), [(2, "pass"), (8, "fail"), (None, "pass")])
def test_a_link_that_went_during_the_run_is_counted(later, verdict):
    ports = [{**FACTS["fabric_ports"][0], "carrier_changes": 2}]
    path = {} if later is None else {"carrier_changes": later}
    found = judged("pf.ports", facts={"fabric_ports": ports}, path=path)[0]["gpu2"]
    assert found.verdict == verdict
    assert ("its link went down or came back 6 times" in found.reason) is (verdict == "fail")
    assert ("was not measured" in found.reason) is (later is None)
    assert BOM.fabric_port_count == 1


# --- the probe ------------------------------------------------------------------------------------------------


def test_a_server_that_refuses_answers_and_one_that_is_not_there_does_not():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]

        def refuse():
            said, who = server.recvfrom(512)
            server.sendto(said[:2] + b"\x81\x85" + bytes(8), who)

        thread = threading.Thread(target=refuse)
        thread.start()
        assert node_state.answers("127.0.0.1", port)
        thread.join()
    assert not node_state.answers("127.0.0.1", port, 0.2)
    assert not node_state.answers("no address", port, 0.2)


@pytest.mark.parametrize("late", [False, True])
def test_a_question_that_is_lost_is_asked_again_and_a_late_answer_counts(late: bool):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def answer_the_third():
            asked = [server.recvfrom(512) for _ in range(3)]
            said, who = asked[0 if late else 2]
            assert len({port for _, (_, port) in asked}) == 3
            server.sendto(said[:2] + b"\x81\x80" + bytes(8), who)

        thread = threading.Thread(target=answer_the_third, daemon=True)
        thread.start()
        assert node_state.answers("127.0.0.1", server.getsockname()[1], 5, again_s=0.05)
        thread.join()
        begun = time.monotonic()
        assert not node_state.answers("127.0.0.1", server.getsockname()[1], 0.3, again_s=0.1)
        assert time.monotonic() - begun < 1


def test_a_refusal_of_a_moment_is_no_silence():
    """A forwarder that is started anew refuses at first."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]

    def begin_late():
        time.sleep(0.5)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
            server.bind(("127.0.0.1", port))
            said, who = server.recvfrom(512)
            server.sendto(said[:2] + b"\x81\x80" + bytes(8), who)

    thread = threading.Thread(target=begin_late, daemon=True)
    thread.start()
    assert node_state.answers("127.0.0.1", port, 20, again_s=0.1)
    thread.join()


def test_name_servers_are_those_that_a_resolver_reads(tmp_path: Path):
    text = "# nameserver 1.1.1.1\nsearch x\nnameserver 10.0.0.1\noptions a\nnameserver\n" + "nameserver ::1\n" * 3
    assert node_state.servers(text) == ["10.0.0.1", "::1", "::1"]
    assert node_state.name_servers(tmp_path) == []


def test_file_systems_are_told_once_and_folders_that_are_not_there_left_out(tmp_path: Path):
    found = node_state.file_systems((str(tmp_path), str(tmp_path / "none"), str(tmp_path)))
    assert [f["folder"] for f in found] == [str(tmp_path)]
    assert found[0]["size_bytes"] >= found[0]["free_bytes"] >= 0


def test_programs_of_others_are_counted_by_their_own_ticks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ticks = {7: 100, 8: 0, 9: 500, 2: 0}

    def write():
        for pid, used in ticks.items():
            folder = tmp_path / "proc" / str(pid)
            folder.mkdir(parents=True, exist_ok=True)
            parent = 2 if pid == 9 else 1
            fields = ["R", str(parent), *["0"] * 9, str(used), "0", "0"]
            (folder / "stat").write_text(f"{pid} (a) name) {' '.join(fields)}\n")
            (folder / "comm").write_text("loop\n")

    write()
    clock = iter(range(100))
    monkeypatch.setattr(node_state.os, "sysconf", lambda name: 100)
    monkeypatch.setattr(node_state.time, "monotonic", lambda: next(clock))

    def sleep(seconds):
        ticks[7] += 80 if len(asked) else 20  # the least of the windows counts
        ticks[9] += 100  # a thread of the kernel
        asked.append(seconds)
        write()

    asked: list[float] = []
    monkeypatch.setattr(node_state.time, "sleep", sleep)
    found = node_state.busy(tmp_path, 2)
    assert found["others_busy_processors"] == pytest.approx(0.2)
    assert [(b["name"], b["pid"], b["processors"]) for b in found["busiest"]] == [("loop", 7, pytest.approx(0.5))]


def test_all_of_it_reads_into_its_model_and_says_what_it_could_not_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(node_state, "WINDOW_S", 0.0)
    monkeypatch.setattr(node_state, "busy", lambda root: {"others_busy_processors": 0.0, "busiest": []})
    monkeypatch.setattr(node_state, "answers", lambda server: True)
    found = NodeState.model_validate(node_state.collect())
    assert found.file_systems
    assert found.utc_offset_s is not None
    assert found.utc_s is not None
    assert abs(found.utc_s - time.time()) < 120
    monkeypatch.setattr(node_state, "run_tool", lambda *_, **__: Ran(["ip"], 127, "", "no ip"))
    found = NodeState.model_validate(node_state.collect())
    assert found.addresses is None
    assert "addresses" in found.unread


@pytest.mark.parametrize(("text", "count"), [("5\n", {"carrier_changes": 5}), ("", {}), ("x", {}), (None, {})])
def test_changes_of_a_link_by_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text, count):
    port = tmp_path / "class/net/fab0"
    port.mkdir(parents=True)
    if text is not None:
        (port / "carrier_changes").write_text(text)
    listed = '[{},{"ifname":"fab0","addr_info":[{"local":"10.78.0.14"}]}]'
    monkeypatch.setattr(carrier, "run_tool", lambda *_, **__: Ran([], 0, listed, ""))
    assert carrier.of_address("10.78.0.14", tmp_path) == count
    monkeypatch.setattr(carrier, "run_tool", lambda *_, **__: Ran(["ip"], 127, "", ""))
    assert carrier.of_address("10.78.0.14", tmp_path) == {}


def test_recorded_facts_take_the_state_with_them():
    facts = next(healthy(m) for m in PLAN.measurements if m.kind == "facts")
    assert with_facts(facts, state=state()).facts.state.utc_offset_s == 0
