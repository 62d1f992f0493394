"""A Slurm of the site's own that the pool joins: what is asked of it, what is written for it, what it still lacks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.slurm import (
    gres_lines,
    names_joined,
    node_lines,
)
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.slurm_policy import checked, qos_limits

Json = Mapping[str, Any]


def slurm_join_questions(join: Json) -> list[dict[str, Any]]:
    """What the head asks a cluster that is joined: name and command of each question."""
    from toolkit.joined.cluster import QUESTIONS

    return [{"name": name, "argv": list(argv)} for name, argv in QUESTIONS.items()] if join else []


def _plain(data: Any) -> Any:
    """Ansible's own kinds of text, lists and mappings as those that are checked."""
    return json.loads(json.dumps(data))


def _answer(result: Json) -> Any:
    from toolkit.joined.cluster import Answer

    if not result.get("rc"):
        return Answer(str(result.get("stdout") or ""))
    said = str(result.get("stderr") or result.get("msg") or "").strip().splitlines()
    return Answer("", said[-1].strip() if said else f"exit {result['rc']}")


def _cluster(results: Iterable[Json]) -> Any:
    from toolkit.errors import UsageFault
    from toolkit.joined.cluster import read_cluster

    try:
        return read_cluster({str(one["item"]["name"]): _answer(one) for one in results})
    except UsageFault as fault:
        raise AnsibleFilterError(f"the cluster does not answer: {fault}") from None


def slurm_join_refused(result: Json, data: Json, inventory: str) -> list[str]:
    """Why a node is not used, by its own `scontrol show config`: no Slurm, no answer, another cluster or release.

    data: the variable slurm_pool.
    """
    from toolkit.joined.cluster import of_config, refusals

    join = checked(data, None, inventory).join
    answer = _answer(result)
    if answer.failed:
        return [
            f"no command of cluster {join.cluster} works here (scontrol show config: {answer.failed}): its "
            "administrator makes this a node or a login node of it, with its commands, munge and key "
            "(docs/how-to/join-slurm.md)"
        ]
    return refusals(of_config(answer), join)


def slurm_join_places(result: Json) -> dict[str, list[str]]:
    """Where on a node are, by its `scontrol show config`, the programs of Prolog and Epilog (`programs`, patterns too)
    and the module for JSON (`json`), without which there are no leases."""
    from toolkit.joined.cluster import of_config

    cluster = of_config(_answer(result))
    modules = [f"{folder}/serializer_json.so" for folder in cluster.modules]
    return {"programs": list(cluster.scripts), "json": modules}


def slurm_join_wanted(
    data: Json, cluster: Json, shards: int, inventory: str, hooks: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """What leases need of the cluster, as a document (toolkit/joined/missing.py: Wanted), and the lines of the files
    that its administrator includes: partitions, gpus and shards.

    data: the variable slurm_pool; cluster: what filter slurm_cluster found of our GPU servers; hooks: programs of
    Prolog and Epilog.
    """
    pool = checked(data, shards or 1, inventory)
    join = pool.join
    nodes = [{k: v for k, v in one.items() if k != "host"} for one in cluster["nodes"]]
    servers = []
    for node in nodes:
        (line,) = node_lines([node], shards)
        gres = line.partition(" Gres=")[2].partition(" ")[0]
        servers.append({"name": node["name"], "gpus": node["gpus"]["count"], "node_line": line, "gres": gres})
    lines = [line for line in gres_lines(nodes, shards) if line != "AutoDetect=off"]
    names = names_joined(sorted(nodes, key=lambda one: (len(one["name"]), one["name"])), "name")
    weights = f" TRESBillingWeights=gres/gpu={shards or 1},gres/shard=1" if pool.users else ""
    partition = f"PartitionName={join.partition} Nodes={names} MaxTime=INFINITE State=UP OverSubscribe=NO{weights}"
    return {
        "wanted": {
            "join": join.model_dump(mode="json"),
            "shards": shards,
            "servers": servers,
            "classes": {name: qos_limits(pool, name, shards or 1) for name in pool.users},
            "hooks": {kind: list(programs) for kind, programs in hooks.items()},
        },
        "nodes": cluster["nodes"],
        "partitions": [partition] if nodes else [],
        "gpus": [_without_detection(line) for line in lines if "Name=shard" not in line],
        "shards": [line for line in lines if "Name=shard" in line],
    }


def _without_detection(line: str) -> str:
    """A line of gres.conf that decides for its own nodes alone whether Slurm looks for GPUs: the file has others'."""
    return line if "AutoDetect=" in line else line.replace(" Name=gpu", " AutoDetect=off Name=gpu", 1)


def slurm_join_missing(wanted: Json, results: Iterable[Json], scripts: Mapping[str, Json]) -> list[dict[str, Any]]:
    """What the cluster lacks, what leases cannot do without first: `needed` and `words` of each. scripts: contents of
    the programs of Prolog and Epilog by GPU server."""
    from toolkit.joined.missing import Wanted, missing

    document = Wanted.model_validate(_plain(wanted))
    found = missing(_cluster(_plain(results)), document, _plain(scripts))
    return [{"needed": one.needed, "words": one.words} for one in found]
