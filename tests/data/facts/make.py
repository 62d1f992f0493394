"""Writes the recordings beside this file: `python tests/data/facts/make.py`. `--check` names those that are stale.

Keys and types are those of real `ansible -m setup` and `node_state` output; values of systems and machines that nobody
here has come from public data. README.md says from where.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ABOUT = "Constructed from public specifications in the shape of real output; not recorded on such a machine."
Json = dict[str, Any]

# Distribution, version, codename, kernel, Python.
SYSTEMS: dict[str, tuple[str, str, str, str, str]] = {
    "debian12": ("Debian", "12.12", "bookworm", "6.1.0-41-amd64", "3.11.2"),
    "debian13": ("Debian", "13.2", "trixie", "6.12.57+deb13-amd64", "3.13.5"),
    "ubuntu2204": ("Ubuntu", "22.04", "jammy", "5.15.0-161-generic", "3.10.12"),
    "ubuntu2404": ("Ubuntu", "24.04", "noble", "6.8.0-87-generic", "3.12.3"),
    "el9": ("Rocky", "9.6", "Blue Onyx", "5.14.0-570.58.1.el9_6.x86_64", "3.9.21"),
    "ubuntu2604": ("Ubuntu", "26.04", "resolute", "7.0.0-14-generic", "3.14.4"),
    "el10": ("Rocky", "10.1", "Red Quartz", "6.12.0-124.8.1.el10_1.x86_64", "3.12.11"),
}
#: What the site states of systems of which it is on no public record: variables of the inventory.
STATED: dict[str, dict[str, str]] = {
    "ubuntu2604": {"slurm_release": "25.11", "nvidia_driver_version": "595.91.07"},
    "el10": {"slurm_release": "26.05"},
}
STATED["ubuntu2604"]["nvidia_driver_fabric_manager_version"] = STATED["ubuntu2604"]["nvidia_driver_version"]

# The C library that each comes with.
GLIBC = {"debian12": "2.36", "debian13": "2.41", "ubuntu2204": "2.35", "ubuntu2404": "2.39", "el9": "2.34"}
GLIBC |= {"ubuntu2604": "2.43", "el10": "2.39"}


# What stands in inventories/: system, management network, fabric ports by hardware.
RAILS = [f"ens{slot}np0" for slot in range(31, 39)]
#: Of the first of them.
RDMA_DEVICE = "mlx5_0"
SITES: dict[str, tuple[str, str, dict[str, list[str]]]] = {
    "c4140-2018": ("ubuntu2204", "192.0.2", {"c4140": ["ib0"], "r740-p40": []}),
    "xe9680": ("ubuntu2404", "198.51.100", {"xe9680": [*RAILS, "ens39np0", "ens40np0"], "r760": ["ens1np0"]}),
    "c4130-fdr": ("debian12", "192.0.2", {"c4130": ["ib0"], "r730": ["ib0"]}),
    "c4140-roce40": ("ubuntu2204", "192.0.2", {"c4140": ["ens2np0"], "r740": ["ens2np0"]}),
    "vmware-vmxnet3-10": ("ubuntu2204", "192.0.2", {"vm-v100": ["ens192"], "vm": ["ens192"]}),
    "vmware-roce100": ("ubuntu2204", "192.0.2", {"vm-v100-cx5": ["ens224"], "vm-cx5": ["ens224"]}),
    "vmware-pvrdma100": ("ubuntu2204", "192.0.2", {"vm-v100-pvrdma": ["ens224"], "vm-pvrdma": ["ens224"]}),
}
KEPT = ("c4140-2018", "xe9680")
"""Sites whose recordings stand beside this file; tests make the others when they want them."""
# One of the plain systems is on the machine of 2018, so that both generations of GPUs are gone through.
OLD = {"ubuntu2204": "c4140"}


def machines(gpu: str, cpu: str, gpus: int, clients: int) -> dict[str, tuple[str, int]]:
    """Node -> its hardware, and the last number of its address."""
    found = {f"client{number}": (cpu, 20 + number) for number in range(1, clients + 1)}
    return found | {f"gpu{number}": (gpu, 30 + number) for number in range(1, gpus + 1)}


MACHINES = {
    "c4140-2018": {"r740": ("r740-p40", 10), **machines("c4140", "", 2, 0)},
    "xe9680": {"head": ("r760", 10), **machines("xe9680", "r760", 4, 2)},
    "c4130-fdr": machines("c4130", "r730", 4, 2),
    "c4140-roce40": machines("c4140", "r740", 2, 1),
    "vmware-vmxnet3-10": machines("vm-v100", "vm", 1, 1),
    "vmware-roce100": machines("vm-v100-cx5", "vm-cx5", 1, 1),
    "vmware-pvrdma100": machines("vm-v100-pvrdma", "vm-pvrdma", 1, 1),
}


def facts(key: str) -> Json:
    """What `setup` prints for gather_subset [!all, min, virtual] on bare metal with this system."""
    name, version, release, kernel, python_version = SYSTEMS[key]
    python = [int(part) for part in python_version.split(".")]
    redhat = key.startswith("el")
    major = version.split(".")[0]
    boot = {
        "BOOT_IMAGE": f"/boot/vmlinuz-{kernel}",
        "ro": True,
        "quiet": True,
        "root": "/dev/mapper/vg0-root",
    }
    lsb = {"codename": release, "id": name, "major_release": major, "release": version}
    selinux = {
        "status": "enabled",
        "mode": "enforcing",
        "config_mode": "enforcing",
        "type": "targeted",
        "policyvers": 33,
    }
    values: Json = {
        "apparmor": {"status": "disabled" if redhat else "enabled"},
        "architecture": "x86_64",
        "cmdline": boot,
        "date_time": {"date": "2026-11-21", "epoch": "1795243071", "iso8601": "2026-11-21T06:37:51Z", "tz": "UTC"},
        "distribution": name,
        "distribution_file_parsed": True,
        "distribution_file_path": "/etc/redhat-release" if redhat else "/etc/os-release",
        "distribution_file_variety": "RedHat" if redhat else name,
        "distribution_major_version": major,
        "distribution_release": release,
        "distribution_version": version,
        "dns": {"nameservers": ["192.0.2.53"], "search": ["example.net"]},
        "domain": "example.net",
        "effective_group_id": 0,
        "effective_user_id": 0,
        "fips": False,
        "kernel": kernel,
        "local": {},
        "lsb": {} if redhat else lsb,
        "machine": "x86_64",
        "os_family": "RedHat" if redhat else "Debian",
        "pkg_mgr": "dnf" if redhat else "apt",
        "proc_cmdline": boot,
        "python": {
            "executable": "/usr/bin/python3",
            "has_sslcontext": True,
            "type": "cpython",
            "version": dict(zip(("major", "minor", "micro"), python, strict=True)),
            "version_info": [*python, "final", 0],
        },
        "python_version": python_version,
        "selinux": selinux if redhat else {"status": "disabled"},
        "selinux_python_present": True,
        "service_mgr": "systemd",
        "system": "Linux",
        "user_id": "root",
        "user_uid": 0,
        "userspace_architecture": "x86_64",
        "userspace_bits": "64",
        "virtualization_role": "NA" if redhat else "host",
        "virtualization_tech_guest": [],
        "virtualization_tech_host": [] if redhat else ["kvm"],
        "virtualization_type": "NA" if redhat else "kvm",
    }
    return {f"ansible_{fact}": value for fact, value in values.items()} | {"gather_subset": ["!all", "min", "virtual"]}


def pci(count: int, first_bus: int, vendor: str, device: str, kind: str, driver: str, **more: Any) -> list[Json]:
    """Devices of one kind, one bus each; the first half at CPU 0, the second at CPU 1, unless said otherwise."""
    return [
        {
            "address": f"0000:{first_bus + index:02x}:00.0",
            "vendor": vendor,
            "device": device,
            "class": kind,
            "numa_node": more.get("numa_node", 0 if index < (count + 1) // 2 else 1),
            "driver": driver,
        }
        for index in range(count)
    ]


# All of these machines have Intel processors.
HOST_BRIDGE = pci(1, 0x00, "0x8086", "0x09a2", "0x060000", "", numa_node=0)
# A virtual machine of vSphere: its adapters, and what is handed to it. It tells no NUMA node.
VMXNET3 = pci(1, 0x0B, "0x15ad", "0x07b0", "0x020000", "vmxnet3", numa_node=-1)
PVRDMA = pci(1, 0x13, "0x15ad", "0x0820", "0x028000", "vmw_pvrdma", numa_node=-1)
VM_V100 = pci(1, 0x03, "0x10de", "0x1db4", "0x030200", "", numa_node=-1)
VM_CX5 = pci(1, 0x1B, "0x15b3", "0x1017", "0x020000", "mlx5_core", numa_node=-1)
# PCI ids as in the public PCI ID list. A freshly installed server has no driver on its GPUs.
HARDWARE: dict[str, list[Json]] = {
    # 4 x V100-SXM2-16GB behind one switch (configuration K), one ConnectX-5 EDR.
    "c4140": pci(4, 0x1A, "0x10de", "0x1db1", "0x030200", "", numa_node=0)
    + pci(1, 0x5E, "0x15b3", "0x1017", "0x020700", "mlx5_core", numa_node=0),
    # 8 x H100-SXM5-80GB, 4 NVSwitch, 10 x ConnectX-7 (8 for the GPUs' rails, 2 for everything else).
    "xe9680": pci(8, 0x10, "0x10de", "0x2330", "0x030200", "")
    + pci(4, 0x40, "0x10de", "0x22a3", "0x068000", "", numa_node=0)
    + pci(10, 0x80, "0x15b3", "0x1021", "0x020000", "mlx5_core"),
    # 8 x H200-SXM-141GB, else as above; 4 x L40S with one ConnectX-7.
    "xe9680-h200": pci(8, 0x10, "0x10de", "0x2335", "0x030200", "")
    + pci(4, 0x40, "0x10de", "0x22a3", "0x068000", "", numa_node=0)
    + pci(10, 0x80, "0x15b3", "0x1021", "0x020000", "mlx5_core"),
    "r760xa-l40s": pci(4, 0x10, "0x10de", "0x26b9", "0x030200", "")
    + pci(1, 0x80, "0x15b3", "0x1021", "0x020000", "mlx5_core", numa_node=0),
    "r740": pci(1, 0x5E, "0x15b3", "0x1017", "0x020700", "mlx5_core", numa_node=0),
    "r760": pci(1, 0x80, "0x15b3", "0x1021", "0x020000", "mlx5_core", numa_node=0),
    # 3 x P40, and no card for a fabric.
    "r740-p40": pci(3, 0x1A, "0x10de", "0x1b38", "0x030200", ""),
    # 4 x P100-PCIE-16GB, ConnectX-3 FDR.
    "c4130": pci(4, 0x05, "0x10de", "0x15f8", "0x030200", "", numa_node=0)
    + pci(1, 0x81, "0x15b3", "0x1003", "0x028000", "mlx4_core", numa_node=0),
    "r730": pci(1, 0x81, "0x15b3", "0x1003", "0x028000", "mlx4_core", numa_node=0),
    "vm": VMXNET3,
    "vm-v100": VMXNET3 + VM_V100,
    "vm-cx5": VMXNET3 + VM_CX5,
    "vm-v100-cx5": VMXNET3 + VM_CX5 + VM_V100,
    "vm-pvrdma": VMXNET3 + PVRDMA,
    "vm-v100-pvrdma": VMXNET3 + PVRDMA + VM_V100,
}


# Two Xeon Silver 4116, Gold 6148, Platinum 8470, Gold 6430, E5-2690 v4, with hyper-threading; 16 of a virtual machine.
CPUS = {"c4140": 48, "r740": 80, "xe9680": 208, "r760": 128, "r740-p40": 80, "c4130": 56, "r730": 56}
CPUS |= {"xe9680-h200": 208, "r760xa-l40s": 128}
MEMORY_MIB = {"c4140": 385000, "r740": 192000, "xe9680": 2063000, "r760": 515000, "r740-p40": 192000}
MEMORY_MIB |= {"c4130": 257000, "r730": 257000, "xe9680-h200": 2063000, "r760xa-l40s": 1031000}
VM_CPUS, VM_MEMORY_MIB = 16, 64000


def memory_mib(hardware: str) -> int:
    """Of a machine, or of a virtual one."""
    return MEMORY_MIB.get(hardware, VM_MEMORY_MIB)


def units(system: str) -> dict[str, Json]:
    """Services that are part of a freshly installed server, and whether they run."""
    running = {
        "debian": ["ssh.service", "systemd-timesyncd.service"],
        "ubuntu": [
            "ssh.service",
            "systemd-networkd.service",
            "systemd-timesyncd.service",
            "unattended-upgrades.service",
        ],
        "el": ["NetworkManager.service", "chronyd.service", "firewalld.service", "sshd.service"],
    }
    idle = {"debian": ["systemd-networkd.service"], "ubuntu": [], "el": []}  # el9: networkd is not in the system
    family = system.rstrip("0123456789")
    if system == "ubuntu2604":  # chrony in place of timesyncd, since 25.10 (theforeman/foreman pull request 11242)
        running["ubuntu"][2] = "chrony.service"
    there = {name: {"active": True, "enabled": True} for name in running[family]}
    return there | {name: {"active": False, "enabled": False} for name in idle[family]}


def texts(system: str, hardware: str) -> dict[str, str]:
    """Files of a fresh installation that roles read."""
    kernel = SYSTEMS[system][3]
    boot = "root=/dev/mapper/vg0-root ro quiet"
    grub = f"menuentry 'Linux' {{\n\tlinux\t/vmlinuz-{kernel} {boot}\n\tinitrd\t/initrd.img-{kernel}\n}}\n"
    entry = f"title Rocky Linux\nversion {kernel}\nlinux /vmlinuz-{kernel}\noptions {boot}\n"
    loader = (
        {f"/boot/loader/entries/0123456789abcdef0123456789abcdef-{kernel}.conf": entry}
        if system.startswith("el")
        else {"/boot/grub/grub.cfg": grub}
    )
    return loader | {
        "/etc/default/grub": 'GRUB_DEFAULT=0\nGRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\n',
        "/etc/hosts": "127.0.0.1\tlocalhost\n",
        "/proc/meminfo": f"MemTotal:       {memory_mib(hardware) * 1024} kB\nMemFree:        1048576 kB\n",
    }


def packages(system: str) -> dict[str, str]:
    """What a fresh installation has of the packages that roles ask about: the kernel."""
    kernel = SYSTEMS[system][3]
    if system.startswith("el"):
        version = kernel.removesuffix(".x86_64")
        return dict.fromkeys(("kernel", "kernel-core", "kernel-modules", "kernel-modules-core"), version)
    if system.startswith("ubuntu"):
        version = kernel.removesuffix("-generic").replace("-", ".")
        return dict.fromkeys(("linux-generic", "linux-image-generic", "linux-headers-generic"), f"{version}.1")
    return {"linux-image-amd64": kernel.removesuffix("-amd64") + "-1"}


def node_state(system: str, hardware: str) -> Json:
    """What node_state reads of a machine on which nothing was installed yet; nouveau has taken the GPUs."""
    kernel = SYSTEMS[system][3]
    gpus = any(device["vendor"] == "0x10de" for device in HARDWARE[hardware])
    return {
        "cmdline": f"BOOT_IMAGE=/boot/vmlinuz-{kernel} root=/dev/mapper/vg0-root ro quiet",
        "contents": texts(system, hardware),
        "cpus": CPUS.get(hardware, VM_CPUS),
        "files": {},
        "held": [],
        "in_container": False,
        "kernel": kernel,
        "kernels": [kernel],
        "limits": {"memlock": 8388608, "nofile": 524288, "raisable": True},
        "links": {},
        "missing_packages": [],
        "modules": {"nouveau": {"available": True, "loaded": gpus, "version": ""}},
        "modules_loadable": True,
        "own_addresses": {},
        "package_lists": True,
        "packages": packages(system),
        "pci": [*HOST_BRIDGE, *HARDWARE[hardware]],
        "reboot_hints": [],
        "sysctls": {},
        "units": units(system),
        "users": {},
        "accounts": {},
    }


def network(system: str) -> Json:
    """Who configures the ports: the installer's choice, which is NetworkManager, netplan or ifupdown."""
    managers = {"el": ["NetworkManager"], "ubuntu": ["systemd-networkd"]}
    family = system.rstrip("0123456789")
    file, rendered = "/etc/netplan/50-cloud-init.yaml", "/run/systemd/network/10-netplan-eno1.network"
    claim = {"port": "eno1", "manager": "netplan", "file": file, "rendered": rendered, "dhcp": True}
    return {
        "running": managers.get(family, []),
        "claims": [{**claim, "addresses": [], "member_of": ""}] if system.startswith("ubuntu") else [],
        "networkmanager": {"eno1": "connected", "lo": "unmanaged"} if family == "el" else {},
    }


def nobodys() -> Json:
    """What node_preflight reads of somebody else's on a fresh installation: nothing."""
    driver: dict[str, list[str]] = {"packages": [], "runfile": [], "container": [], "dkms": [], "modules": []}
    return {
        "ledgers": [],
        "files": [],
        "slurm": {"confs": [], "daemons": []},
        "agents": {},
        "driver": driver,
        "ofed": [],
        "databases": {"folder": "/var/lib/mysql", "names": []},
        "containers": {},
        "monitoring": [],
        "beside": {"time": [], "firewall": []},
    }


def node_preflight(system: str, hardware: str, name: str, links: dict[str, list[str]]) -> Json:
    """What node_preflight reads of a freshly installed machine without Secure Boot."""
    name_of_system, version = SYSTEMS[system][:2]
    major = version if name_of_system == "Ubuntu" or system.startswith("el") else version.split(".")[0]
    root = {"device": 64768, "existing": "/", "free_mib": 400000}
    return {
        "architecture": "x86_64",
        "bluefield": {},
        "disks": {path: {**root, "existing": path} for path in ("/opt", "/var")}
        | {"/boot": {"device": 64769, "existing": "/boot", "free_mib": 800}},
        "carrier": {"eno1": True, "lo": True},
        "drivers": {},
        "filters": [],
        "glibc": GLIBC[system],
        "headers": "installable",
        "hostname": name,
        "hostname_resolves": True,
        "jobs": [],
        "links": {"lo": ["127.0.0.1"], **links},
        "links_error": "",
        "memory_mib": memory_mib(hardware),
        "mok_enrolled": [],
        "network": network(system),
        "node_time_s": 1795243071.0,
        "offset_at_most_s": 0.02,
        "ipv6": [],
        "os": {"id": name_of_system.lower(), "version": major, "rhel_like": system.startswith("el")},
        "provisioned_release": "",
        "provisioned_versions": {},
        "foreign": nobodys(),
        "python": SYSTEMS[system][4],
        "root": True,
        "secure_boot": "disabled",
        "sqv": system in ("debian13", "ubuntu2604"),
        "systemd": True,
        "time_servers": {},
        "tuned_profile": "",
    }


def recording(system: str, hardware: str, name: str, links: dict[str, list[str]]) -> Json:
    """One node: its facts, and what our modules read of it."""
    preflight = node_preflight(system, hardware, name, links)
    own = {"ansible_hostname": name, "ansible_nodename": name, "ansible_fqdn": f"{name}.example.net"}
    return {
        "about": ABOUT,
        "subsets": ["min", "virtual"],
        "ansible_facts": facts(system) | own,
        "modules": {"node_state": node_state(system, hardware), "node_preflight": preflight},
    }


def of_system(system: str) -> Json:
    """A machine that is head and GPU server in one, with one fabric port that has an RDMA device."""
    made = recording(system, OLD.get(system, "xe9680"), "node", {"eno1": ["192.0.2.11"]})
    made["modules"]["node_state"]["files"] = {f"/sys/class/net/{RAILS[0]}/device/infiniband/{RDMA_DEVICE}": ""}
    return made | {"commands": commands()}


def port_settings(name: str) -> Json:
    """What the role roce reads of a port that nobody configured: no priority is lossless, and global pause is on."""
    now = {"mtu": 1500, "trust": "pcp", "dscp_prio": {}, "pfc": [], "pause": {"rx": True, "tx": True}}
    drift = [{"what": "trust", "is": "pcp", "wanted": "dscp"}, {"what": "pfc", "is": [], "wanted": [3]}]
    return {
        "interface": name,
        "tool": "dcb",
        "tool_version": "dcb utility, iproute2-6.1.0",
        "rdma_device": RDMA_DEVICE,
        "now": now,
        "drift": drift,
        "missing": [],
        "applies": True,
        "lossless": False,
        "reason": 'trust is "pcp"; pfc is []',
    }


def commands(*ports: str) -> Json:
    """Output of commands that roles run in check mode too; without ports of the first rail."""
    names = ports or (RAILS[0],)
    said = json.dumps({name: port_settings(name) for name in names}, sort_keys=True)
    return {f"/usr/bin/python3 - check {' '.join(names)} --json --policy *": {"rc": 3, "stdout": said}}


def recordings() -> dict[str, Json]:
    """Every recording by its path."""
    made = {f"os/{system}.json": of_system(system) for system in SYSTEMS}
    for site in KEPT:
        made |= of_site(site)
    return {path: json.loads(json.dumps(data)) for path, data in made.items()}


def of_site(site: str) -> dict[str, Json]:
    """The recordings of a site's nodes by path."""
    system, network, ports = SITES[site]
    made = {}
    for name, (hardware, address) in MACHINES[site].items():
        fabric: dict[str, list[str]] = {port: [] for port in ports[hardware]}
        made[f"{site}/{name}.json"] = recording(system, hardware, name, {"eno1": [f"{network}.{address}"], **fabric})
    return made


def main() -> int:
    """Write all, or name what differs."""
    stale = []
    for name, data in recordings().items():
        path, text = HERE / name, json.dumps(data, indent=1, sort_keys=True) + "\n"
        if "--check" in sys.argv[1:]:
            stale += [name] * (not path.is_file() or path.read_text(encoding="utf-8") != text)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    print("\n".join(f"{name} is not what make.py writes" for name in stale), end="\n" if stale else "")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
