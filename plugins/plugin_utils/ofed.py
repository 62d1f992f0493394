"""What role ofed derives from a reading of the node: RDMA devices, and what speaks for a reboot."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

#: The profile of DOCA that brings no kernel modules.
USER_SPACE = "doca-ofed-userspace"


def rdma_devices(contents: Mapping[str, str]) -> list[dict[str, Any]]:
    """RDMA ports from node_state's contents of <sysfs>/class/infiniband/*/ports/*/{link_layer,gids/0,...ndevs/0}.

    Each has device, port, link_layer, netdev and, of InfiniBand, the port's GUID; not its state, which comes and goes.
    A virtual function (<sysfs>/class/infiniband/*/device/physfn) has no GUID here: no subnet manager runs on one.
    """
    virtual = {
        found[1]
        for path, text in contents.items()
        if (found := re.search(r"/class/infiniband/([^/]+)/device/physfn/", path)) and text.strip()
    }
    ports: dict[tuple[str, str], dict[str, Any]] = {}
    for path, text in contents.items():
        found = re.search(r"/class/infiniband/([^/]+)/ports/(\d+)/(.+)$", path)
        if found:
            ports.setdefault((found[1], found[2]), {})[found[3]] = text.strip()
    devices = []
    for (device, port), values in sorted(ports.items()):
        layer = values.get("link_layer", "")
        guid = "".join(values.get("gids/0", "").split(":")[4:])
        devices.append(
            {
                "device": device,
                "port": int(port),
                "link_layer": layer,
                "netdev": values.get("gid_attrs/ndevs/0", ""),
                "port_guid": f"0x{guid}" if layer == "InfiniBand" and guid and device not in virtual else "",
            }
        )
    return devices


def ofed_reboot_reasons(seen: Mapping[str, Any]) -> list[str]:
    """Why a reboot is needed: the adapter's driver in memory is of another OFED build than the installed one.

    seen: provider, loaded (mlx5_core), loaded_build (its version, "25.10-1.7.1" of an OFED, "" of most kernels) and
    installed_build (of `ofed_info -s`).
    """
    if not seen["loaded"]:
        return []
    loaded, installed = str(seen["loaded_build"]), str(seen["installed_build"])
    of_ofed = bool(re.fullmatch(r"\d+\.\d+-[\d.]+", loaded))
    if seen["provider"] == "inbox":
        return [f"mlx5_core of OFED {loaded} is loaded, the kernel's own is installed"] if of_ofed else []
    # MLNX_OFED names its packages by a number more than its modules: 24.10-1.1.4.0 and 24.10-1.1.4
    if not installed or loaded == installed or (of_ofed and installed.startswith(f"{loaded}.")):
        return []
    return [f"mlx5_core of {f'OFED {loaded}' if of_ofed else 'the kernel'} is loaded, of OFED {installed} installed"]


def ofed_judged(
    node: Mapping[str, Any],
    *,
    provider: str,
    profile: str,
    soft_roce: bool,
    soft_roce_ports: Sequence[str],
    opensm: bool,
    guids: Sequence[str],
) -> dict[str, Any]:
    """What is wanted of RDMA on a node as it is: soft_roce, units, units_off and not_applicable.

    soft_roce: whether it works there; units_off: those of `units` that do not start at boot. guids: of the InfiniBand
    ports that a subnet manager serves.
    """
    works = bool(node["modules_loadable"] and node["modules"]["rdma_rxe"]["available"])
    drivers = provider == "doca" and profile != USER_SPACE
    units = ["openibd.service"] if drivers and not node["in_container"] else []
    units += [f"elastic-ai-opensm@{guid}.service" for guid in guids]
    units += [f"elastic-ai-rxe@{port}.service" for port in soft_roce_ports] if works else []
    starting = {name for name, unit in node["units"].items() if unit["enabled"]}
    starting |= {name for name in (path.rsplit("/", 1)[-1] for path in node["files"]) if name not in node["units"]}
    left_out = []
    if node["in_container"]:
        left_out.append("RDMA kernel modules: a container uses those of its host")
    elif not node["modules_loadable"]:
        left_out.append(f"RDMA kernel modules: none of the running kernel {node['kernel']} can be loaded")
    if soft_roce and not works:
        left_out.append("soft-RoCE: this node cannot load rdma_rxe")
    if opensm and not guids:
        left_out.append("subnet manager: no InfiniBand port on this node")
    if drivers and node["in_container"]:
        left_out.append("drivers of DOCA-OFED: its user space alone is of use in a container")
    off = [unit for unit in units if unit not in starting]
    return {"soft_roce": works, "units": units, "units_off": off, "not_applicable": left_out}
