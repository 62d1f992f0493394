"""Judging the NVIDIA driver's libraries: what programs need can be loaded, none is empty, all are of one release."""

from __future__ import annotations

from collections.abc import Mapping

from validation.judging.case import Case
from validation.judging.each_node import Said, on_each_node
from validation.judging.methods import method
from validation.model import Bound, Judgement, Node, ReasonCode, VerdictName
from validation.model.driver import forward
from validation.model.node_facts import NodeFacts
from validation.rules.criterion import Criterion
from validation.rules.virtual import CONTAINERS

NEEDED = ("libcuda.so.1", "libnvidia-ml.so.1")
"""What every program that computes on GPUs, or looks at them, asks for."""


@method("gpulib", "the driver's libraries, loaded by name, against the kernel module that is loaded")
def judge_gpulib(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node with GPUs. Where no node has any, the criterion does not apply to this site."""
    bound = Bound(
        metric="driver_libraries",
        unit="",
        equal=f"{' and '.join(NEEDED)} can be loaded; no library is empty; all of the module's version",
        derivation=(
            "the loader by name, each file's size, and the version in its name",
            "CUDA's forward compatibility (a folder compat) may be later than the module, and is said",
        ),
        source=criterion.source,
    )
    return on_each_node(case, criterion, NodeFacts, lambda node, facts: Said(*_judge(case, node, facts)), bound)


def gpus(node: Node, facts: NodeFacts) -> int:
    """GPUs that the node shows, by whatever way, or is declared to have: a driver that is broken shows none."""
    on_bus = 0 if facts.virt in CONTAINERS else sum(card.what == "gpu" for card in facts.pci)
    return max(facts.gpu_count, node.bom.gpu_count or 0, on_bus)


def _judge(case: Case, node: Node, facts: NodeFacts) -> tuple[VerdictName, ReasonCode, str]:
    missing: ReasonCode = "virtual" if case.virtual else "missing-metric"
    found = facts.driver_libraries
    if not gpus(node, facts) and not node.emulated_gpus:
        return "not-applicable", "not-applicable", "no GPU in this node, and none declared"
    if found is None:
        return "not-measured", missing, "nobody looked at the driver's libraries"
    emulated = any(one.emulated for one in found.loaded)
    if emulated and not case.virtual:
        return "not-measured", "missing-metric", "the GPUs are emulated, and their libraries too"
    wrong = [f"{one.name} cannot be loaded: {one.fault}" for one in found.loaded if one.fault]
    wrong += [f"{one.path} is {'empty' if one.bytes == 0 else 'not there'}" for one in found.files if not one.bytes]
    loaded = {one.path: one.version for one in found.loaded if one.version}
    taken = {**{one.path: one.version for one in found.files if one.version}, **loaded}
    module = facts.driver_module.version if facts.driver_module else ""
    ahead = {path: version for path, version in loaded.items() if forward(path)}
    wrong += _not_ahead(ahead, module)
    taken = {path: version for path, version in taken.items() if not forward(path)}
    if module:
        odd = {path: version for path, version in taken.items() if version != module}
        wrong += [f"{path} is of {version}, the loaded kernel module of {module}" for path, version in odd.items()]
    elif len(set(taken.values())) > 1:
        wrong.append(f"libraries of several releases: {', '.join(f'{p} ({v})' for p, v in taken.items())}")
    if wrong:
        return "fail", "not-equal", "; ".join(wrong)
    untried = [name for name in NEEDED if name not in {one.name for one in found.loaded}]
    if untried:
        return "not-measured", missing, f"nobody tried to load {' and '.join(untried)}"
    if not emulated and (not module or not (taken or ahead)):
        why = "no kernel module of the driver is loaded" if not module else "no library's name shows its version"
        return "not-measured", missing, why
    said = f"{len(found.files)} libraries, {', '.join(one.name for one in found.loaded)} loaded"
    if ahead:
        names = ", ".join(f"{path} ({version})" for path, version in ahead.items())
        return "pass", "remarked", f"{said}, of {module}, except CUDA's forward compatibility: {names}"
    return "pass", "within-bounds", f"{said}, {f'all of {module}' if module else 'emulated'}"


def _not_ahead(loaded: Mapping[str, str], module: str) -> list[str]:
    """What is wrong with the libraries of CUDA's forward compatibility that were loaded: they are of one release, on a
    kernel module of an earlier one."""
    if len(set(loaded.values())) > 1:
        return [f"CUDA's forward compatibility is of several releases: {', '.join(map(' of '.join, loaded.items()))}"]
    return [
        f"{path} is CUDA's forward compatibility of {version}, and the loaded kernel module of {module} is not "
        "earlier: take its folder from the loader's path"
        for path, version in loaded.items()
        if module and _numbers(version) <= _numbers(module)
    ]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
