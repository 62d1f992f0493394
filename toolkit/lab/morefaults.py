"""Faults of a node's system, network and neighbours, on containers and machines alike: shell scripts run as root.

Each keeps what it has to remember below $kept, as those of vmfaults.py do. What runs on is a transient unit of the
node's systemd, so that it ends with the node.
"""

from __future__ import annotations

from toolkit.lab.vmfaults import PORT, NodeFault

UNIT = "elastic-ai-lab-fault"
COMMENT = f"-m comment --comment {UNIT} -j DROP"
LOSS = 0.03  # a share that TCP feels at once, and that leaves connections standing
LOSSY = f"INPUT -i {PORT} -m statistic --mode random --probability {LOSS} {COMMENT}"
CLOSED = f"INPUT -i {PORT} -p tcp {COMMENT}"
PENDING = f"/run/elastic-ai/reboot-required/{UNIT}"
OPEN_FILES = "/etc/security/limits.d/zz-elastic-ai-lab-fault-nofile.conf"
NOWHERE = "192.0.2.1"  # TEST-NET-1 (RFC 5737): nobody has it
FLAP_S = 3  # of these the link is gone for one


def _rule(rule: str) -> tuple[str, str]:
    return (
        f"iptables --wait 10 -I {rule}\n",
        f"while iptables --wait 10 -C {rule} 2>/dev/null; do iptables --wait 10 -D {rule}; done\n",
    )


def _unit(command: str, besides: str = "") -> tuple[str, str]:
    """A unit that runs on, and its end."""
    return (
        f"systemd-run --quiet --collect --unit={UNIT} sh -c '{command}'\n",
        f"systemctl stop {UNIT}.service 2>/dev/null || true\n{besides}",
    )


def _file(path: str, change: str) -> tuple[str, str]:
    """A file with other content; it is written and not replaced, for on containers it may be mounted."""
    name = path.rpartition("/")[2]
    return (
        f'cat {path} >"$kept/{name}"\n{change}',
        f'[ ! -e "$kept/{name}" ] || {{ cat "$kept/{name}" >{path}; rm -f "$kept/{name}"; }}\n',
    )


def _stopped(unit: str) -> tuple[str, str]:
    """A service that was stopped with its socket, which would start it again; and back with the toolkit's units that
    needed it, as the training container's, which it took along."""
    return (
        f"""systemctl cat {unit}.service >/dev/null || {{ echo 'no {unit} here; provision the node' >&2; exit 1; }}
systemctl list-units --state=active --plain --no-legend 'elastic-ai*' | cut -d' ' -f1 >"$kept/active"
systemctl stop {unit}.socket 2>/dev/null || true
systemctl stop {unit}.service
""",
        f"""systemctl start {unit}.service
[ ! -s "$kept/active" ] || xargs systemctl start <"$kept/active"
rm -f "$kept/active"
""",
    )


def _fault(about: str, scripts: tuple[str, str], *found_by: str) -> NodeFault:
    return NodeFault(about, scripts[0], scripts[1], vm_only=False, found_by=found_by)


MORE_FAULTS = {
    "lossy-link": _fault(
        f"{LOSS:.0%} of what arrives at {PORT} is lost, as through a dirty fibre", _rule(LOSSY), "tr.tcploss"
    ),
    "port-closed": _fault(f"a firewall rule drops TCP that arrives at {PORT}", _rule(CLOSED), "tr.tcpbw"),
    "flapping-port": _fault(
        f"{PORT} goes down for a second, every {FLAP_S} seconds",
        _unit(
            f"while :; do ip link set dev {PORT} down; sleep 1; ip link set dev {PORT} up; sleep {FLAP_S - 1}; done",
            f"ip link set dev {PORT} up\n",
        ),
        "pf.ports",
    ),
    "noisy-neighbour": _fault(
        "a program keeps all processors of the node busy",
        _unit("for i in $(seq $(nproc)); do while :; do :; done & done; wait"),
        "pf.state",
    ),
    "names-wrong": _fault(
        f"/etc/hosts has {NOWHERE} for every node's fabric address",
        _file("/etc/hosts", f'sed "s/^10\\.78\\.[0-9]*\\.[0-9]*/{NOWHERE}/" "$kept/hosts" >/etc/hosts\n'),
        "pf.asbuilt",
    ),
    "dns-dead": _fault(
        f"the name server is {NOWHERE}, where nobody answers",
        _file("/etc/resolv.conf", f"echo 'nameserver {NOWHERE}' >/etc/resolv.conf\n"),
        "pf.state",
    ),
    "wrong-time-zone": _fault(
        "the node is in the time zone of Apia, 13 hours ahead of UTC",
        (
            """readlink /etc/localtime >"$kept/localtime" || echo /usr/share/zoneinfo/Etc/UTC >"$kept/localtime"
ln -sfn /usr/share/zoneinfo/Pacific/Apia /etc/localtime
""",
            """[ -e "$kept/localtime" ] || exit 0
ln -sfn "$(cat "$kept/localtime")" /etc/localtime
rm -f "$kept/localtime"
""",
        ),
        "pf.state",
    ),
    "clock-free": _fault(
        "the clock follows nobody: chrony is stopped",
        (
            """unit=chrony; systemctl cat chrony.service >/dev/null 2>&1 || unit=chronyd
systemctl stop "$unit.service"
""",
            """unit=chrony; systemctl cat chrony.service >/dev/null 2>&1 || unit=chronyd
systemctl start "$unit.service"
""",
        ),
        "pf.asbuilt",
    ),
    "docker-stopped": _fault("Docker is stopped", _stopped("docker"), "pf.asbuilt"),
    "unit-failed": _fault(
        "a unit of the toolkit's has failed",
        (
            f"systemd-run --quiet --unit={UNIT} false\nsleep 1\n",
            f"systemctl reset-failed {UNIT}.service 2>/dev/null || true\n",
        ),
        "pf.asbuilt",
    ),
    "reboot-waits": _fault(
        "something was installed that counts only from the next boot on",
        (f"mkdir -p {PENDING.rpartition('/')[0]}\necho 'a kernel that was planted' >{PENDING}\n", f"rm -f {PENDING}\n"),
        "pf.stack",
    ),
    "few-files": _fault(
        "logins may open 64 files",
        (f"printf '%s - nofile 64\\n' '*' >{OPEN_FILES}\n", f"rm -f {OPEN_FILES}\n"),
        "pf.asbuilt",
    ),
    "disk-full": _fault(
        "the file system of temporary files is full",
        (
            """mount -t tmpfs -o size=64k,mode=1777 elastic-ai-lab-fault /tmp
head -c 65536 /dev/zero >/tmp/elastic-ai-lab-fault 2>/dev/null || true
""",
            """while grep -q '^elastic-ai-lab-fault /tmp ' /proc/mounts; do umount /tmp; done
""",
        ),
        "pf.state",
    ),
}
