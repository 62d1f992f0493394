"""A Slurm of the site's own in a lab: real slurmctld, slurmd, slurmdbd and munge of another cluster, made by hand as
its administrator would. gpu2 is its controller and of no inventory, gpu1 its GPU server, head a machine where its users
log in. The toolkit joins it; what it must not touch is read by `theirs`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.support.lease_lab import Lab, on_each, shell

CONTROLLER, SERVER, LOGIN = "gpu2", "gpu1", "head"
NODES = (CONTROLLER, SERVER, LOGIN)
CLUSTER, PARTITION, ACCOUNT = "prod", "lease", "physics"
#: How the pool's inventory names it.
JOIN = {"cluster": CLUSTER, "controllers": [CONTROLLER], "partition": PARTITION}
#: Jobs of theirs run on the GPU server: the test's nodes have no driver that they would lose.
CONSENT = ("-e", '{"preflight_take_over": ["jobs"]}')
CONF = """\
# Administrator's own file
ClusterName=prod
SlurmctldHost=gpu2({controller})
SlurmUser=slurm
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
StateSaveLocation=/var/spool/prod-ctld
SlurmdSpoolDir=/var/spool/prod-d
SlurmctldLogFile=/var/log/prod/ctld.log
SlurmdLogFile=/var/log/prod/d.log
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={controller}
AccountingStorageEnforce=associations
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=gpu1 NodeAddr={server} CPUs=8 RealMemory=12000 State=UNKNOWN
NodeName=gpu2 NodeAddr={controller} CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=batch Nodes=gpu1,gpu2 Default=YES MaxTime=INFINITE State=UP
"""
DATABASE = """\
AuthType=auth/munge
DbdHost=localhost
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageUser=slurm
LogFile=/var/log/prod/dbd.log
PidFile=/run/slurmdbd.pid
"""
PACKAGES = {
    CONTROLLER: "slurmctld slurmd slurmdbd slurm-client munge mariadb-server",
    SERVER: "slurmd slurm-client munge",
    LOGIN: "slurm-client munge",
}
INSTALL = """
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install --no-install-recommends -y {packages} > /dev/null 2> /root/apt-said
echo '{key}' > /etc/munge/munge.key
chown munge: /etc/munge/munge.key
chmod 400 /etc/munge/munge.key
systemctl restart munge
mkdir -p /etc/slurm /var/log/prod /var/spool/prod-ctld /var/spool/prod-d
cat > /etc/slurm/slurm.conf <<'CONF'
{conf}CONF
grep -q bookworm /etc/os-release || echo CgroupPlugin=disabled > /etc/slurm/cgroup.conf  # 24.11 wants one
chown slurm: /var/log/prod /var/spool/prod-ctld 2> /dev/null || true
"""
BEGIN = """
set -e
cat > /etc/slurm/slurmdbd.conf <<'CONF'
{database}CONF
chown slurm: /etc/slurm/slurmdbd.conf
chmod 600 /etc/slurm/slurmdbd.conf
systemctl start mariadb
mariadb -e "CREATE USER slurm@localhost IDENTIFIED VIA unix_socket; GRANT ALL ON slurm_acct_db.* TO slurm@localhost"
systemctl restart slurmdbd
for _ in $(seq 60); do
    sacctmgr -n show cluster > /dev/null 2>&1 && break
    sleep 1
    systemctl is-active -q slurmdbd || systemctl restart slurmdbd  # 24.11 may end with an empty database, once
done
sacctmgr -i add cluster prod > /dev/null
sacctmgr -i add account physics Description=theirs Organization=institute > /dev/null
sacctmgr -i add user alice Account=physics > /dev/null
systemctl restart slurmctld slurmd
"""
#: Until both nodes work, with jobs or without.
SERVES = """
for _ in $(seq 60); do
    [ "$(sinfo -h -N -p batch -o %T | grep -c -x -e idle -e mixed -e allocated)" = 2 ] && exit
    sleep 1
done
sinfo -N -l; exit 1
"""
#: A job of their user's that prints a line a second, on one of their nodes.
JOB = r"""
cd /tmp
echo '#!/bin/sh
while :; do date +%s; sleep 1; done' > /tmp/theirs.sh
chmod 755 /tmp/theirs.sh
runuser -u alice -- sbatch --parsable --partition=batch --nodelist={node} --mem=100 \
    --output=/tmp/theirs-{node} /tmp/theirs.sh
"""
#: Until a job of theirs prints, by when all of its processes are there.
PRINTS = "for _ in $(seq 60); do [ -s /tmp/theirs-{node} ] && exit; sleep 1; done; exit 1"
#: Everything of theirs on a node: files with content, mode and time of change; packages; daemons by their start;
#: processes of jobs by number and start.
READ = r"""
import glob, hashlib, json, os, subprocess
def said(*words):
    return subprocess.run(words, capture_output=True, text=True).stdout
files = {}
for top in ("/etc/slurm", "/etc/munge", "/etc/default/slurmd", "/etc/default/slurmctld", "/etc/mysql",
            "/usr/sbin/slurmd", "/usr/sbin/slurmctld", "/usr/sbin/slurmdbd", "/usr/sbin/munged", "/usr/bin/sbatch"):
    paths = [top] if os.path.isfile(top) else [os.path.join(d, n) for d, _, names in os.walk(top) for n in names]
    for path in paths:
        status = os.lstat(path)
        text = b"" if os.path.islink(path) else open(path, "rb").read()
        files[path] = "%o %d:%d %d %s" % (status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns,
                                          hashlib.sha256(text).hexdigest())
units = {}
for name in ("munge", "slurmd", "slurmctld", "slurmdbd", "mariadb"):
    lines = said("systemctl", "show", name, "-p", "MainPID,ActiveState,ExecMainStartTimestampMonotonic").split()
    units[name] = sorted(lines)
own = ("slurm", "munge", "mariadb", "libslurm", "libmunge")
packages = [line for line in said("dpkg-query", "-W").splitlines() if line.startswith(own)]
steps = {}
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        words = open(path).read()
        stat = open(os.path.dirname(path) + "/stat").read()
    except OSError:
        continue
    if words.startswith("slurmstepd: [") or "theirs.sh" in words or "slurm_script" in words:
        steps[path.split("/")[2]] = [words.replace("\0", " ").strip(), stat.rpartition(")")[2].split()[19]]
print(json.dumps({"files": files, "units": units, "packages": packages, "steps": steps}))
"""
#: What the cluster has by its own account, the leases of the toolkit left out.
ACCOUNT_OF = """
squeue -h -a -t R,PD,S,CF -p batch -o '%i %j %u %T %N %S'
echo --
sacctmgr -nP show assoc format=Cluster,Account,User,QOS,DefaultQOS
sacctmgr -nP show account format=Account,Description,Organization
sacctmgr -nP show qos format=Name,Priority,GrpTRES,MaxTRESPU,MaxWall,Flags
echo --
scontrol show config | grep -v -e 'Configuration data' -e '^BOOT_TIME' -e '^NEXT_JOB_ID' -e 'Slurmctld('
"""


def address(lab: Lab, node: str) -> str:
    """The node's management address."""
    return lab.ssh(node, "ip -4 -o addr show dev mgmt0 | grep -o 'inet [0-9.]*'").split()[1]


def inventory_of(of_the_lab: Path, folder: Path, **more: Any) -> Path:
    """A lab's inventory without the machine of their controller, which is none of ours, in `folder`."""
    hosts = yaml.safe_load((of_the_lab / "hosts.yml").read_text())["all"]
    del hosts["children"]["gpu_servers"]["hosts"][CONTROLLER]
    hosts["vars"] |= {"horovod_state": "absent", **more}
    folder.mkdir(exist_ok=True)
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": hosts}))
    return folder


def make(lab: Lab) -> None:
    """Their cluster, running."""
    places = {"controller": address(lab, CONTROLLER), "server": address(lab, SERVER)}
    conf, key = CONF.format(**places), "k" * 64 + "theirs"
    for node, packages in PACKAGES.items():
        shell(lab, node, INSTALL.format(packages=packages, key=key, conf=conf))
    shell(lab, CONTROLLER, BEGIN.format(database=DATABASE))
    shell(lab, SERVER, "systemctl restart slurmd")
    shell(lab, CONTROLLER, SERVES)


def begin_jobs(lab: Lab) -> dict[str, str]:
    """A job of theirs on each of their nodes, which prints; its number."""
    jobs = {node: shell(lab, LOGIN, JOB.format(node=node)).strip() for node in (SERVER, CONTROLLER)}
    for node in jobs:
        shell(lab, node, PRINTS.format(node=node))
    return jobs


def on_nodes(lab: Lab) -> dict[str, Any]:
    """All of theirs that is on a node, by node; also where their controller does not answer."""
    said = on_each(lab, NODES, f"python3 - <<'READ'\n{READ}\nREAD")
    return {node: json.loads(text) for node, text in said.items()}


def theirs(lab: Lab) -> dict[str, Any]:
    """All of theirs, on all nodes. Equal to an earlier one where nothing of theirs was touched."""
    return {"nodes": on_nodes(lab), "cluster": shell(lab, LOGIN, ACCOUNT_OF)}


def _flat(data: Any, place: str = "") -> dict[str, Any]:
    if isinstance(data, dict) and data:
        return {key: value for name, one in data.items() for key, value in _flat(one, f"{place} {name}").items()}
    return {place.strip(): data.splitlines() if isinstance(data, str) and "\n" in data else data}


def changed(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What of theirs is not as it was, in words."""
    old, new = _flat(before), _flat(now)
    return [
        f"{place}: {old.get(place)} is now {new.get(place)}"
        for place in sorted({*old, *new})
        if old.get(place) != new.get(place)
    ]


#: What their administrator does with the files of the toolkit (docs/how-to/join-slurm.md), on every node there.
#: {files}: a tar archive of them, in base64.
ADMINISTRATOR = """
set -e
cd /etc/slurm
echo {files} | base64 -d | tar -x
grep -q ^GresTypes slurm.conf || cat >> slurm.conf <<'CONF'
GresTypes=gpu,shard
AccountingStorageTRES=gres/gpu,gres/shard
PrologFlags=Alloc
Prolog=/etc/slurm/elastic-ai-prolog
Epilog=/etc/slurm/elastic-ai-epilog
Include elastic-ai-partitions.conf
CONF
sed -i '/^NodeName=gpu1/s/State=/Gres={gres} State=/' slurm.conf
printf 'Include elastic-ai-gpus.conf\\nInclude elastic-ai-shards.conf\\n' > gres.conf
"""
#: And takes them out again.
TAKES_OUT = """
set -e
cd /etc/slurm
rm gres.conf elastic-ai-*
sed -i -e '/^GresTypes/d' -e '/^AccountingStorageTRES/d' -e '/^PrologFlags/d' -e '/^Prolog=/d' -e '/^Epilog=/d' \\
    -e '/^Include/d' -e '/^NodeName=gpu1/s/Gres=[^ ]* //' slurm.conf
"""
FILES = (
    "elastic-ai-partitions.conf", "elastic-ai-gpus.conf", "elastic-ai-shards.conf", "elastic-ai-prolog",
    "elastic-ai-epilog",
)  # fmt: skip


def administer(lab: Lab, script: str) -> None:
    """Their administrator changes the configuration on all nodes, and starts the daemons again; jobs go on."""
    on_each(lab, NODES, script)
    shell(lab, CONTROLLER, "systemctl restart slurmctld")
    on_each(lab, (CONTROLLER, SERVER), "systemctl restart slurmd")
    shell(lab, CONTROLLER, SERVES)


def add_lines(lab: Lab) -> None:
    """What `toolkit pool check` asks for."""
    files = shell(lab, LOGIN, f"tar -c -C /etc/elastic-ai/slurm/join {' '.join(FILES)} | base64 -w0").strip()
    administer(lab, ADMINISTRATOR.format(files=files, gres="gpu:v100:4,shard:20160"))
