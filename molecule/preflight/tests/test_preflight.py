"""Preflight reads only, and refuses once with every reason of every node."""

import json
import os
import subprocess
from pathlib import Path

import testinfra

ROOT = Path(__file__).parents[3]
INVENTORY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "inventory")


def preflight(*arguments, playbook="site.yml", inventory=INVENTORY):
    command = ["ansible-playbook", ROOT / playbook, "-i", inventory, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_nothing_was_installed(host):
    assert not host.package("chrony").is_installed
    assert not host.file("/opt/elastic-ai").exists


def test_every_reason_of_every_node_is_named_and_nothing_is_installed(host):
    run = preflight("-e", "{preflight_memory_min_mib: 99999999, preflight_kernel_min: '99.1'}")
    text = " ".join(run.stdout.split())
    assert run.returncode != 0
    for name in ("head", "gpu1"):
        assert f"{name} cannot be provisioned: kernel is" in text
    assert text.count("at least 99999999 MiB is needed") >= 2
    assert not host.package("chrony").is_installed


def test_an_address_declared_twice_and_a_missing_port_are_named():
    ports = "{fabric_ports: [{interface: fab7, address: 192.0.2.1/24}]}"
    run = preflight("-e", ports)
    text = " ".join(run.stdout.split())
    assert run.returncode != 0
    assert "fabric port fab7 does not exist; interfaces there: fab0, mgmt0" in text
    assert "address 192.0.2.1 is declared more than once in the inventory" in text


def test_a_mix_of_versions_is_refused_on_the_node_that_would_get_it():
    run = preflight("-e", "{stack_release: current, nvidia_driver_version: 550.163.01}")
    text = " ".join(run.stdout.split())
    assert run.returncode != 0
    assert "gpu1 cannot be provisioned: CUDA 13.5.0 needs a driver of branch 580 or later" in text
    assert "head cannot be provisioned" not in text


def test_a_recording_is_judged_without_reaching_a_host(tmp_path):
    assert preflight("-e", f"preflight_record_to={tmp_path}/kept", playbook="playbooks/preflight.yml").returncode == 0
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == ["gpu1.json", "head.json"]
    nowhere = tmp_path / "inventory"
    nowhere.write_text(
        "all: {children: {heads: {hosts: {head: {ansible_host: 192.0.2.1}}},"
        " gpu_servers: {hosts: {gpu1: {ansible_host: 192.0.2.2, ansible_ssh_executable: /bin/false}}}}}\n"
    )
    nowhere = nowhere.rename(tmp_path / "hosts.yml")
    judged = ["-e", f"preflight_recorded={tmp_path}/kept", "-e", "stack_release=rehearsal"]
    run = preflight(*judged, playbook="playbooks/preflight.yml", inventory=nowhere)
    assert run.returncode == 0, run.stdout
    recording = tmp_path / "kept" / "gpu1.json"
    document = json.loads(recording.read_text())
    v100 = {
        "address": "0000:1a:00.0",
        "vendor": "0x10de",
        "device": "0x1db1",
        "class": "0x030200",
        "numa_node": 0,
        "driver": "",
    }
    document["modules"]["node_state"]["pci"].append(v100)
    recording.write_text(json.dumps(document))
    run = preflight(*judged, "-e", "stack_release=current", playbook="playbooks/preflight.yml", inventory=nowhere)
    assert run.returncode != 0
    assert "CUDA 13.5.0 has no code for Tesla V100 SXM2 16GB" in " ".join(run.stdout.split())


# A second Slurm: real slurmctld, slurmd and munge, with a key and a job of its own.
FOREIGN = r"""
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get -q update && apt-get -q install -y slurmd slurmctld slurm-client munge
dd if=/dev/urandom of=/etc/munge/munge.key bs=1024 count=1 && touch -d '5 days ago' /etc/munge/munge.key
systemctl restart munge
mkdir -p /var/spool/foreign /var/spool/foreign-d
cat >/etc/slurm/slurm.conf <<CONF
ClusterName=prod
SlurmctldHost=gpu1
SlurmUser=root
StateSaveLocation=/var/spool/foreign
SlurmdSpoolDir=/var/spool/foreign-d
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
NodeName=gpu1 NodeAddr=127.0.0.1 CPUs=1
PartitionName=all Nodes=ALL Default=YES
CONF
setsid slurmctld -D >/var/log/foreign-ctld.log 2>&1 </dev/null &
sleep 3
setsid slurmd -D -N gpu1 >/var/log/foreign-slurmd.log 2>&1 </dev/null &
sleep 5
sbatch -o /dev/null --wrap 'sleep 3600'
for _ in $(seq 30); do squeue -h -t R | grep -q . && break; sleep 1; done
"""
SUMS = "sha256sum /etc/munge/munge.key /etc/slurm/slurm.conf"


def test_a_node_of_another_slurm_is_refused_and_left_as_it_is():
    gpu1 = testinfra.get_host(f"ansible://gpu1?ansible_inventory={INVENTORY}", sudo=True)
    gpu1.run_expect([0], "bash -c %s", FOREIGN)
    before = gpu1.check_output(SUMS)
    run = preflight()
    text = " ".join(run.stdout.split()).replace("''", "'")
    assert run.returncode != 0
    assert "somebody else's Slurm: /etc/slurm/slurm.conf of cluster prod under gpu1" in text
    assert "slurmd runs" in text
    assert "somebody else's munge key: /etc/munge/munge.key" in text
    assert "somebody else's jobs: jobs 1 of Slurm" in text
    assert gpu1.check_output(SUMS) == before
    assert gpu1.check_output("squeue -h -t R -o %%i") == "1"
    assert not gpu1.package("chrony").is_installed
    mine = ["-e", "{preflight_take_over: [slurm, munge, jobs]}"]
    assert preflight(*mine, playbook="playbooks/preflight.yml").returncode == 0
