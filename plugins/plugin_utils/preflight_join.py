"""What preflight refuses where the pool joins a Slurm of the site's own (slurm_pool.join): another cluster than was
meant, no cluster at all, and device files that would close before that cluster's Prolog opens them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.foreign import EXAMPLES, named_among

Json = Mapping[str, Any]

PAGE = "docs/how-to/join-slurm.md"


def join_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """What of a node of the pool does not fit the cluster that is joined."""
    join = wanted.get("join") or {}
    foreign = observed.get("foreign") or {}
    if not join or not foreign or not wanted["in_pool"]:
        return
    if wanted["join_without"]:
        yield (
            f"{' and '.join(wanted['join_without'])} cannot be used with slurm_pool.join yet: leave it out, toolkit "
            "gpus shows the same"
        )
    if any(entry["path"] == "/etc/slurm/slurm.conf" and entry["known"] for entry in foreign["files"]):
        yield (
            f"the pool's own Slurm is here, and slurm_pool.join names cluster {join['cluster']}: take the own one back "
            "first (toolkit teardown -- --tags pool)"
        )
        return
    confs = [one for one in foreign["slurm"]["confs"] if not set(one["controllers"]) <= EXAMPLES]
    others = [one for one in confs if not _joined(one, join)]
    servers = [one["server"] for one in foreign["slurm"]["daemons"] if one["server"]]
    strange = [one for one in servers if not named_among([one], join["controllers"])]
    if others or strange:
        signs = [f"{one['path']} of cluster {one['cluster'] or '(unnamed)'} under {_hosts(one)}" for one in others]
        signs += [f"a daemon that takes its configuration from {one}" for one in strange]
        yield (
            f"it belongs to another Slurm than slurm_pool.join names ({join['cluster']} under "
            f"{', '.join(join['controllers'])}): {'; '.join(signs)}. Nothing was changed. Correct the inventory, or "
            "leave the node out of it"
        )
    elif wanted["gpu_server"] and not confs and not servers:
        yield (
            f"it is no node of cluster {join['cluster']} yet: its administrator makes it one, with that cluster's "
            f"slurmd, munge and key ({PAGE})"
        )
    elif wanted["gpu_server"] and wanted["fenced"]:
        yield from _hooks(confs, join)


def _hosts(conf: Json) -> str:
    return ", ".join(conf["controllers"]) or "an unnamed controller"


def _joined(conf: Json, join: Json) -> bool:
    return bool(conf["cluster"] == join["cluster"] and named_among(conf["controllers"], join["controllers"]))


def _hooks(confs: list[Json], join: Json) -> Iterator[str]:
    """Without the toolkit's Prolog nobody opens the device files of GPUs to jobs, those of that cluster's users too."""
    lacking = [kind for kind in ("prolog", "epilog") if not any(kind in one.get("hooked", ()) for one in confs)]
    if lacking:
        yield (
            f"{' and '.join(one.capitalize() for one in lacking)} of cluster {join['cluster']} do not run the "
            "toolkit's here, so that jobs of its users could open no GPU once its device files are closed: its "
            f"administrator adds them first ({PAGE}, whose section 2 writes what is copied), or "
            "leave the device files open (remoting_server_fence_devices: false)"
        )
