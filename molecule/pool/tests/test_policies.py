"""The policies of vars/pool.yml, kept by the Slurm that runs: who gets what, and who waits, yields or is refused."""

import json
import re
import time

import pytest

testinfra_hosts = ["ansible://head"]
# GPUs and not cores are what is short; and none is in the way of the reservation.
LIGHT = "--output=/dev/null -n1 --mem=50 --oversubscribe --time=10"


def submit(host, user, words, seconds=120):
    return host.run(f"runuser -u {user} -- sbatch --parsable {LIGHT} {words} --wrap 'sleep {seconds}'")


def number(ran):
    assert ran.rc == 0, ran.stderr
    return ran.stdout.strip().split(";")[0]


def state(host, job):
    return host.check_output("squeue -h -j %s -o '%%T %%r'", job)


def until(what, wanted, limit_s=40):
    seen = None
    for _ in range(limit_s * 2):
        seen = what()
        if re.fullmatch(wanted, seen):
            return
        time.sleep(0.5)
    assert re.fullmatch(wanted, seen), seen


@pytest.fixture(autouse=True)
def an_empty_queue(host):
    yield
    host.run("for user in anna ben carl; do scancel --user $user; done; scancel --state PENDING")
    until(lambda: host.check_output("squeue -h -u anna,ben,carl,root | wc -l"), "0")


def test_who_is_in_no_class_gets_nothing(host):
    refused = submit(host, "carl", "-p v100 --gres=gpu:1")
    assert refused.rc != 0
    assert "Invalid account" in refused.stderr


def test_a_class_of_gpu_is_for_those_who_may_have_it(host):
    refused = submit(host, "ben", "-p h100 --gres=gpu:1")
    assert refused.rc != 0
    assert "Invalid qos" in refused.stderr
    assert submit(host, "ben", "--gres=gpu:h100:1").rc != 0, "nor by way of the partition of all nodes"
    for user, partition in (("ben", "v100"), ("anna", "h100"), ("anna", "v100")):
        job = number(submit(host, user, f"-p {partition} --gres=gpu:1", 1))
        until(lambda job=job: state(host, job).split(" ")[0] if state(host, job) else "gone", "RUNNING|COMPLETING|gone")


def test_wholes_and_parts_count_together_against_a_users_limit(host):
    whole = number(submit(host, "anna", "-p v100 --gres=gpu:2"))
    half = number(submit(host, "anna", "-p v100 --gres=shard:70"))
    until(lambda: state(host, whole).split()[0] + state(host, half).split()[0], "RUNNINGRUNNING")
    more = number(submit(host, "anna", "-p v100 --gres=shard:7"))
    until(lambda: state(host, more), "PENDING QOSMax.*")
    host.check_output("scancel %s", half)
    until(lambda: state(host, more).split()[0], "RUNNING")


def test_more_than_the_limit_ever_allows_is_refused_at_once(host):
    refused = submit(host, "anna", "-p v100 --gres=gpu:3")
    assert refused.rc != 0
    assert "QOS" in refused.stderr


def test_longer_than_a_class_may_is_refused(host):
    refused = submit(host, "ben", "-p v100 --gres=gpu:1 --time=02:00:00")
    assert refused.rc != 0
    assert "limit" in refused.stderr
    assert submit(host, "anna", "-p h100 --gres=gpu:1 --time=25:00:00").rc != 0


def test_research_takes_back_what_teaching_has(host):
    held = number(submit(host, "ben", "-p v100 --gres=gpu:4"))
    until(lambda: state(host, held).split()[0], "RUNNING")
    wanted = number(submit(host, "anna", "-p v100 --gres=gpu:2"))
    until(lambda: state(host, wanted).split()[0], "RUNNING")
    # Never the other way round.
    again = number(submit(host, "ben", "-p v100 --gres=gpu:4"))
    until(lambda: state(host, again), "PENDING (Resources|Priority|None|Reservation)")
    until(lambda: host.check_output("sacct -n -P -X -j %s -o state", held), "PREEMPTED.*")
    assert state(host, wanted).split()[0] == "RUNNING"


def test_reservations_stand_in_slurm(host):
    shown = host.check_output("scontrol -o show reservation")
    fields = dict(re.findall(r"(\w+)=(\S*)", shown))
    assert (fields["ReservationName"], fields["Accounts"], fields["Nodes"]) == ("pool_practicals", "teaching", "gpu1")
    assert fields["StartTime"].endswith("T03:57:00")
    assert fields["Duration"] == "00:03:00"
    assert {"WEEKDAY", "MAGNETIC"} <= set(fields["Flags"].split(","))


def sync(host, *words):
    return json.loads(host.check_output(" ".join(("elastic-ai-pool-sync", *words))))


def test_accounting_is_in_line_and_follows_the_members_of_a_group(host):
    assert sync(host) == {"changed": [], "waiting": []}
    host.check_output("usermod --append --groups students carl")
    try:
        assert sync(host, "--check")["changed"] == ["user carl in teaching"]
        assert submit(host, "carl", "-p v100 --gres=gpu:1").rc != 0, "--check changes nothing"
        assert sync(host)["changed"] == ["user carl in teaching"]
        job = number(submit(host, "carl", "-p v100 --gres=shard:20"))
        until(lambda: state(host, job).split()[0], "RUNNING")
        host.check_output("gpasswd --delete carl students")
        waits = sync(host)
        assert waits["changed"] == [] or waits["waiting"] == []
        host.check_output("scancel %s", job)
        until(lambda: state(host, job) or "gone", "gone")
    finally:
        host.run("gpasswd --delete carl students")
    until(lambda: str(sync(host)["waiting"]), r"\[\]")
    assert submit(host, "carl", "-p v100 --gres=gpu:1").rc != 0


def test_a_policy_that_was_changed_by_hand_is_put_right(host):
    host.check_output("sacctmgr -i modify qos research set MaxTRESPerUser=billing=-1 Priority=1")
    assert sync(host)["changed"] == ["QOS research: MaxTRESPerUser=billing=350 Priority=100"]
    assert sync(host)["changed"] == []


def test_the_timer_runs(host):
    assert host.service("elastic-ai-pool-sync.timer").is_running
    assert host.service("elastic-ai-pool-sync.timer").is_enabled
    assert host.run("systemctl start elastic-ai-pool-sync.service").rc == 0


def test_programs_run_before_and_after_a_job_as_root(host):
    job = number(submit(host, "anna", "-p v100 -w gpu1 --gres=gpu:1", 1))
    until(lambda: state(host, job) or "gone", "gone")
    # The shell of root's own job on the node reads what the programs left there.
    shown = host.check_output("timeout 30 srun --time=1 -p v100 -w gpu1 cat /run/test-prolog")
    assert f"prolog {job} anna root" in shown.splitlines()
    assert f"epilog {job} anna root" in shown.splitlines()
