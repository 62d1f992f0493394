"""Whether the real slurmd takes the cores that role slurm writes into gres.conf, on a machine that hwloc is told of."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.node_modules import load
from tests.unit.test_slurm import dell, on_numa

slurm = load("plugins/plugin_utils/slurm_cores.py")
SLURMD = shutil.which("slurmd", path=f"{os.environ['PATH']}:/usr/sbin")
#: Two sockets of four cores, whose processors the firmware numbers by turns, as `dell` says them to the role.
MACHINE = "pack:2 numa:1 core:4 pu:1(indexes=0,2,4,6,1,3,5,7)"
CONFIGURATION = """\
ClusterName=x
SlurmctldHost=head
AuthType=auth/none
CredType=cred/none
GresTypes=gpu
ProctrackType=proctrack/pgid
SelectType=select/cons_tres
SlurmUser=root
SlurmdSpoolDir={0}
SlurmdPidFile={0}/pid
SlurmdLogFile={0}/log
NodeName={1} Sockets=2 CoresPerSocket=4 CPUs=8 Gres=gpu:h100:4
PartitionName=p Nodes=ALL
"""


def said(folder: Path, cores: list[str]) -> str:
    """What slurmd says of these cores of four GPUs."""
    (folder / "slurm.conf").write_text(CONFIGURATION.format(folder, socket.gethostname().partition(".")[0]))
    lines = []
    for number, beside in enumerate(cores):
        (folder / f"nvidia{number}").touch()
        lines.append(f"Name=gpu Type=h100 File={folder}/nvidia{number} Cores={beside}\n")
    (folder / "gres.conf").write_text("".join(lines))
    (folder / "hwloc_topo_whole.xml").unlink(missing_ok=True)
    done = subprocess.run(
        [SLURMD or "slurmd", "-G", "-f", str(folder / "slurm.conf")],
        capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "HWLOC_SYNTHETIC": MACHINE},
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.skipif(SLURMD is None, reason="this machine has no slurmd")
def test_slurm_takes_the_cores_that_the_role_writes(tmp_path: Path) -> None:
    cores = slurm.slurm_gpu_cores(dell(), on_numa(0, 0, 1, 1), 16)
    assert cores == ["0-3", "0-3", "4-7", "4-7"]
    taken = said(tmp_path, cores)
    assert "Invalid GRES data" not in taken
    assert "fatal" not in taken
    assert "Invalid GRES data for gpu, Cores=5-8" in said(tmp_path, [*cores[:3], "5-8"])
