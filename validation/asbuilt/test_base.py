"""Clock, names, limits, kernel: what roles base, kernel and tuning promise."""

from __future__ import annotations

import ipaddress

from validation.asbuilt.site import Host, Site, not_applicable
from validation.base.counting import be, number_of

UNLIMITED = -1


def _chrony(site: Site) -> str:
    unit: str = site.table("base", "__base_systems")["clock"]["unit"]
    return unit.removesuffix(".service")


def test_clock_service_runs_and_is_enabled(host: Host, site: Site) -> None:
    """The clock is served or followed, after a reboot too."""
    site.only_with("base")
    clock = host.service(_chrony(site))
    assert clock.is_running, f"{clock.name} does not run"
    assert clock.is_enabled, f"{clock.name} is not enabled"


def test_clock_follows_the_servers_of_the_site(host: Host, site: Site) -> None:
    """The declared time servers, else the heads; a head without declared ones follows nobody."""
    site.only_with("base")
    heads, declared = site.hosts("heads"), list(site.wants("base_chrony_servers"))
    wanted = declared or ([] if site.name in heads else heads)
    known = {name: site.of(name).get("ansible_host", name) for name in wanted}
    if not all(_is_address(address) for address in known.values()):
        not_applicable("the inventory names a time server, and chrony shows the addresses that it found for it")
    followed = {line.split(",")[2] for line in host.check_output("chronyc -n -c sources").splitlines() if line}
    assert followed == set(known.values()), f"chrony follows {_list(followed)}, wanted {_list(known.values())}"


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def _list(words: object) -> str:
    return ", ".join(sorted(map(str, words))) or "nobody"  # type: ignore[call-overload]


def test_every_node_is_known_by_name(host: Host, site: Site) -> None:
    """Management and fabric addresses of all nodes resolve, and none to the node itself by another name."""
    site.only_with("base")
    if not site.wants("base_manage_hosts"):
        not_applicable("base_manage_hosts is false in the inventory")
    wanted = {}
    for node in site.hosts("all"):
        variables = site.of(node)
        if _is_address(variables.get("ansible_host", "")):
            wanted[node] = variables["ansible_host"]
        for port in variables.get("fabric_ports", []):
            wanted[f"{node}-{port['interface']}"] = port["address"].partition("/")[0]
            if port.get("address6"):
                wanted[f"{node}-{port['interface']}-v6"] = port["address6"].partition("/")[0]
    names = sorted(wanted)
    loop = " ".join(["%s"] * len(names))
    said = host.run(f"for n in {loop}; do echo $n $(getent hosts $n | cut -d' ' -f1); done", *names).stdout
    found = {line.split()[0]: line.split()[1:] for line in said.splitlines() if line.split()}
    right = {name: str(ipaddress.ip_address(address)) for name, address in wanted.items()}  # as getent writes it
    wrong = [f"{name} is {_list(found.get(name, []))}" for name in names if right[name] not in found.get(name, [])]
    assert not wrong, (
        f"{len(wrong)} of {number_of(len(names), 'name')} {be(len(wrong))} not as in the inventory: "
        f"{'; '.join(wrong[:3])}"
    )


def test_limits_of_a_login_are_as_wanted(host: Host, site: Site) -> None:
    """An ordinary user may lock memory and open files as the site wants; in a container as much as it may itself."""
    site.only_with("tuning")
    found = host.check_output("runuser -u nobody -- sh -c 'ulimit -Hl; ulimit -Hn'").split()
    if site.container:
        wanted = host.check_output("sh -c 'ulimit -Hl; ulimit -Hn'").split()
    else:
        limits = site.wants("tuning_limits")
        wanted = [_limit(limits["memlock_bytes"], 1024), _limit(limits["nofile"], 1)]
    assert found == wanted, f"memlock (KiB) and open files are {' and '.join(found)}, wanted {' and '.join(wanted)}"


def _limit(value: int, unit: int) -> str:
    return "unlimited" if value == UNLIMITED else str(value // unit)


def test_kernel_parameters_are_in_effect(host: Host, site: Site) -> None:
    """All of roles tuning and fabric; a container has those of its host."""
    if site.container:
        not_applicable("a container has the kernel of its host (elastic_ai_virtual)")
    wanted: dict[str, str] = {}
    for role in ("tuning", "fabric"):
        if str(site.get(f"{role}_state", "present")) != "absent":
            both = {**site.wants(f"{role}_sysctl_default"), **site.wants(f"{role}_sysctl_extra")}
            wanted |= {key: " ".join(str(value).split()) for key, value in both.items()}
    if not wanted:
        not_applicable("the inventory goes without roles tuning and fabric")
    lines = host.run("sysctl " + " ".join(["%s"] * len(wanted)), *wanted).stdout.splitlines()
    found = {line.partition(" = ")[0]: " ".join(line.partition(" = ")[2].split()) for line in lines}
    wrong = [f"{key} is {found.get(key, 'not there')}, wanted {value}" for key, value in wanted.items()
             if found.get(key) != value]  # fmt: skip
    assert not wrong, "; ".join(wrong)


def test_boot_parameters_are_in_effect(host: Host, site: Site) -> None:
    """What role kernel wants on the kernel's command line, as it was booted."""
    site.only_with("kernel")
    if site.virtual:
        not_applicable("a virtual node's boot is its host's affair (elastic_ai_virtual)")
    wanted = ["iommu=pt"] if site.wants("kernel_iommu_passthrough") else []
    wanted += [] if site.wants("kernel_numa_balancing") else ["numa_balancing=disable"]
    cstate = int(site.wants("kernel_cstate_max"))
    wanted += [f"processor.max_cstate={cstate}"] if cstate >= 0 and site.in_group("gpu_servers") else []
    for pages in site.wants("kernel_hugepages"):
        wanted += [f"hugepagesz={pages['size']}", f"hugepages={pages['count']}"]
    for name, value in site.wants("kernel_arguments_extra").items():
        wanted.append(f"{name}={value}" if value not in (None, "") else str(name))
    booted = host.file("/proc/cmdline").content_string.split()
    missing = [word for word in wanted if word not in booted]
    assert not missing, f"not on the kernel's command line: {' '.join(missing)}"


def test_nothing_waits_for_a_reboot(host: Host, site: Site) -> None:
    """No role left a reason for one."""
    waiting = host.run("cat /run/elastic-ai/reboot-required/* 2>/dev/null").stdout.split("\n")
    reasons = [line for line in waiting if line.strip()]
    assert not reasons, f"a reboot waits: {'; '.join(reasons)}"


def test_no_unit_of_the_toolkit_has_failed(host: Host, site: Site) -> None:
    """Of units that others brought nothing is said."""
    failed = host.check_output("systemctl list-units --failed --no-legend --plain 'elastic-ai*'").splitlines()
    names = [line.split()[0] for line in failed if line.split()]
    assert not names, f"failed: {', '.join(names)}"
