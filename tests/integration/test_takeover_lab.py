"""A GPU server of somebody's is taken over, in a lab of Debian 13: the run after it changes nothing, the record of what
was taken stays, leases work by Slurm 24.11, and the teardown gives back what was there, and ran."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from conftest import STOOD_IN, Lab, stood_in

from tests.support.lease_lab import json_in, run_as, shell, until
from tests.support.recap import recap
from tests.support.snapshot import differences, snapshots

pytestmark = pytest.mark.rest
NAME = "takeover"
RECORD = "/etc/elastic-ai/taken_over.json"
OURS = ["slurm", "munge", "docker", "monitoring", "libraries"]
CONSENT = ("-e", json.dumps({"preflight_take_over": OURS}))
NOTHING: dict[str, list[str]] = {node: [] for node in STOOD_IN}
#: What their daemons themselves write when they end.
WRITTEN = ("files: /var/lib/munge/munged.seed", "files: /var/spool/slurmd/cred_state")
UNCHANGED = dict.fromkeys(STOOD_IN, 0)
#: A GPU server of another cluster, whose controller is away: packages, a key, settings, a slurmd that runs.
PLANT = r"""
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install --no-install-recommends -y slurmd slurm-client munge > /dev/null 2> /root/apt-said
printf '%064dtheirs' 0 > /etc/munge/munge.key
chown munge: /etc/munge/munge.key
chmod 400 /etc/munge/munge.key
cat > /etc/slurm/slurm.conf <<'CONF'
# Administrator's own file
ClusterName=prod
SlurmctldHost=ctl01(192.0.2.9)
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
NodeName=gpu1 CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=batch Nodes=gpu1 Default=YES State=UP
CONF
echo 'CgroupPlugin=disabled' > /etc/slurm/cgroup.conf
mkdir -p /etc/docker
echo '{"log-level": "warn"}' > /etc/docker/daemon.json
echo 'NCCL_DEBUG=WARN' > /etc/nccl.conf
echo 'ARGS="--log.level=warn"' > /etc/default/prometheus-node-exporter
systemctl enable -q munge slurmd
systemctl restart munge slurmd
munge --no-input --ttl=-1 --output /root/theirs.cred
"""
#: What is there of theirs, and runs.
THEIRS = r"""
for unit in munge slurmd; do echo $(systemctl is-enabled $unit) $(systemctl is-active $unit); done
cd /etc
sha256sum munge/munge.key slurm/* docker/daemon.json nccl.conf default/prometheus-node-exporter
stat -c '%n %a %U:%G' munge/munge.key slurm/* docker/daemon.json
"""


@dataclass(frozen=True)
class Taken:
    """The lab after the takeover."""

    lab: Lab
    theirs: str
    before: dict[str, Any]
    record: str


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A head, and a GPU server of somebody's."""
    with stood_in("debian13", tmp_path_factory.mktemp("inventory") / NAME, NAME) as lab:
        shell(lab, "gpu1", PLANT)
        yield lab


@pytest.fixture(scope="module")
def taken(theirs: Lab) -> Taken:
    """The same after a run that was told what is the site's own."""
    there, before = shell(theirs, "gpu1", THEIRS), snapshots(theirs, STOOD_IN)
    done = theirs.playbook(*CONSENT)
    assert done.returncode == 0, done.stdout[-6000:]
    return Taken(theirs, there, before, theirs.ssh("gpu1", f"cat {RECORD}"))


def test_without_consent_it_is_refused_and_nothing_is_changed(theirs: Lab) -> None:
    before = shell(theirs, "gpu1", THEIRS)
    done = theirs.playbook()
    said = " ".join(done.stdout.split())
    assert done.returncode != 0
    assert "of cluster prod under ctl01" in said
    assert "/etc/docker/daemon.json" in said
    assert shell(theirs, "gpu1", THEIRS) == before
    assert theirs.ssh("gpu1", f"ls {RECORD} 2>&1 || true").startswith("ls: cannot access")


def test_what_was_taken_over_is_on_record(taken: Taken) -> None:
    record = json.loads(taken.record)
    assert sorted(record) == sorted(OURS)
    assert "of cluster prod under ctl01" in record["slurm"]["found"]
    assert "theirs" not in shell(taken.lab, "gpu1", "cat /etc/munge/munge.key")


@pytest.mark.parametrize("words", [CONSENT, ()], ids=["with consent", "without"])
def test_the_next_run_changes_nothing_and_the_record_stays(taken: Taken, words: tuple[str, ...]) -> None:
    again = taken.lab.playbook(*words)
    assert again.returncode == 0, again.stdout[-6000:]
    assert {node: counts["changed"] for node, counts in recap(again.stdout).items()} == UNCHANGED, again.stdout[-6000:]
    assert taken.lab.ssh("gpu1", f"cat {RECORD}") == taken.record


def test_leases_work_by_slurm_24(taken: Taken) -> None:
    assert shell(taken.lab, "head", "sinfo --version").split()[1].startswith("24.11.")
    for share in ("", "-p 1/4 ", "-n 2 -p 1/4 "):
        code, said = run_as(taken.lab, "alice", f"toolkit run {share}-- nvidia-smi -L", node="gpu1")
        assert code == 0, said
        assert "GPU 0" in said
    code, said = run_as(taken.lab, "alice", "toolkit gpus --json", node="gpu1")
    assert code == 0, said
    assert {gpu["node"] for gpu in json_in(said)["gpus"]} == {"gpu1"}
    until(lambda: shell(taken.lab, "head", "squeue --noheader").strip(), "", 60)
    assert shell(taken.lab, "head", "sinfo -h -N -n gpu1 -o %T").split()[0] == "idle", "drained by a lease"


def test_a_teardown_gives_back_what_was_there(taken: Taken) -> None:
    done = taken.lab.playbook(name="playbooks/teardown.yml")
    assert done.returncode == 0, done.stdout[-6000:]
    assert shell(taken.lab, "gpu1", THEIRS) == taken.theirs
    # Their munge reads what it wrote before, expired or not.
    read = shell(taken.lab, "gpu1", "unmunge --input /root/theirs.cred 2>&1 || true")
    assert "ENCODE_HOST" in read, read
    after = snapshots(taken.lab, STOOD_IN)
    left = {node: differences(taken.before[node], after[node]) for node in STOOD_IN}
    assert {node: [one for one in said if not one.startswith(WRITTEN)] for node, said in left.items()} == NOTHING
