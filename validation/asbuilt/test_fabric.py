"""Fabric ports and RDMA: what roles fabric, ofed and roce promise."""

from __future__ import annotations

import json

from validation.asbuilt.site import Host, Site, is_version, not_applicable

MODULES = ("ib_uverbs", "rdma_ucm")


def test_ports_have_address_and_mtu(host: Host, site: Site) -> None:
    """Each declared port is up, with its address, and with the MTU that is declared for it."""
    site.only_with("fabric")
    if not site.ports:
        not_applicable("the inventory declares no fabric port")
    shown = {link["ifname"]: link for link in json.loads(host.check_output("ip -json address show"))}
    wrong = []
    for port in site.ports:
        name, link = port["interface"], shown.get(port["interface"])
        if link is None:
            wrong.append(f"{name} is not there")
            continue
        addresses = [f"{a['local']}/{a['prefixlen']}" for a in link["addr_info"] if a["family"].startswith("inet")]
        if port["address"] not in addresses:
            wrong.append(f"{name} has {', '.join(addresses) or 'no address'}, wanted {port['address']}")
        mtu = port.get("mtu")
        if mtu is None and name in site.ethernet_ports:
            mtu = site.wants("fabric_mtu")
        if mtu is not None and link["mtu"] != int(mtu):
            wrong.append(f"{name} has MTU {link['mtu']}, wanted {mtu}")
        if "UP" not in link["flags"] or "LOWER_UP" not in link["flags"]:
            wrong.append(f"{name} is {'without a link' if 'UP' in link['flags'] else 'down'}")
    assert not wrong, "; ".join(wrong)


def test_rdma_stack_is_installed(host: Host, site: Site) -> None:
    """The distribution's packages, or DOCA-OFED in the release's version."""
    site.only_with("ofed")
    provider = site.version("ofed_provider", "ofed", "provider") or "inbox"
    if provider == "inbox":
        missing = [
            name for name in site.table("ofed", "__ofed_systems")["inbox"] if not host.package(name).is_installed
        ]
        assert not missing, f"not installed: {', '.join(missing)}"
        return
    profile, version = str(site.wants("ofed_doca_profile")), site.version("ofed_version", "ofed")
    package = host.package(profile)
    assert package.is_installed, f"{profile} is not installed"
    assert is_version(str(package.version), version), f"{profile} is {package.version}, wanted {version}"


def test_rdma_modules_are_loaded(host: Host, site: Site) -> None:
    """What programs open RDMA devices by."""
    site.only_with("ofed")
    if site.container:
        not_applicable("a container has the kernel modules of its host (elastic_ai_virtual)")
    if not any(port.get("rdma", True) for port in site.ports):
        not_applicable("no fabric port of it has RDMA in the inventory")
    loaded = set(host.check_output("cut -d' ' -f1 /proc/modules").split())
    built_in = {name for name in MODULES if host.file(f"/sys/module/{name}").exists}
    missing = [name for name in MODULES if name not in loaded | built_in]
    assert not missing, f"not loaded: {', '.join(missing)}"


def test_soft_roce_runs_on_its_ports(host: Host, site: Site) -> None:
    """Where the inventory wants RDMA in software."""
    site.only_with("ofed")
    if not site.wants("ofed_soft_roce"):
        not_applicable("ofed_soft_roce is not set in the inventory")
    wrong = [name for name in site.ethernet_ports if not host.service(f"elastic-ai-rxe@{name}").is_running]
    assert not wrong, f"no soft-RoCE on {', '.join(wrong)}"


def test_roce_policy_is_in_effect(host: Host, site: Site) -> None:
    """Trust, priorities, flow control and ECN of the ports, as the program that sets them reads them back."""
    site.only_with("roce")
    if not site.wants("roce_enabled"):
        not_applicable("roce_enabled is not set in the inventory")
    if site.virtual:
        not_applicable("a virtual port has no flow control to set (elastic_ai_virtual)")
    for port in site.wants("roce_ports") or site.ethernet_ports:
        said = host.run("/usr/local/libexec/elastic-ai-roce check %s", port)
        assert said.rc == 0, said.stdout.strip() or said.stderr.strip()
        assert host.service(f"elastic-ai-roce@{port}").is_enabled, f"{port}: its settings do not come back at boot"
