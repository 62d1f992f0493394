"""Faults inside a virtual machine, planted and taken back by shell scripts that run on it as root.

Each script finds the RDMA device behind fab0 itself ($device) and keeps what it has to remember below $kept, which
goes with a reboot, as the faults do (except memlock-low and nccl-pinned, which are files). So clearing finds nothing
to do after one.
"""

from __future__ import annotations

from dataclasses import dataclass

PORT = "fab0"
ROCE_UDP_PORT = 4791  # IANA, roce
HEAD = f"""set -eu
kept=/run/elastic-ai-lab-fault
mkdir -p "$kept"
device=$(rdma link show 2>/dev/null | sed -n 's|^link \\([^/]*\\)/.* netdev {PORT} *$|\\1|p')
need_device() {{
    [ -n "$device" ] || {{ echo 'no RDMA device on {PORT}; provision the node first (site.yml)' >&2; exit 1; }}
}}
"""
PROFILE = "/etc/profile.d/zz-elastic-ai-lab-fault.sh"
SOMAXCONN = "/proc/sys/net/core/somaxconn"
LIMITS = "/etc/security/limits.d/zz-elastic-ai-lab-fault.conf"
RULE = f"INPUT -p udp --dport {ROCE_UDP_PORT} -m comment --comment elastic-ai-lab-fault -j DROP"
CLOCK_OFF_S = 3 * 3600
TOS = '"/sys/kernel/config/rdma_cm/$device/ports/1/default_roce_tos"'


@dataclass(frozen=True)
class NodeFault:
    """What it does, in words, the scripts that plant it and take it back, and the criteria that find it."""

    about: str
    plant: str
    clear: str
    vm_only: bool = True
    found_by: tuple[str, ...] = ()


NODE_FAULTS = {
    "rxe-missing": NodeFault(
        f"the node has no soft-RoCE device on {PORT}",
        f"""need_device
systemctl stop elastic-ai-rxe@{PORT}.service 2>/dev/null || true
if rdma link show "$device/1" >/dev/null 2>&1; then rdma link delete "$device"; fi
""",
        f"""systemctl start elastic-ai-rxe@{PORT}.service 2>/dev/null || true
rdma link show | grep -q 'netdev {PORT} *$' || rdma link add rxe_{PORT} type rxe netdev {PORT}
if systemctl --quiet is-enabled elastic-ai-roce@{PORT}.service 2>/dev/null; then
    systemctl restart elastic-ai-roce@{PORT}.service
fi
""",
        found_by=("pf.rdmaport",),
    ),
    "wrong-mtu": NodeFault(
        f"{PORT} has an MTU of 1500 instead of the fabric's",
        f"""cat /sys/class/net/{PORT}/mtu >"$kept/mtu"
ip link set dev {PORT} mtu 1500
""",
        f"""[ ! -e "$kept/mtu" ] || ip link set dev {PORT} mtu "$(cat "$kept/mtu")"
""",
        vm_only=False,
        found_by=("pf.mtu",),
    ),
    # Soft-RoCE knows RoCE v2 alone and refuses the mode in configfs, so sysfs is made to say what an adapter with v1
    # GIDs says; a tool that asks the kernel by ioctl still sees v2.
    "rocev1-gid": NodeFault(
        f"every GID of {PORT} is of type RoCE v1 (in sysfs: soft-RoCE has no real v1)",
        """need_device
echo 'IB/RoCE v1' >"$kept/type"
for file in "/sys/class/infiniband/$device/ports/1/gid_attrs/types/"*; do
    { read -r type <"$file"; } 2>/dev/null || continue # an empty entry of the table cannot be read
    [ "$type" = 'IB/RoCE v1' ] || mount --bind "$kept/type" "$file"
done
""",
        """sed -n 's|^[^ ]* \\(/sys/[^ ]*/gid_attrs/types/[0-9]*\\) .*|\\1|p' /proc/mounts | while read -r file; do
    umount "$file"
done
""",
        found_by=("pf.rdmaport",),
    ),
    "firewall-4791": NodeFault(
        f"a firewall rule drops what arrives at UDP port {ROCE_UDP_PORT}, RoCE v2's",
        f"iptables --wait 10 -I {RULE}\n",
        f"while iptables --wait 10 -C {RULE} 2>/dev/null; do iptables --wait 10 -D {RULE}; done\n",
        found_by=("tr.rdmafn",),
    ),
    "memlock-low": NodeFault(
        "logins may lock 64 KiB of memory",
        f"""printf '%s - memlock 64\\n' '*' root >{LIMITS}
""",
        f"""rm -f {LIMITS}
""",
        found_by=("pf.memlock",),
    ),
    "nccl-pinned": NodeFault(
        "logins have NCCL_PROTO and NCCL_P2P_DISABLE in their environment, as somebody's trial left them",
        f"""printf 'export NCCL_PROTO=Simple NCCL_P2P_DISABLE=1\\n' >{PROFILE}
""",
        f"""rm -f {PROFILE}
""",
        vm_only=False,
        found_by=("pf.ncclenv",),
    ),
    "sysctl-drift": NodeFault(
        "net.core.somaxconn is 128, whatever role tuning set, as somebody's trial left it",
        f"""cat {SOMAXCONN} >"$kept/somaxconn"
echo 128 >{SOMAXCONN}
""",
        f"""[ ! -e "$kept/somaxconn" ] || cat "$kept/somaxconn" >{SOMAXCONN}
""",
        vm_only=False,
        found_by=("pf.tuning",),
    ),
    "wrong-clock": NodeFault(
        f"the node's clock is {CLOCK_OFF_S // 3600} hours ahead, and chrony, which would report this, is stopped",
        f"""unit=chrony; systemctl cat chrony.service >/dev/null 2>&1 || unit=chronyd
systemctl stop "$unit.service" 2>/dev/null || true
: >"$kept/clock"
date --set "@$(($(date +%s) + {CLOCK_OFF_S}))" >/dev/null
""",
        f"""[ -e "$kept/clock" ] || exit 0
date --set "@$(($(date +%s) - {CLOCK_OFF_S}))" >/dev/null
rm -f "$kept/clock"
unit=chrony; systemctl cat chrony.service >/dev/null 2>&1 || unit=chronyd
! systemctl --quiet is-enabled "$unit.service" 2>/dev/null || systemctl start "$unit.service"
""",
        found_by=("pf.state",),
    ),
    "dscp-unset": NodeFault(
        f"RDMA-CM connections of {PORT}'s device carry no DSCP (type of service 0)",
        f"""need_device
mkdir -p "/sys/kernel/config/rdma_cm/$device"
cat {TOS} >"$kept/tos"
echo 0 >{TOS}
""",
        f"""[ -e "$kept/tos" ] || exit 0
need_device
mkdir -p "/sys/kernel/config/rdma_cm/$device"
cat "$kept/tos" >{TOS}
""",
        found_by=("pf.lossless",),
    ),
}
