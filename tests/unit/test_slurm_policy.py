"""The pool's policies in Slurm's words, and the program on the head that keeps accounting in line with them."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from ansible.errors import AnsibleFilterError

from tests.support.node_modules import load_filters
from tests.support.pool_head import CLUSTER, IN_LINE, POOL, QOS_ROWS, Directory, Slurm, policy, run, sync

__all__ = ["sync"]  # a fixture


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
    assert one.waiting == ["user ben stays in teaching for 10 min more, as the directory may err"]
    assert sync.printed(["students", "nobody-has-it", "empty"]) == 0
    assert json.loads(capsys.readouterr().out) == {"students": ["carl", "dora"], "empty": []}


def test_a_directory_that_is_away_takes_nobody_out_of_a_class(
    sync: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither where the group is unknown for a moment nor where its users are."""
    directory = Directory(sync, monkeypatch)
    monkeypatch.setattr(sync, "HOMES", str(tmp_path / "none"))
    there = [row for row in IN_LINE["assoc"] if "|ben|" not in row]
    there += ["teaching|carl|teaching|teaching", "teaching|eve|teaching|teaching"]
    tables = {**IN_LINE, "assoc": there, "user": ["root|root", "anna|research", "carl|teaching", "eve|teaching"]}
    pool = {"users": {"research": {"users": ["anna"]}, "teaching": {"groups": ["students"]}}}
    for away, word in (
        ("groups", "user carl stays in teaching until the head knows both user and group again"),
        ("users", "carl, eve: not known to have left, for sssd does not say that its domain lab is online"),
    ):
        monkeypatch.setattr(directory, away, {})
        slurm = Slurm(sync, **tables)
        slurm.answers = False
        one = run(sync, monkeypatch, slurm, pool)
        assert not [done for done in slurm.done if "user" in done]
        assert word in one.waiting
        monkeypatch.setattr(directory, away, getattr(Directory, away))


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
