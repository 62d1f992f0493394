"""The pool's policies in Slurm's words, and the program on the head that keeps accounting in line with them."""

from __future__ import annotations

import datetime
import importlib.machinery
import importlib.util
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from ansible.errors import AnsibleFilterError

from tests.support.node_modules import ROOT, load_filters

policy = load_filters("slurm_policy")["slurm_policy"]
CLUSTER: dict[str, Any] = {
    "partitions": {
        "all": "PartitionName=all Nodes=gpu1,gpu2 Default=YES MaxTime=INFINITE State=UP",
        "h100": "PartitionName=h100 Nodes=gpu2 MaxTime=INFINITE State=UP",
        "v100": "PartitionName=v100 Nodes=gpu1 MaxTime=INFINITE State=UP",
    },
    "nodes": [{"name": "gpu1"}, {"name": "gpu2"}],
    "unknown": [],
}
POOL: dict[str, Any] = {
    "classes": {"v100": {}, "h100": {"max_hours": 24}},
    "users": {
        "research": {
            "users": ["anna"],
            "max_gpus": 8,
            "max_gpus_per_user": 2.5,
            "preempts": ["teaching"],
            "max_hours": 24,
        },
        "teaching": {
            "users": ["ben"],
            "classes": ["v100"],
            "max_gpus_per_user": "1/7",
            "max_hours": 0.5,
            "max_submitted": 20,
        },
    },
    "reservations": {"course": {"for": ["teaching"], "class": "v100", "nodes": ["gpu1"], "from": "08:00", "hours": 4}},
    "preemption": {"after_minutes": 30, "grace_s": 60},
}


def test_without_policies_nothing_changes() -> None:
    assert policy({}, CLUSTER, 140, "/nowhere") == {
        "partition_lines": list(CLUSTER["partitions"].values()),
        "conf": {},
        "sync": {"classes": {}, "reservations": {}, "policy": {}},
        "native": None,
    }


@pytest.mark.parametrize(("told", "native"), [("none", []), (["research"], ["research"])])
def test_whose_native_jobs_may_have_gpus(told: object, native: list[str]) -> None:
    assert policy({**POOL, "native_jobs": told}, CLUSTER, 140, "/nowhere")["native"] == native
    assert policy(POOL, CLUSTER, 140, "/nowhere")["native"] is None


def test_who_may_use_which_class_of_gpu() -> None:
    lines = policy(POOL, CLUSTER, 140, "/nowhere")["partition_lines"]
    default = "DefaultTime=0-00:30:00"  # the strictest limit: beside a reservation every lease has an end
    up = f"MaxTime=INFINITE State=UP {default}"
    weights = "TRESBillingWeights=gres/gpu=140,gres/shard=1"
    assert lines == [
        f"PartitionName=all Nodes=gpu1,gpu2 Default=YES {up} AllowQos=normal,research {weights}",
        f"PartitionName=h100 Nodes=gpu2 MaxTime=1-00:00:00 State=UP {default} AllowQos=normal,research {weights}",
        f"PartitionName=v100 Nodes=gpu1 {up} AllowQos=normal,research,teaching {weights}",
    ]


def test_limits_count_whole_gpus_and_parts_alike() -> None:
    qos = {name: entry["qos"] for name, entry in policy(POOL, CLUSTER, 140, "/x")["sync"]["classes"].items()}
    assert (qos["research"]["GrpTRES"], qos["research"]["MaxTRESPerUser"]) == ("billing=1120", "billing=350")
    assert (qos["teaching"]["GrpTRES"], qos["teaching"]["MaxTRESPerUser"]) == ("billing=-1", "billing=20")
    assert (qos["teaching"]["MaxWall"], qos["research"]["MaxWall"]) == ("0-00:30:00", "1-00:00:00")
    assert qos["research"]["Preempt"] == "teaching"


def test_one_user_does_not_fill_the_controller() -> None:
    """It keeps 10,000 jobs of all users, held ones too; where the policy says nothing each may have a tenth."""
    qos = {name: entry["qos"] for name, entry in policy(POOL, CLUSTER, 140, "/x")["sync"]["classes"].items()}
    assert [qos[name]["MaxSubmitJobsPerUser"] for name in ("research", "teaching")] == ["1000", "20"]


def test_ansibles_own_kind_of_text_is_text() -> None:
    class Tagged(str):
        __slots__ = ()

    pool = {Tagged("users"): {Tagged("research"): {"users": [Tagged("anna")]}}}
    assert list(policy(pool, CLUSTER, 140, "/x")["sync"]["classes"]) == ["research"]


def test_preemption_only_where_somebody_preempts() -> None:
    conf = policy(POOL, CLUSTER, 140, "/x")["conf"]
    assert (conf["PreemptType"], conf["PreemptMode"], conf["PreemptExemptTime"]) == (
        "preempt/qos",
        "CANCEL",
        "0-00:30:00",
    )
    assert conf["AccountingStorageEnforce"] == "associations,limits,qos"
    alone = {"users": {"research": {"users": ["anna"]}}}
    assert "PreemptType" not in policy(alone, CLUSTER, 140, "/x")["conf"]


def test_a_limit_that_is_no_whole_number_of_parts_is_refused() -> None:
    with pytest.raises(
        AnsibleFilterError, match=r"slurm_pool.users.teaching.max_gpus_per_user: 1/7 GPU is .* of the 20"
    ):
        policy(POOL, CLUSTER, 20, "/nowhere")


def test_a_class_that_no_node_has_is_refused_unless_nodes_are_still_to_come() -> None:
    pool = {"classes": {"a100": {}}}
    with pytest.raises(AnsibleFilterError, match="no node has GPUs of class a100; the nodes have: h100, v100"):
        policy(pool, CLUSTER, 140, "/nowhere")
    assert policy(pool, {**CLUSTER, "unknown": ["gpu3"]}, 140, "/nowhere")["conf"] == {}


def test_a_reservation_of_a_stranger_is_refused() -> None:
    pool = {**POOL, "reservations": {"course": {**POOL["reservations"]["course"], "nodes": ["gpu9"]}}}
    with pytest.raises(AnsibleFilterError, match=r"reservations.course.nodes: gpu9 is no GPU server.*gpu1, gpu2"):
        policy(pool, CLUSTER, 140, "/nowhere")


def test_a_mistake_in_the_file_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "group_vars/all/pool.yml"
    path.parent.mkdir(parents=True)
    path.write_text("slurm_pool:\n  classes: {}\n  users:\n    research:\n      users: [anna]\n      max_gpus: half\n")
    data = {"users": {"research": {"users": ["anna"], "max_gpus": "half"}}}
    with pytest.raises(AnsibleFilterError, match=r"pool.yml:6: .*invalid GPU count 'half'"):
        policy(data, CLUSTER, 140, str(tmp_path))
    # preflight finds it before anything is installed
    faults = load_filters("slurm_policy")["slurm_pool_faults"]
    assert len(faults(data, 140, str(tmp_path))) == 1
    assert faults({"users": {"research": {"users": ["anna"]}}}, 140, str(tmp_path / "nowhere")) == []


# --- the program on the head -----------------------------------------------------------------------------------


def program() -> ModuleType:
    path = ROOT / "roles/slurm/files/pool_sync.py"
    loader = importlib.machinery.SourceFileLoader("pool_sync", str(path))
    spec = importlib.util.spec_from_loader("pool_sync", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def sync(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    return program()


class Slurm:
    """What sacctmgr and scontrol answer, and what they were told to do."""

    def __init__(self, module: ModuleType, **tables: list[str]) -> None:
        self.tables, self.done, self.module = tables, list[str](), module
        self.busy = ""
        #: What the controller knows: what accounting has, and what is added while it hears of it.
        self.heard = {row.split("|")[0] for row in tables.get("qos", [])}
        self.deaf = False

    def __call__(self, *command: str) -> list[str]:
        words = list(command)
        if words[:3] == ["sacctmgr", "-nP", "show"]:
            lines = self.tables.get(words[3], [])
            if words[3] == "assoc" and words[4] == "format=Account,User":
                return ["|".join(line.split("|")[:2]) for line in lines]
            return lines
        if words == ["scontrol", "show", "assoc_mgr", "flags=qos"]:
            return ["Current Association Manager state", "", "QOS Records", "", *(f"QOS={q}(1)" for q in self.heard)]
        if words[:4] == ["sacctmgr", "-i", "add", "qos"] and not self.deaf:
            self.heard.add(words[4])
        if words == ["systemctl", "restart", "slurmctld"]:
            self.heard |= {"research", "teaching"}
        if words[:4] == ["scontrol", "-o", "show", "reservation"]:
            return self.tables.get("reservation", [])
        if words[:3] == ["scontrol", "show", "hostnames"]:
            return words[3].split(",")
        if self.busy and self.busy in command:
            raise self.module.Refused(f"{command[0]}: Error with request: Job(s) active, cancel job(s) before remove")
        self.done.append(" ".join(w for w in words if w not in ("sacctmgr", "scontrol", "-i", "set")))
        return []


QOS_ROWS = [
    "normal|Normal QOS default|0||||||||",
    "research|elastic-ai|0|billing=1120|billing=350|1000|1-00:00:00|00:01:00|teaching|DenyOnLimit",
    "teaching|elastic-ai|0||billing=20|20|00:30:00|00:01:00||DenyOnLimit",
]
IN_LINE: dict[str, list[str]] = {
    "qos": QOS_ROWS,
    "account": ["root|root", "research|elastic-ai", "teaching|elastic-ai"],
    "assoc": [
        "root||normal|", "root|root|normal|", "research||research|research", "research|anna|research|research",
        "teaching||teaching|teaching", "teaching|ben|teaching|teaching",
    ],
    "user": ["root|root", "anna|research", "ben|teaching"],
    "reservation": [
        "ReservationName=pool_course StartTime=2026-11-22T08:00:00 EndTime=2026-11-22T12:00:00 Duration=04:00:00 "
        "Nodes=gpu1 NodeCnt=1 CoreCnt=2 Features=(null) PartitionName=v100 Flags=DAILY,SPEC_NODES,MAGNETIC "
        "TRES=cpu=2 Users=(null) Groups=(null) Accounts=teaching Licenses=(null) State=INACTIVE",
        "ReservationName=maintenance StartTime=2026-12-01T08:00:00 Duration=04:00:00 Nodes=gpu1 Accounts=(null)",
    ],
}  # fmt: skip


def run(module: ModuleType, monkeypatch: pytest.MonkeyPatch, slurm: Slurm, pool: Any, check: bool = False) -> Any:
    monkeypatch.setattr(module, "ask", slurm)
    one = module.Sync(policy(pool, CLUSTER, 140, "/nowhere")["sync"], check)
    one.run()
    return one


def test_a_fresh_head_gets_all_of_it(sync: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Slurm(sync, qos=QOS_ROWS[:1], account=["root|root"], assoc=["root|root|normal|"], user=["root|root"])
    run(sync, monkeypatch, slurm, POOL)
    assert [done for done in slurm.done if done.startswith("add")] == [
        "add qos research Description=elastic-ai",
        "add qos teaching Description=elastic-ai",
        "add account research Organization=elastic-ai Description=research",
        "add account teaching Organization=elastic-ai Description=teaching",
        "add user anna Account=research",
        "add user ben Account=teaching",
    ]
    assert slurm.done[2] == "reconfigure", "or the partitions would go on not to know their QOS"
    assert "modify account teaching QOS=teaching DefaultQOS=teaching" in slurm.done
    limits = next(done for done in slurm.done if done.startswith("modify qos teaching"))
    assert "MaxTRESPerUser=billing=20" in limits
    assert "MaxWall=0-00:30:00" in limits
    assert "GrpTRES" not in limits, "no limit is what a new QOS has"
    made = slurm.done[-1]
    assert made.startswith("create reservation ReservationName=pool_course")
    assert made.endswith("Accounts=teaching PartitionName=v100 Nodes=gpu1 Flags=DAILY,MAGNETIC,IGNORE_JOBS")


def test_a_controller_that_missed_a_class_is_started_anew(sync: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would refuse all jobs of that class: accounting's word came while it was starting, or it was away before."""
    monkeypatch.setattr(sync.time, "sleep", lambda _s: None)
    fresh = Slurm(sync, qos=QOS_ROWS[:1], account=["root|root"], assoc=["root|root|normal|"], user=["root|root"])
    fresh.deaf = True
    one = run(sync, monkeypatch, fresh, POOL)
    assert fresh.done.index("systemctl restart slurmctld") < fresh.done.index("reconfigure")
    assert "the controller reads QOS research, teaching" in one.changed
    later = Slurm(sync, **IN_LINE)
    later.heard = {"normal", "research"}
    assert run(sync, monkeypatch, later, POOL).changed == ["the controller reads QOS teaching"]
    away = Slurm(sync, **IN_LINE)
    monkeypatch.setattr(sync, "heard_of", lambda: (_ for _ in ()).throw(sync.Refused("connect failure")))
    with pytest.raises(sync.Refused):
        run(sync, monkeypatch, away, POOL)
    assert away.done == []


def test_what_is_in_line_is_left_alone(sync: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Slurm(sync, **IN_LINE)
    one = run(sync, monkeypatch, slurm, POOL)
    assert (slurm.done, one.changed, one.waiting) == ([], [], [])


def test_check_says_the_same_and_does_nothing(sync: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = {"qos": QOS_ROWS[:1], "account": ["root|root"], "assoc": ["root|root|normal|"], "user": ["root|root"]}
    checked, slurm = run(sync, monkeypatch, dry := Slurm(sync, **fresh), POOL, check=True), Slurm(sync, **fresh)
    assert dry.done == []
    assert checked.changed == run(sync, monkeypatch, slurm, POOL).changed


def test_what_is_gone_from_the_file_goes_and_what_is_not_ours_stays(
    sync: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = Slurm(sync, **{**IN_LINE, "account": [*IN_LINE["account"], "physics|university"]})
    run(sync, monkeypatch, slurm, {"users": {"research": {**POOL["users"]["research"], "preempts": []}}})
    assert slurm.done == [
        "modify qos research GraceTime=30 Preempt=",
        "delete user ben",
        "delete ReservationName=pool_course",
        "delete account teaching",
        "delete qos teaching",
    ]


def test_a_user_who_changes_class_keeps_an_account(sync: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Slurm(sync, **IN_LINE)
    pool = {**POOL, "users": {"research": {**POOL["users"]["research"], "users": ["anna", "ben"]},
                              "teaching": {**POOL["users"]["teaching"], "users": ["carl"]}}}  # fmt: skip
    run(sync, monkeypatch, slurm, pool)
    assert slurm.done == [
        "add user ben Account=research",
        "modify user ben DefaultAccount=research",
        "add user carl Account=teaching",
        "delete user ben Account=teaching",
    ]


def test_running_leases_make_it_wait_and_not_fail(sync: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Slurm(sync, **IN_LINE)
    slurm.busy = "ben"
    pool = {**POOL, "users": {**POOL["users"], "teaching": {**POOL["users"]["teaching"], "users": ["carl"]}}}
    one = run(sync, monkeypatch, slurm, pool)
    assert slurm.done == ["add user carl Account=teaching"]
    assert len(one.waiting) == 1
    assert one.waiting[0].startswith("user ben not in teaching: ")
    assert "Job(s) active" in one.waiting[0]


def test_a_group_that_does_not_exist_is_said(sync: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = {"users": {"research": {"users": ["anna"], "groups": ["no-such-group-here"]}}}
    one = run(sync, monkeypatch, Slurm(sync, **IN_LINE), pool)
    assert one.waiting == ["group no-such-group-here of class research is not known on the head"]


class Directory:
    """A directory behind NSS that lists nobody, as sssd does by default: users and groups are known by name alone."""

    groups: ClassVar = {"students": 7001, "empty": 7002}
    users: ClassVar = {"carl": (7100, 100, [100, 7001]), "dora": (7101, 7001, [7001]), "eve": (7102, 100, [100])}

    def __init__(self, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module.grp, "getgrnam", self.group)
        monkeypatch.setattr(module.pwd, "getpwnam", self.user)
        monkeypatch.setattr(module.pwd, "getpwall", lambda: [])
        monkeypatch.setattr(module.os, "getgrouplist", lambda name, gid: [gid, *self.users[name][2]])

    def group(self, name: str) -> Any:
        return SimpleNamespace(gr_gid=self.groups[name], gr_mem=[])

    def user(self, name: str) -> Any:
        uid, gid, _ = self.users[name]
        return SimpleNamespace(pw_name=name, pw_uid=uid, pw_gid=gid)


def test_members_whom_a_directory_does_not_list_are_found_where_the_head_has_met_them(
    sync: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By Slurm's accounting or by a folder of theirs in /home; who is gone from the directory is no member."""
    Directory(sync, monkeypatch)
    (tmp_path / "dora").mkdir()
    monkeypatch.setattr(sync, "HOMES", str(tmp_path))
    monkeypatch.setattr(sync.pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name="dora"))
    tables = {**IN_LINE, "user": [*IN_LINE["user"], "carl|physics", "eve|physics", "gone|physics"]}
    pool = {"users": {"research": {"users": ["anna"]}, "teaching": {"groups": ["students"]}}}
    slurm = Slurm(sync, **tables)
    one = run(sync, monkeypatch, slurm, pool)
    assert [done for done in slurm.done if done.startswith("add user")] == [
        "add user carl Account=teaching",
        "add user dora Account=teaching",
    ]
    assert one.waiting == ["user ben stays in teaching until the head knows both user and group again"]
    assert sync.printed(["students", "nobody-has-it", "empty"]) == 0
    assert json.loads(capsys.readouterr().out) == {"students": ["carl", "dora"], "empty": []}


def test_a_directory_that_is_away_takes_nobody_out_of_a_class(
    sync: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither where the group is unknown for a moment nor where its users are; one who left the group goes."""
    directory = Directory(sync, monkeypatch)
    monkeypatch.setattr(sync, "HOMES", str(tmp_path / "none"))
    there = [row for row in IN_LINE["assoc"] if "|ben|" not in row]
    there += ["teaching|carl|teaching|teaching", "teaching|eve|teaching|teaching"]
    tables = {**IN_LINE, "assoc": there, "user": ["root|root", "anna|research", "carl|teaching", "eve|teaching"]}
    pool = {"users": {"research": {"users": ["anna"]}, "teaching": {"groups": ["students"]}}}
    for away in ("groups", "users"):
        monkeypatch.setattr(directory, away, {})
        slurm = Slurm(sync, **tables)
        one = run(sync, monkeypatch, slurm, pool)
        assert not [done for done in slurm.done if "user" in done]
        assert [said for said in one.waiting if said.startswith("user carl stays in teaching")]
        monkeypatch.setattr(directory, away, getattr(Directory, away))
    slurm = Slurm(sync, **tables)
    run(sync, monkeypatch, slurm, pool)
    assert [done for done in slurm.done if "user" in done] == ["delete user eve"]


def test_a_group_without_a_member_is_said(sync: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    Directory(sync, monkeypatch)
    pool = {"users": {"research": {"users": ["anna"], "groups": ["empty"]}}}
    one = run(sync, monkeypatch, Slurm(sync, **IN_LINE), pool)
    assert one.waiting == ["group empty of class research has no member whom the head knows"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1-00:00:00", 1440),
        ("00:30:00", 30),
        ("04:00:00", 240),
        ("", None),
        ("-1", None),
        ("2-01:05:00", 2945),
        ("UNLIMITED", None),
        ("NOT_SET", None),
        ("None", None),
        ("INFINITE", None),
        ("30:00", 30),
        ("90", 90),
        ("1-12", 2160),
        ("1-02:30", 1590),
    ],
)
def test_times_of_slurm(sync: ModuleType, text: str, wanted: int | None) -> None:
    assert sync.minutes(text) == wanted


def test_a_reservation_begins_at_its_next_full_start(sync: ModuleType) -> None:
    now = datetime.datetime(2026, 11, 21, 9, 0)
    assert sync.next_start("08:00", now) == "2026-11-22T08:00:00"
    assert sync.next_start("09:30", now) == "2026-11-21T09:30:00"
    # that day is a Saturday
    assert sync.next_start("08:00", now, ["WEEKDAY", "MAGNETIC"]) == "2026-11-23T08:00:00"
    assert sync.next_start("08:00", now, ["WEEKEND"]) == "2026-11-22T08:00:00"
