"""Virtual machines of a lab, their pure parts: qemu's command line, image key, archive, inventory, faults."""

from __future__ import annotations

import itertools
import json
import lzma
import socket
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from toolkit.commands.lab import lab as lab_command
from toolkit.commands.lab import parse_nodes
from toolkit.engine.build import EngineInfo
from toolkit.errors import LabError
from toolkit.lab import accel, cpio, faults, host, inventory, network, nodes, vm, vmimage
from toolkit.lab import lab as labs
from toolkit.lab.debrepo import Served
from toolkit.lab.devices import Emulation
from toolkit.lab.frameworks import FRAMEWORKS
from toolkit.lab.sh import run
from toolkit.lab.sources import Release
from toolkit.lab.spec import LabSpec, make_spec
from toolkit.lab.vmfaults import HEAD, NODE_FAULTS


@pytest.fixture
def spec() -> LabSpec:
    return replace(make_spec("x", 3, 4, 1, vms=True), accel="tcg")


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty state and cache folder, under a short name: a socket's path holds 107 bytes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(folder / "state"))
        monkeypatch.setenv("ELASTIC_AI_LAB_CACHE", str(folder / "cache"))
        (folder / "cache").mkdir()
        yield folder


def options(words: list[str], name: str) -> list[str]:
    return [value for option, value in itertools.pairwise(words) if option == name]


def test_gpu_servers_alone_are_machines(spec: LabSpec):
    assert [(n.name, n.kind) for n in spec.nodes] == [
        ("head", "container"), ("client1", "container"), ("gpu1", "vm"), ("gpu2", "vm")
    ]  # fmt: skip
    assert not make_spec("x", 0, 4, 1).vms


def test_nodes_option():
    assert parse_nodes(None, None, "vm") == (4, True)  # type: ignore[arg-type]
    assert parse_nodes(None, None, "6") == (6, False)  # type: ignore[arg-type]
    done = CliRunner().invoke(lab_command, ["up", "--nodes", "vms"])
    assert done.exit_code == 2
    assert "give a number of nodes or vm" in done.output


def test_spec_of_a_lab_made_before_there_were_machines_loads(folders: Path):
    home = labs.lab_dir("x")
    home.mkdir(parents=True)
    old = asdict(make_spec("x", 0, 2, 1))
    del old["accel"]
    for node in old["nodes"]:
        del node["kind"]
    (home / "spec.json").write_text(json.dumps(old))
    assert labs.load("x") == make_spec("x", 0, 2, 1)


def test_qemu_starts_the_kernel_directly_on_the_nodes_own_disk(spec: LabSpec, folders: Path):
    gpu1, gpu2 = spec.node("gpu1"), spec.node("gpu2")
    words = vm.command(spec, gpu1, Path("/image"), cores=2)
    assert words[:3] == [nodes.QEMU, "-name", "eai-x-gpu1"]
    assert options(words, "-M") == ["q35"]
    assert options(words, "-accel") == ["tcg,thread=multi,tb-size=256"]
    assert options(words, "-kernel") == ["/image/vmlinux"]
    assert options(words, "-initrd") == [str(spec.node_dir(gpu1) / "initrd")]
    assert "-no-reboot" not in words, "the machine has to live through a reboot of its guest"
    assert options(words, "-smp") == ["1"]
    cards = [v for v in options(words, "-device") if v.startswith("virtio-net")]
    assert len(cards) == len(options(words, "-netdev")) == 2
    macs = {vm.mac(spec, node, port) for node in (gpu1, gpu2) for port in network.TAPS}
    assert len(macs) == 4
    assert f"lab.mgmt={vm.mac(spec, gpu1, 'mgmt0')},10.77.3.13/24,10.77.3.1" in options(words, "-append")[0]
    with_kvm = vm.command(replace(spec, accel="kvm"), gpu1, Path("/image"), cores=16)
    assert options(with_kvm, "-cpu") == ["host"]
    assert options(with_kvm, "-smp") == ["4"]


def test_machines_see_the_frameworks_folders_of_the_host_and_cannot_write_there(spec: LabSpec, folders: Path):
    words = vm.command(spec, spec.node("gpu1"), Path("/image"), cores=2)
    shares = [dict(pair.partition("=")[::2] for pair in given.split(",")) for given in options(words, "-virtfs")]
    mounted = [word for word in options(words, "-append")[0].split() if word.startswith("lab.share=")]
    assert mounted == [
        f"lab.share={share['mount_tag']},{one.place}" for share, one in zip(shares, FRAMEWORKS, strict=True)
    ]
    assert [share["path"] for share in shares] == [str(one.root) for one in FRAMEWORKS]
    assert {share["readonly"] for share in shares} == {"on"}
    assert {"9p", "9pnet_virtio"} <= set(vmimage.BOOT_MODULES)


@pytest.mark.parametrize(("cores", "machines", "each"), [(1, 2, 1), (2, 2, 1), (8, 2, 4), (64, 2, 4)])
def test_virtual_cpus_are_shared_out(cores: int, machines: int, each: int):
    assert vm.cpus(cores, machines) == each


def test_a_machine_has_the_same_links_as_a_container_and_a_tap_behind_each(spec: LabSpec):
    lines = [line for port in network.TAPS for line in network._tap(port)]
    assert "tuntap add dev tap-fab mode tap" in lines
    assert "link set fab0 master br-fab0 up" in lines
    assert "link set tap-fab master br-fab0 up" in lines


def test_machines_get_what_makes_a_container_this_node(spec: LabSpec):
    files = nodes.own_files(spec, spec.node("gpu1"), "ssh-ed25519 KEY\n")
    assert files["root/.ssh/authorized_keys"] == "ssh-ed25519 KEY\n"
    assert files["etc/hosts"].endswith("10.77.3.13 gpu1\n")


def test_archive_is_what_cpio_reads(tmp_path: Path):
    entries = [cpio.folder("node"), cpio.folder("node/root", 0o700), cpio.file("node/root/key", b"secret\n", 0o600)]
    data = cpio.archive(entries)
    assert len(data) % 512 == 0
    # newc: magic, then mode at 14, size at 54, length of the name at 94, each as eight hexadecimal digits
    at = data.index(b"node/root/key\0") - 110
    assert at % 4 == 0
    assert data[at : at + 6] == b"070701"
    assert int(data[at + 14 : at + 22], 16) == 0o100600
    assert int(data[at + 54 : at + 62], 16) == len(b"secret\n")
    assert int(data[at + 94 : at + 102], 16) == len(b"node/root/key\0")
    body = at + 110 + len(b"node/root/key\0")
    body += -body % 4
    assert data[body : body + 7] == b"secret\n"
    assert b"TRAILER!!!" in data


def kernel_tree(folder: Path) -> Path:
    folder.mkdir()
    (folder / "modules.dep").write_text(
        "kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/lib/crc16.ko\n"
        "kernel/fs/jbd2/jbd2.ko:\nkernel/lib/crc16.ko:\nkernel/drivers/block/virtio_blk.ko:\n"
        "kernel/arch/x86/crypto/crc32c-intel.ko:\nkernel/sound/snd.ko:\n"
    )
    names = ("virtio_pci", "virtio_net", "crc32c_generic", "autofs4", "configfs", "9pnet_virtio", "9p")
    (folder / "modules.builtin").write_text("".join(f"kernel/x/{n}.ko\n" for n in names))
    for line in (folder / "modules.dep").read_text().splitlines():
        path = folder / line.split(":")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(path.name.encode())
    return folder


def test_initial_ram_disk_loads_what_a_module_needs_before_it(tmp_path: Path):
    data = vmimage.initrd(kernel_tree(tmp_path / "k"), b"busybox")
    order = b"virtio_blk.ko\ncrc32c-intel.ko\ncrc16.ko\njbd2.ko\next4.ko"
    assert order in data
    assert b"snd.ko" not in data


def test_a_kernel_without_the_disks_driver_is_refused(tmp_path: Path):
    tree = kernel_tree(tmp_path / "k")
    (tree / "modules.builtin").write_text("")
    with pytest.raises(LabError, match="no module virtio_pci"):
        vmimage.initrd(tree, b"busybox")


def test_kernel_is_unpacked_when_python_can():
    elf = b"\x7fELF kernel"
    assert vmimage.unpacked(b"MZ setup" + lzma.compress(elf) + b"size") == elf
    assert vmimage.unpacked(b"MZ packed by something else") == b"MZ packed by something else"
    broken = b"MZ \xfd7zXZ\x00 not at all"
    assert vmimage.unpacked(broken) == broken


def test_image_key_changes_with_recipe_and_base():
    before = vmimage.recipe_digest("bookworm-1")
    assert vmimage.recipe_digest("bookworm-1") == before
    assert vmimage.recipe_digest("bookworm-2") != before
    assert vmimage.recipe_digest("bookworm-1", vmimage.PREINSTALLED | {"base": ["chrony"]}) != before


def test_cached_image_is_that_of_release_and_recipe(tmp_path: Path):
    for name in ("vm-bookworm-6.1.0-56-amd64-aaa", "vm-trixie-6.12.1-amd64-aaa", "vm-bookworm-6.1.0-57-amd64-bbb"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "disk.raw").touch()
    (tmp_path / "vm-bookworm-aaa.partial").mkdir()
    found = vmimage.cached(tmp_path, "bookworm", "aaa")
    assert found.folder.name == "vm-bookworm-6.1.0-56-amd64-aaa"
    assert vmimage.cached(tmp_path, "bookworm", "ccc") is None


def test_machines_of_another_distribution_are_refused():
    with pytest.raises(LabError, match="--os debian12"):
        vmimage.vm_image(Release("ubuntu", "24.04", "noble"), lambda _: None)


def test_a_full_disk_is_refused_with_figures(tmp_path: Path):
    with pytest.raises(LabError, match=r"the image needs 1000000 GB of disk in .*GB are free there"):
        vmimage.check_space(tmp_path, 1e6, "the image")


def test_too_little_memory_is_refused_with_figures():
    meminfo = "MemTotal: 9000000 kB\nMemAvailable: 4194304 kB\n"
    with pytest.raises(LabError, match=r"2 virtual machines need 5\.0 GiB of memory, and 4\.0 GiB are available"):
        host.check_memory(2, 2560, meminfo)
    host.check_memory(2, 2048, meminfo)


def test_missing_qemu_is_named_by_its_packages(folders: Path):
    with pytest.raises(LabError, match="apt-get install qemu-system-x86 qemu-utils"):
        host.check_ready(vms=True, which=lambda tool: None if tool.startswith("qemu") else tool)


def refused(folder: Path, script: str, device: str = "", deadline_s: float = 6) -> str:
    """What a qemu that is this script makes of the device."""
    path = folder / "qemu"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return accel.refusal(vmimage.VmImage(folder), folder / device, deadline_s, str(path))


def test_kvm_counts_when_a_kernel_spoke_on_it(tmp_path: Path):
    assert refused(tmp_path, f"echo {accel.WORD}") == ""
    assert refused(tmp_path, f"echo {accel.WORD}", "kvm") == f"there is no {tmp_path}/kvm"


def test_a_device_that_boots_nothing_is_no_kvm(tmp_path: Path):
    assert refused(tmp_path, "exec sleep 60", "", 0.3) == f"no guest kernel started on {tmp_path} within 0.3 s"
    script = "echo 'qemu: ../kvm.c:31: kvm_set: Assertion failed.' >&2; exit 134"
    assert refused(tmp_path, script) == "qemu says: kvm_set: Assertion failed."


def test_the_answer_about_kvm_is_remembered_for_this_boot(folders: Path):
    image, asked = vmimage.VmImage(folders), []

    def ask(image: vmimage.VmImage) -> str:
        asked.append(image)
        return "it is said no"

    for _ in range(2):
        found = accel.accelerate(image, lambda _: None, ask)
        assert found == accel.Acceleration("tcg", "it is said no")
    assert len(asked) == 1
    memory = folders / "cache/kvm.json"
    memory.write_text(json.dumps(json.loads(memory.read_text()) | {"boot": "another"}))
    accel.accelerate(image, lambda _: None, ask)
    assert len(asked) == 2


def test_inventory_says_what_is_emulated_and_which_ports_have_no_rdma(spec: LabSpec):
    served = Served(Path("/v"), ("cuda",), Path("/v/key.asc"), "AB12")
    document = inventory.inventory_document(spec, Path("/k"), Path("/h"), served, Path("/keys"))
    groups = document["all"]["children"]
    gpu1 = groups["gpu_servers"]["hosts"]["gpu1"]
    assert (gpu1["elastic_ai_virtual"], gpu1["elastic_ai_emulated"]) == ("qemu", True)
    assert gpu1["ofed_soft_roce"] is gpu1["roce_enabled"] is True
    assert "rdma" not in gpu1["fabric_ports"][0]
    assert gpu1["bom"]["model"] == "Standard PC (Q35 + ICH9, 2009)"
    assert groups["heads"]["hosts"]["head"]["fabric_ports"][0]["rdma"] is False
    assert document["all"]["vars"]["lab_link"]["emulated"] is True
    kvm = inventory.inventory_document(replace(spec, accel="kvm"), Path("/k"), Path("/h"), served, Path("/keys"))
    assert kvm["all"]["children"]["gpu_servers"]["hosts"]["gpu1"]["elastic_ai_emulated"] is False
    plain = inventory.inventory_document(make_spec("x", 3, 4, 1), Path("/k"), Path("/h"), served, Path("/keys"))
    assert "emulated" not in plain["all"]["vars"]["lab_link"]
    assert "rdma" not in json.dumps(plain)


@pytest.mark.parametrize(
    ("vms", "transports", "given"),
    [(True, ("tcp", "verbs"), "verbs"), (True, ("tcp",), None), (False, ("tcp", "verbs"), None)],
)
def test_leases_of_machines_go_by_verbs_where_the_engine_has_them(
    vms: bool, transports: tuple[str, ...], given: str | None
):
    info = EngineInfo("reference", "1", "1", "2.34", "x86_64", transports)
    built = Emulation(Path("/lib"), Path("/engine.tar.gz"), "a" * 64, info)
    found = inventory.engine_variables(built, Path("/engine.tar.gz"), vms)
    assert found.get("remoting_server_transport") == given


def test_faults_of_machines_are_refused_on_containers(spec: LabSpec, folders: Path):
    with pytest.raises(LabError, match=r"head is a container, and port-down needs .* these are gpu1, gpu2"):
        faults.check(spec, spec.node("head"), "port-down")
    plain = make_spec("x", 3, 4, 1)
    with pytest.raises(LabError, match="'toolkit lab up --nodes vm' has some"):
        faults.check(plain, plain.node("gpu1"), "rxe-missing")
    for kind in faults.FAULTS:
        if not faults.FAULTS[kind].storage:  # which containers share
            faults.check(replace(spec, bmc=True, switch=True), spec.node("gpu1"), kind)
    faults.check(plain, plain.node("gpu1"), "slow-link")


def test_a_second_fault_on_a_node_is_refused(spec: LabSpec, folders: Path):
    spec.dir.mkdir(parents=True)
    (spec.dir / "faults.json").write_text('{"gpu1": "wrong-mtu"}')
    with pytest.raises(LabError, match="gpu1 has the fault wrong-mtu already"):
        faults.check(spec, spec.node("gpu1"), "port-down")
    faults.check(spec, spec.node("gpu2"), "port-down")


def test_a_slow_link_is_slower_than_emulation(spec: LabSpec):
    assert faults.slow_rate_gbps(spec, spec.node("gpu1")) == 0.02
    assert faults.slow_rate_gbps(spec, spec.node("head")) == 0.1
    assert faults.slow_rate_gbps(replace(spec, accel="kvm"), spec.node("gpu1")) == 0.1


@pytest.mark.parametrize("kind", NODE_FAULTS)
def test_scripts_of_faults_are_shell(kind: str):
    for script in (NODE_FAULTS[kind].plant, NODE_FAULTS[kind].clear):
        run(["sh", "-n"], stdin=HEAD + script)


@pytest.mark.parametrize("name", ["vm-init", "vm-build"])
def test_scripts_of_the_image_are_shell(name: str):
    run(["sh", "-n"], stdin=vmimage._lab_file(name))


def monitor(path: Path, answers: list[str]) -> tuple[threading.Thread, list[str]]:
    """A stand-in for qemu's monitor: greets, and answers each line with the next of `answers`."""
    server, asked = socket.socket(socket.AF_UNIX), []
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        channel, _ = server.accept()
        with channel, channel.makefile("rw") as lines:
            lines.write('{"QMP": {}}\n')
            lines.flush()
            for answer in answers:
                asked.append(lines.readline())
                lines.write(answer + "\n")
                lines.flush()
        server.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread, asked


def test_a_cable_is_pulled_through_qemus_monitor(spec: LabSpec, folders: Path):
    gpu1 = spec.node("gpu1")
    spec.node_dir(gpu1).mkdir(parents=True)
    event = '{"event": "NIC_RX_FILTER_CHANGED"}\n'
    thread, asked = monitor(vm.monitor(spec, gpu1), ['{"return": {}}', event + '{"return": {}}'])
    vm.set_link(spec, gpu1, "fab0", up=False)
    thread.join(5)
    wanted = {"execute": "set_link", "arguments": {"name": "nic-fab0", "up": False}}
    assert json.loads(asked[1]) == wanted


def test_a_monitor_that_refuses_or_is_gone_is_an_error(spec: LabSpec, folders: Path):
    gpu1 = spec.node("gpu1")
    spec.node_dir(gpu1).mkdir(parents=True)
    with pytest.raises(LabError, match="qemu of gpu1 does not answer on its monitor"):
        vm.set_link(spec, gpu1, "fab0", up=True)
    monitor(vm.monitor(spec, gpu1), ['{"return": {}}', '{"error": {"desc": "Device not found"}}'])
    with pytest.raises(LabError, match="refused set_link: Device not found"):
        vm.set_link(spec, gpu1, "fab0", up=True)


def test_labs_that_come_up_together_get_different_networks(folders: Path):
    (folders / "state/locks").mkdir(parents=True)
    first, second = (labs._claim(make_spec(name, 0, 2, 1)) for name in ("a", "b"))
    assert first.index != second.index
    assert labs.load("b") == second
