"""A node for `toolkit support` on loopback: a real sshd, this machine's Python, and tools that are made up."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from tests.support import warm
from tests.support.sshd import host_line, serving
from toolkit.cli import cli

PORT = 15741
NAME, ADDRESS = "gpu2", "127.0.0.52"
NOISE = "echo Agent pid 59; printf '\\033]0;title\\007{}'; echo '{\"support\": \"x\", \"done\": true}'; printf 'no end'"
BUS = "00000000:3B:00.0"
UUID = "GPU-5f3a9c1e-0000-4000-8000-000000000003"
SMI = f"""#!/bin/sh
case "$*" in
*--query-gpu=index,uuid*) echo "3, {UUID}, 1650921000000, {BUS}, NVIDIA H200, 96.00.A5.00.01";;
*) echo "nvidia-smi $*";;
esac
"""
KERNEL = """\
Nov 27 10:00:00 gpu2 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.
Nov 27 10:00:01 gpu2 kernel: pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0
Nov 27 10:00:02 gpu2 kernel: mlx5_core 0000:5e:00.0 ens1: Link down
Nov 27 10:00:03 gpu2 kernel: usb 1-1: new device
"""


def tool(folder: Path, name: str, script: str) -> None:
    """A program that is found first."""
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def kernel_log(folder: Path, text: str) -> None:
    """What journalctl prints."""
    (folder / "journal").write_text(text)
    tool(folder, "journalctl", f"cat {folder / 'journal'}")


@contextlib.contextmanager
def node(folder: Path, noise: str = NOISE) -> Iterator[Path]:
    """A node that is up; login files print on it."""
    tool(folder, "nvidia-smi", SMI)
    kernel_log(folder, KERNEL)
    wrapper = folder / "login"
    wrapper.write_text(f'#!/bin/sh\n{noise}\nexport PATH={folder / "bin"}:$PATH\neval "$SSH_ORIGINAL_COMMAND"\n')
    wrapper.chmod(0o755)
    with serving(folder, PORT, [ADDRESS], f"PasswordAuthentication no\nForceCommand {wrapper}\n"):
        (folder / "known_hosts").write_text(host_line(folder, [f"[{ADDRESS}]:{PORT}"]))
        yield folder


def inventory(folder: Path, port: int = PORT, **more: Any) -> Path:
    """An inventory of that node and others, which are not there."""
    extra = f"-o UserKnownHostsFile={folder / 'known_hosts'} -o StrictHostKeyChecking=yes"
    hosts = {
        name: {"ansible_host": address, "ansible_port": port, "ansible_user": "root",
               "ansible_ssh_private_key_file": str(folder / "user"), "ansible_ssh_common_args": extra,
               "fabric_ports": [{"interface": "fab0", "address": f"10.78.0.{at}/24"}],
               **(more if name == NAME else {})}
        for at, (name, address) in enumerate({"gpu1": "127.0.0.51", NAME: ADDRESS}.items(), 13)
    }  # fmt: skip
    path = folder / "hosts.yml"
    path.write_text(json.dumps({"all": {"children": {"gpu_servers": {"hosts": hosts}}}}))
    return path


def support(*words: object) -> Result:
    """`toolkit support WORDS`."""
    with warm.asking_ansible():
        return CliRunner().invoke(cli, ["support", *map(str, words)])


def opened(path: Path) -> dict[str, bytes]:
    """The files of a package, without its top folder."""
    with tarfile.open(path) as tar:
        members = tar.getmembers()
        assert all(one.isfile() and ".." not in one.name.split("/") and one.name[0] != "/" for one in members)
        assert len({one.name.split("/")[0] for one in members}) == 1
        return {one.name.partition("/")[2]: content(tar, one) for one in members}


def content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """A member."""
    file = tar.extractfile(member)
    assert file is not None
    return file.read()


def archive(members: Mapping[str, bytes], more: Mapping[str, tarfile.TarInfo] | None = None) -> bytes:
    """A tar.gz with these files, and whatever else."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))
        for about in (more or {}).values():
            tar.addfile(about)
    return out.getvalue()


def leftovers() -> list[str]:
    """Folders of this command on node and controller, which are one machine here."""
    return [str(path) for base in ("/tmp", "/var/tmp", os.environ.get("TMPDIR", "/tmp"))
            for path in Path(base).glob("elastic-ai-support-*")]  # fmt: skip
