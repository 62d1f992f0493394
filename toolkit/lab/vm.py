"""Booting one lab node as a virtual machine of qemu: stock kernel, started directly, on a disk of its own."""

from __future__ import annotations

import json
import shlex
import socket
import uuid
from pathlib import Path

from toolkit.errors import LabError
from toolkit.lab import cpio, devices, frameworks, nodes
from toolkit.lab.bmc import rack
from toolkit.lab.devices import Emulation
from toolkit.lab.host import Host
from toolkit.lab.network import TAPS
from toolkit.lab.sh import run
from toolkit.lab.spec import NETNS_PREFIX, LabSpec, NodeSpec
from toolkit.lab.vmimage import VmImage

#: What Slurm counts for a lease of one whole GPU by the engine torch (4352 MiB, toolkit/lease/engines/torch.py), and
#: what it keeps for the system. Leases of all four by the reference engine need 3072 MiB.
MEMORY_MIB = 4864
#: What a machine really takes: a guest's memory is taken when it is first used. After site.yml and trainings of PyTorch
#: it was 1.6 GiB.
TAKEN_MIB = 2560
#: qemu's own, with its store of translated code under emulation.
OVERHEAD_MIB = 350
ACCELERATION = {
    "kvm": ["-accel", "kvm", "-cpu", "host"],
    "tcg": ["-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max"],
}
#: The rest is kept off because it costs seconds at boot: mitigations, audit, the search for serial ports.
KERNEL_WORDS = (
    "console=ttyS0 quiet loglevel=4 panic=0 root=/dev/vda rw mitigations=off nokaslr audit=0 apparmor=0 selinux=0 "
    "no_timer_check random.trust_cpu=on 8250.nr_uarts=1 net.ifnames=0 systemd.show_status=auto"
)
MAX_SOCKET_PATH = 107  # sockaddr_un's sun_path less its terminator, unix(7)


def mac(spec: LabSpec, node: NodeSpec, port: str) -> str:
    """Hardware address of a machine's card: locally administered, the same at each boot."""
    return f"52:54:00:{spec.index:02x}:{node.number:02x}:{list(TAPS).index(port):02x}"


def cpus(cores: int, machines: int) -> int:
    """Virtual CPUs of each machine: all the host has, shared out, four at most."""
    return max(1, min(4, cores // machines))


def monitor(spec: LabSpec, node: NodeSpec) -> Path:
    """The socket on which qemu takes commands."""
    return spec.node_dir(node) / "monitor"


def kernel_words(spec: LabSpec, node: NodeSpec) -> str:
    """The kernel command line: the boot's own words and what the lab's init reads (files/vm-init)."""
    management = f"{spec.management_address(node)}/24,10.77.{spec.index}.1"
    words = [f"lab.mgmt={mac(spec, node, 'mgmt0')},{management}", f"lab.fab={mac(spec, node, 'fab0')}"]
    words += [f"lab.share={one.engine},{one.place}" for one in frameworks.FRAMEWORKS]
    return " ".join([KERNEL_WORDS, *words])


def command(spec: LabSpec, node: NodeSpec, image: Path, cores: int) -> list[str]:
    """qemu's command line. It keeps running over a reboot of its guest."""
    home = spec.node_dir(node)
    machines = sum(n.kind == "vm" for n in spec.nodes)
    cards = []
    for port, tap in TAPS.items():
        cards += ["-netdev", f"tap,id={port},ifname={tap},script=no,downscript=no,vhost=off"]
        cards += ["-device", f"virtio-net-pci,id=nic-{port},netdev={port},mac={mac(spec, node, port)},romfile="]
    shares = []
    for one in frameworks.FRAMEWORKS:  # as containers see them, so that a lab that runs can get another copy
        given = f"local,path={one.root},mount_tag={one.engine},security_model=none,readonly=on"
        shares += ["-virtfs", given]
    return [
        nodes.QEMU, "-name", f"{NETNS_PREFIX}{spec.name}-{node.name}", "-M", "q35", *ACCELERATION[spec.accel or "tcg"],
        "-smp", str(cpus(cores, machines)), "-m", str(MEMORY_MIB),
        *rack.smbios(node), "-nodefaults", "-no-user-config", "-display", "none", "-rtc", "base=utc",
        "-chardev", f"file,id=console,path={home / 'console.log'},append=on", "-serial", "chardev:console",
        "-qmp", f"unix:{monitor(spec, node)},server=on,wait=off",
        "-kernel", str(image / "vmlinux"), "-initrd", str(home / "initrd"), "-append", kernel_words(spec, node),
        # Nothing is written through to the host's disk: the machine's disk goes with the lab.
        "-drive", f"file={home / 'disk.qcow2'},format=qcow2,if=none,id=disk,cache=unsafe,aio=threads",
        "-device", "virtio-blk-pci,drive=disk", *cards, *shares,
    ]  # fmt: skip


def prepare(spec: LabSpec, node: NodeSpec, image: VmImage, public_key: str, built: Emulation | None = None) -> None:
    """Make the machine's disk, an overlay that keeps what is written over reboots, and its own initial RAM disk."""
    if len(str(monitor(spec, node))) > MAX_SOCKET_PATH:
        raise LabError(f"{monitor(spec, node)} is too long for a socket; set ELASTIC_AI_LAB_DIR to a shorter path")
    home = spec.node_dir(node)
    home.mkdir(parents=True, exist_ok=True)
    run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(image.disk), str(home / "disk.qcow2")])
    key = home / "ssh_host_ed25519_key"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", node.name, "-f", str(key)])
    files = nodes.own_files(spec, node, public_key) | {
        "etc/machine-id": f"{uuid.uuid4().hex}\n",
        "etc/ssh/ssh_host_ed25519_key": key.read_text(),
        "etc/ssh/ssh_host_ed25519_key.pub": key.with_suffix(".pub").read_text(),
    }
    emulated = devices.machine_files(devices.node_files(spec, node, built))
    folders = {str(parent) for name in [*files, *emulated] for parent in Path(name).parents if str(parent) != "."}
    entries = [cpio.folder("node")]
    entries += [cpio.folder(f"node/{f}", 0o700 if f.startswith("root") else 0o755) for f in sorted(folders)]
    private = ("root/", "etc/ssh/ssh_host_ed25519_key")
    for name, text in files.items():
        mode = 0o600 if name.startswith(private) and not name.endswith(".pub") else 0o644
        entries.append(cpio.file(f"node/{name}", text.encode(), mode))
    entries += [cpio.file(f"node/{name}", data, mode) for name, (data, mode) in emulated.items()]
    if emulated:
        wants = "node/etc/systemd/system/sysinit.target.wants"
        entries += [cpio.folder(wants), cpio.link(f"{wants}/{devices.UNIT}", f"../{devices.UNIT}")]
    (home / "initrd").write_bytes(cpio.archive(entries) + image.initrd.read_bytes())
    (home / "image").write_text(str(image.folder))


def boot(spec: LabSpec, node: NodeSpec, host: Host) -> None:
    """Start the machine and return at once; it keeps running, over reboots, when this process ends."""
    home = spec.node_dir(node)
    monitor(spec, node).unlink(missing_ok=True)  # left by a machine that was killed
    for one in frameworks.FRAMEWORKS:
        one.root.mkdir(parents=True, exist_ok=True)
    qemu = command(spec, node, Path((home / "image").read_text()), host.cores)
    with (home / "console.log").open("a") as log:
        log.write(f"# {shlex.join(qemu)}\n")
    nodes.launch(spec, node, host, ["nsenter", f"--net=/run/netns/{spec.node_ns(node)}", "--", *qemu])


def set_link(spec: LabSpec, node: NodeSpec, port: str, up: bool) -> None:
    """Plug the cable of a machine's card in or out: the machine sees its link come or go, as from a switch."""
    request = [{"execute": "qmp_capabilities"}]
    request += [{"execute": "set_link", "arguments": {"name": f"nic-{port}", "up": up}}]  # type: ignore[dict-item]
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(10)
        try:
            channel.connect(str(monitor(spec, node)))
            answers = channel.makefile("r")
            answers.readline()  # the greeting
            for one in request:
                channel.sendall(json.dumps(one).encode() + b"\n")
                while "return" not in (answer := json.loads(answers.readline() or '{"error": {"desc": "gone"}}')):
                    if "error" in answer:
                        raise LabError(f"qemu of {node.name} refused set_link: {answer['error']['desc']}")
        except OSError as e:
            raise LabError(f"qemu of {node.name} does not answer on its monitor: {e}") from e
