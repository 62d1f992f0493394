"""A lease on its server, with systemd, nftables and NVML replaced by what remembers: nothing stays, whatever fails."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.support import lease_forms
from tests.support.lease_host import UNIT_UID, FakeHost
from tests.support.lease_texts import COMMENT, START, Job, jobs_of, slurm_job
from toolkit.lease import LeaseError, wire
from toolkit.lease.jobs.job_comment import ended_text
from toolkit.lease.jobs.slurm_text import Held, SlurmJob
from toolkit.lease.machine import unit
from toolkit.lease.server import hooks, instance, leftovers, static, sweep
from toolkit.lease.server.overlap import refuse_overlap
from toolkit.lease.server_conf import ServerConf
from toolkit.lease.static_forms import StaticWish, parse_wish


def said(number: int = 41, gres: str = "shard:v100:70(IDX:2)", **more: Any) -> list[Job]:
    return slurm_job(number, gres=gres, uid=os.getuid(), **more)


def job(number: int = 41, gres: str = "shard:v100:70(IDX:2)", **more: Any) -> SlurmJob:
    return jobs_of(said(number, gres, **more))[0]


def test_a_lease_has_its_own_devices_limit_ports_and_token(host: FakeHost, conf: ServerConf) -> None:
    instance.start(host, job(), conf)
    told = host.endpoint(41)
    assert [(d["uuid"], d["limit_mib"], d["emulated"]) for d in told["devices"]] == [("GPU-2", 128, True)]
    assert len(told["token"]) > 40
    assert (host.run_dir / "41" / "endpoint.json").stat().st_mode & 0o777 == 0o400
    assert host.firewall.open == {
        (c, p) for c in ("10.77.1.12", "10.78.1.12") for p in (told["port"], told["agent_port"])
    }
    assert "token" not in host.systemd.units["41"].text()
    assert any("computing is not limited" in note for note in told["notes"])
    assert "each program's CUDA context takes 0.286 MiB of a part's memory, as measured on its server" in told["notes"]


def test_a_job_that_is_no_lease_gives_way_to_leases(host: FakeHost, conf: ServerConf) -> None:
    instance.start(host, job(41, gres="shard:v100:70(IDX:2)"), conf)
    hooks.give_way(host, job(50, gres="gpu:v100:2(IDX:0-1)", name="train", comment=None), conf)
    assert host.slurm.commands == []
    hooks.give_way(host, job(51, gres="gpu:v100:2(IDX:1-2)", name="train", comment=None), conf)
    assert (host.slurm.commands, host.slurm.cancelled) == ([["scontrol", "requeue", "51"]], [])
    host.slurm.answers["scontrol requeue"] = (1, "an interactive one cannot be queued again")
    hooks.give_way(host, job(52, gres="gpu:v100:1(IDX:2)", name="train", comment=None), conf)
    assert host.slurm.cancelled == [52]


def test_an_address_of_the_server_itself_is_no_client(host: FakeHost, conf: ServerConf) -> None:
    bridged = COMMENT.replace('"10.77.1.12"', '"172.17.0.1","10.77.1.12"')
    instance.start(host, job(comment=bridged), conf)
    assert {c for c, _ in host.firewall.open} == {"10.77.1.12", "10.78.1.12"}
    instance.start(host, job(42, comment=COMMENT.replace("10.78.1.12", "127.0.0.1")), conf)
    assert host.systemd.units["42"].clients == (
        "10.77.1.12",
        "127.0.0.1",
    )  # it serves on this one: the client is here
    with pytest.raises(LeaseError, match="addresses of gpu1 itself"):
        instance.start(
            host,
            job(43, "gpu:v100:1(IDX:3)", comment=COMMENT.replace('"10.77.1.12","10.78.1.12"', '"172.17.0.1"')),
            conf,
        )


def test_a_whole_gpu_has_no_limit_and_no_part_of_another_node(host: FakeHost, conf: ServerConf) -> None:
    instance.start(host, job(gres="gpu:v100:2(IDX:0-1)"), conf)
    assert [d["limit_mib"] for d in host.endpoint(41)["devices"]] == [None, None]
    with pytest.raises(LeaseError, match="gave the lease no GPU"):
        instance.start(host, job(42, gres="gpu:v100:1(IDX:3)", node="gpu2"), conf)
    assert host.endpoint(42)["again"]  # as after a restart of the controller: to be asked for once more


def test_a_gpu_is_never_given_out_twice(host: FakeHost, conf: ServerConf) -> None:
    instance.start(host, job(41), conf)
    instance.start(host, job(42), conf)
    for gres in ("shard:v100:1(IDX:2)", "gpu:v100:1(IDX:2)"):
        with pytest.raises(LeaseError, match="already has leases for 140 of 140 shards"):
            instance.start(host, job(43, gres=gres), conf)
    assert set(host.systemd.units) == {"41", "42"}
    two = lease_forms.instance(job="44", devices=(lease_forms.leased_gpu(1, 35),) * 2)  # two quarters of one lease
    three_quarters = instance.devices_of(host, [Held("gpu1", 1, 105)], conf, 0)
    with pytest.raises(LeaseError, match=r"70 of 140 shards \(jobs 44\); 105 more"):
        refuse_overlap(three_quarters, {"44": two})
    with pytest.raises(LeaseError, match=r"0 of 140 shards .*; 210 more"):
        refuse_overlap(three_quarters * 2, {})


@pytest.mark.parametrize(
    ("comment", "words"), [("{}", "another release"), (COMMENT.replace('"run"', '"x"'), "mode is 'x'")]
)
def test_what_cannot_start_leaves_its_reason_and_nothing_else(
    host: FakeHost, conf: ServerConf, comment: str, words: str
) -> None:
    with pytest.raises(LeaseError, match=words):
        instance.start(host, job(comment=comment), conf)
    assert words in host.endpoint(41)["error"]
    assert (host.firewall.open, host.systemd.units) == (set(), {})
    assert sorted(p.name for p in (host.run_dir / "41").iterdir()) == ["born", "endpoint.json"]
    assert instance.end_instance(host, "41") == []
    assert not (host.run_dir / "41").exists()


def test_a_unit_that_fails_takes_rule_port_and_token_with_it(host: FakeHost, conf: ServerConf) -> None:
    host.systemd.fails = unit.UnitFailed("elastic-ai-lease@41.service did not start: timeout")
    with pytest.raises(LeaseError) as failed:
        instance.start(host, job(), conf)
    assert str(failed.value).endswith("; its last words")
    assert host.firewall.open == set()
    assert sorted(p.name for p in (host.run_dir / "41").iterdir()) == ["born", "endpoint.json"]


def test_no_engine_no_driver_no_ports(host: FakeHost, conf: ServerConf) -> None:
    with pytest.raises(LeaseError, match="no remoting engine is installed"):
        instance.start(host, job(), replace(conf, engine_dir=host.folder / "none"))
    with pytest.raises(LeaseError, match="all ports for leases"):
        instance.start(host, job(), replace(conf, ports=(31000, 31000)))
    host.sockets.busy |= set(range(31001, 31100))  # by somebody else
    words = r"gpu1: all ports for leases \(31000-31099\) are in use; they are enough for 50 leases at a time"
    with pytest.raises(LeaseError, match=words):
        instance.start(host, job(), conf)
    first, last = ServerConf("gpu1", "127.0.0.1").ports
    assert (last - first + 1) // 2 >= 8 * 140  # eight GPUs, all in the smallest parts
    host.sockets.busy.clear()
    with pytest.raises(LeaseError, match="no MPS daemon"):
        instance.start(host, job(), replace(conf, enforcement="mps", mps_pipe="/x"))
    host.gpus.broken = LeaseError("this server has no libnvidia-ml.so.1")
    with pytest.raises(LeaseError, match="no libnvidia-ml"):
        instance.start(host, job(), conf)
    assert host.firewall.open == set()


def test_the_end_is_verified(host: FakeHost, conf: ServerConf) -> None:
    instance.start(host, job(), conf)
    told = host.endpoint(41)
    host.systemd.stuck = True
    host.sockets.whose[told["port"]] = UNIT_UID
    host.gpus.users = {"GPU-2": [999_999], "GPU-3": [7]}
    assert instance.end_instance(host, "41") == [
        "process 999999 still runs",
        f"something still listens on port {told['port']}",
        "elastic-ai-lease@41.service is still active",
        "process 999999 still has memory on GPU-2",
    ]
    assert host.clock.now > leftovers.GONE_S
    assert (host.run_dir / "41").exists()  # so that the sweep comes back to it
    host.gpus.broken = LeaseError("no driver")
    assert "cannot check that GPU memory is free: no driver" in instance.end_instance(host, "41")[-1]


def test_a_prolog_starts_leases_and_nothing_else(
    host: FakeHost, conf: ServerConf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host.slurm.said = [said() + said(50, name="train") + said(51, comment="mine")]
    for number in (41, 50, 51, 60):
        monkeypatch.setenv("SLURM_JOB_ID", str(number))
        assert hooks.prolog(host) == 0
    assert set(host.systemd.units) == {"41"}
    assert host.endpoint(41)["token"] not in capsys.readouterr().err
    monkeypatch.setenv("SLURM_JOB_ID", "41")
    assert hooks.epilog(host) == 0
    assert (host.systemd.units, host.firewall.open, instance.known(host).jobs) == ({}, set(), set())
    monkeypatch.setenv("SLURM_JOB_ID", "60")
    assert hooks.epilog(host) == 0


def test_a_lease_of_a_user_whom_its_server_does_not_know_ends_with_that_reason(
    host: FakeHost, conf: ServerConf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Slurm puts a job whose user is unknown on its server back into the queue, again and again."""
    words = "user alice (uid 1042) is not known on gpu1"
    host.users.problems[os.getuid()] = words
    host.slurm.said = [said(42, array=41, task=0) + said(50, name="train")]
    for number in ("42", "50"):
        monkeypatch.setenv("SLURM_JOB_ID", number)
        assert hooks.prolog(host) == 0  # a 1 would drain a server that is as it should be
    assert (host.systemd.units, instance.known(host).jobs, host.slurm.cancelled) == ({}, set(), [41])
    assert host.slurm.commands == [["scontrol", "update", "JobId=42", f"AdminComment={ended_text(words)}"]]
    assert f"lease 41: {words}" in capsys.readouterr().err
    host.users.problems.clear()
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    assert hooks.prolog(host) == 0
    assert set(host.systemd.units) == {"42"}


def test_an_epilog_drains_the_node_where_something_stays(
    host: FakeHost, conf: ServerConf, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance.start(host, job(), conf)
    host.systemd.stuck = True
    monkeypatch.setenv("SLURM_JOB_ID", "41")
    assert hooks.epilog(host) == 1


def test_the_sweep_ends_what_nobody_ended(host: FakeHost, conf: ServerConf) -> None:
    for number, gres in ((41, "gpu:1(IDX:0)"), (42, "gpu:1(IDX:1)"), (43, "gpu:1(IDX:2)")):
        instance.start(host, job(number, gres=gres), conf)
    host.clock.now += 60
    host.systemd.units.pop("43")  # died without its ExecStopPost
    host.firewall.open.add(("10.0.0.9", 30999))  # a rule of nobody
    host.slurm.silent = True
    assert sweep.sweep(host) == 0
    assert set(host.systemd.units) == {"41", "42"}  # Slurm does not answer: nothing is taken
    host.slurm.silent = False
    host.slurm.answers["squeue"] = "41 RUNNING 4102444800 N/A\n42 COMPLETED N/A N/A\n43 RUNNING Unknown N/A\n"
    assert sweep.sweep(host) == 0
    assert set(host.systemd.units) == {"41"}
    assert host.slurm.commands[-1] == [
        "scontrol",
        "update",
        "JobId=43",
        'AdminComment={"elastic-ai-lease-ended": "its instance is gone"}',
    ]
    assert host.slurm.cancelled == [43]
    assert ("10.0.0.9", 30999) not in host.firewall.open
    moved = wire.Deadline.read(host.run_dir / "41" / "deadline")
    # Seconds since the epoch: an hour that a clock shows twice cannot be mistaken.
    assert (moved.until, moved.code) == (4102444800, wire.EndCode.TIME)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"preempt_time": START}, wire.EndCode.PREEMPTED),
        ({"admin_comment": ended_text("the administrator ended it")}, wire.EndCode.ADMINISTRATOR),
        ({}, wire.EndCode.TIME),
        ({"state": "COMPLETING"}, wire.EndCode.TAKEN_BACK),  # released, and its Epilog has not come yet
        ({"state": "CANCELLED"}, wire.EndCode.TAKEN_BACK),
    ],
)
@pytest.mark.parametrize("minutes", [60, None])  # None: without a limit, Slurm's end is a year away
def test_an_end_before_its_time_reaches_the_agent_with_its_reason(
    host: FakeHost, conf: ServerConf, more: Job, code: wire.EndCode, minutes: int | None
) -> None:
    now = int(host.clock.time())
    instance.start(host, job(end=now + 3600, minutes=minutes), conf)
    host.slurm.said = [said(end=now + 60, minutes=minutes, **more)]
    taken = code is wire.EndCode.PREEMPTED
    end = "NONE" if taken and minutes is None else now + 60  # as squeue of 22.05 prints it
    state = "COMPLETING" if "state" in more else "RUNNING"
    host.slurm.answers["squeue"] = f"41 {state} {end} {START if taken else 'N/A'}\n"
    assert sweep.sweep(host) == 0
    moved = wire.Deadline.read(host.run_dir / "41" / "deadline")
    assert (moved.until, moved.code) == (now + 60, code)
    assert moved.due is not None
    assert 55 < moved.due - host.clock.monotonic() <= 60
    host.slurm.said = [[]]  # it is not asked for again while nothing changes
    (host.run_dir / "41" / "deadline").unlink()
    assert sweep.sweep(host) == 0
    assert not (host.run_dir / "41" / "deadline").exists()


def test_a_lease_that_its_epilog_takes_away_during_the_sweep(host: FakeHost, conf: ServerConf) -> None:
    instance.start(host, job(), conf)
    folder = host.run_dir / "41"
    assert instance.end_instance(host, "41") == []
    sweep._sweep_one(host, "41", folder, None)
    instance.move_end(host, "41", 60.0, wire.Deadline())
    assert not folder.exists()


def test_a_flush_of_all_rules_ends_no_lease(host: FakeHost, conf: ServerConf) -> None:
    instance.start(host, job(41), conf)
    before = set(host.firewall.open)
    host.slurm.answers["squeue"] = "41 RUNNING Unknown N/A\n"
    host.firewall.remove()  # systemctl restart nftables
    assert sweep.sweep(host) == 0
    assert (host.firewall.open, host.firewall.there) == (before, True)
    host.firewall.remove()
    instance.start(host, job(42, gres="gpu:v100:1(IDX:3)"), conf)  # before the sweep came
    assert before < host.firewall.open


def test_no_clock_that_is_set_makes_a_lease_old(host: FakeHost, conf: ServerConf) -> None:
    """Neither a lease that is about to start, nor a job whose Prolog has not begun, by a controller of another time."""
    instance.start(host, job(41), conf)
    host.systemd.units.clear()  # as while its engine starts
    host.clock.wall = lambda: time.time() + 3600
    host.slurm.answers["squeue --noheader --nodelist=gpu1 --states=all"] = (
        "41 RUNNING Unknown N/A\n42 RUNNING Unknown N/A\n"
    )
    host.slurm.answers["squeue --noheader --nodelist=gpu1 --states=RUNNING"] = "41\n42\n"
    assert sweep.sweep(host) == 0
    assert host.slurm.cancelled == []


def test_a_lease_that_starts_while_the_sweep_asks_slurm_is_left_alone(
    host: FakeHost, conf: ServerConf, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = host.slurm.run

    def run(args: Sequence[str], stdin: str = "", timeout_s: float = 60) -> CompletedProcess[str]:
        said = ask(args, stdin, timeout_s)
        if "--states=all" in args and not host.systemd.units:
            instance.start(host, job(41), conf)
            host.clock.now += 60  # what the sweep does first takes its time
            os.utime(host.run_dir / "41", (0, 0))
        return said

    monkeypatch.setattr(host.slurm, "run", run)
    assert sweep.sweep(host) == 0
    assert set(host.systemd.units) == {"41"}


def test_a_lease_whose_prolog_never_came_gives_its_gpu_back(host: FakeHost, conf: ServerConf) -> None:
    """Slurm was away during the Prolog, and the client is gone: nobody else would ever end it."""
    instance.start(host, job(41), conf)
    all_, running = (
        "squeue --noheader --nodelist=gpu1 --states=all",
        "squeue --noheader --nodelist=gpu1 --states=RUNNING",
    )
    host.slurm.answers[all_] = "".join(f"{number} RUNNING Unknown N/A\n" for number in (41, 42, 43, 44))
    host.slurm.answers[running] = "41\n42\n"  # 43 is still to come, 44 is no lease
    assert sweep.sweep(host) == 0
    host.clock.now += sweep.PROLOG_S + 1
    host.slurm.answers[running] = "41\n42\n43\n"
    assert sweep.sweep(host) == 0
    assert host.slurm.cancelled == [42]
    assert any("--name=elastic-ai-lease" in command for command in host.slurm.commands)


def test_an_instance_has_the_host_memory_that_its_job_asked_slurm_for(host: FakeHost, conf: ServerConf) -> None:
    instance.start(host, job(memory_per_node=512 + 128), conf)  # the engine's, and half an emulated GPU
    assert host.systemd.units["41"].memory_bytes == 640 << 20
    for asked in (639, 0, None):
        with pytest.raises(LeaseError, match=rf"asked for {asked or 0} MiB of host memory, its engine needs 640 here"):
            instance.start(host, job(42, memory_per_node=asked), conf)
    site = replace(conf, memory_mib=100)
    instance.start(host, job(43, "gpu:v100:2(IDX:0-1)", memory_per_node=712), site)
    with pytest.raises(LeaseError, match="asked for 711 MiB of host memory, its engine needs 712"):
        instance.start(host, job(43, "gpu:v100:2(IDX:0-1)", memory_per_node=711), site)


def test_shares_of_all_kinds_are_counted(host: FakeHost, conf: ServerConf) -> None:
    held = [Held("gpu1", 0, 0), Held("gpu1", 1, 20)]
    assert [(d.shards, d.limit_mib) for d in instance.devices_of(host, held, conf, 0)] == [(140, None), (20, 36)]
    assert [d.limit_mib for d in instance.devices_of(host, held, conf, 30)] == [30, 30]
    with pytest.raises(LeaseError, match="only 4 GPUs"):
        instance.devices_of(host, [Held("gpu1", 9, 0)], conf, 0)


def test_parts_are_cut_from_what_the_driver_leaves_and_hold_more_than_a_context(
    host: FakeHost, conf: ServerConf
) -> None:
    host.gpus.found = [replace(gpu, reserved_mib=16) for gpu in host.gpus.found]
    (half,) = instance.devices_of(host, [Held("gpu1", 0, 70)], conf, 0, {})
    assert (half.limit_mib, half.context_bytes) == (120, 300_000)
    (whole,) = instance.devices_of(host, [Held("gpu1", 0, 0)], conf, 0, {})
    assert (whole.limit_mib, whole.context_bytes) == (None, 0)
    host.gpus.sizes["GPU-0"] = 120 << 20
    with pytest.raises(LeaseError, match="1/2 of GPU 0 is 120 MiB, and a program's context alone takes 120 MiB"):
        instance.devices_of(host, [Held("gpu1", 0, 70)], conf, 0, {})
    host.gpus.sizes.clear()
    with pytest.raises(LeaseError, match="GPU 0 gives no parts: what a context takes"):
        instance.devices_of(host, [Held("gpu1", 0, 70)], conf, 0, {})
    assert instance.devices_of(host, [Held("gpu1", 0, 0)], conf, 0, {}) == [whole], "a whole GPU needs no such figure"
    (native,) = instance.devices_of(host, [Held("gpu1", 0, 70)], conf, 0)
    assert native.shards == 70, "nor a job that is no lease"


def test_static_leases_take_what_is_free_and_refuse_the_rest(host: FakeHost, conf: ServerConf) -> None:
    wanted = StaticWish(count=2, part="0.5", clients=("10.0.0.2",), host="client1", seconds=60)
    first = static.start(host, wanted, conf)
    # Not twice GPU 0: CUDA_VISIBLE_DEVICES=u,u is one device.
    assert (first.endpoint.job, [device.index for device in first.endpoint.devices]) == ("s1", [0, 1])
    assert (first.what, first.rounding) == ("2 x 1/2 GPU", "")
    assert static.start(host, replace(wanted, part="1"), conf).endpoint.job == "s2"
    free = r"free of 0: 1/2, 1: 1/2, 2: 0, 3: 0"
    for more in ({"count": 3, "part": "1/20"}, {"count": 1, "part": "71/140"}):
        with pytest.raises(LeaseError, match=rf"does not have that much free on {more['count']} GPUs? \({free}\)"):
            static.start(host, replace(wanted, **more), conf)
    for more, words in (({"part": "half"}, "-p half: not a number"), ({"count": 5000}, "free on 5000 GPUs")):
        asked = parse_wish(replace(wanted, **more).text())  # what a user may say is for the server to refuse
        with pytest.raises(LeaseError, match=words):
            static.start(host, asked, conf)
    assert set(host.systemd.units) == {"s1", "s2"}
    assert [(one.lease, one.where) for one in static.listed(instance.known(host).by_job.values(), "gpu1")] == [
        ("s1", "gpu1:0-1"),
        ("s2", "gpu1:2-3"),
    ]
    assert instance.end_instance(host, "s1") == []
    assert static.start(host, wanted, conf).endpoint.job == "s3"
    instance.end_instance(host, "s2")
    third = static.start(host, replace(wanted, count=1, part="1/3"), conf)  # by this server's own count
    assert (third.endpoint.devices[0].shards, third.rounding[:32]) == (46, "1/3 of a GPU is 46.67 of 140 sha")


def test_a_part_that_is_no_whole_number_is_said_to_its_owner(host: FakeHost, conf: ServerConf) -> None:
    instance.start(host, job(gres="shard:v100:20(IDX:2)"), conf)
    assert "1/7 of 256 MiB is 36.57 MiB: you get 36" in host.endpoint(41)["notes"]
    instance.start(host, job(42, gres="shard:v100:70(IDX:1)"), conf)
    assert not [note for note in host.endpoint(42)["notes"] if "you get" in note]
    host.gpus.found = [replace(gpu, sm_count=132) for gpu in host.gpus.found]
    mps = replace(conf, enforcement="mps", mps_pipe=str(host.folder))
    instance.start(host, job(43, gres="shard:v100:20(IDX:3)"), mps)
    assert any(note.startswith("1/7 of 132 SMs is 18.86: MPS rounds") for note in host.endpoint(43)["notes"])
