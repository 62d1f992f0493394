"""What a document of benchmarks/torch_engine.py says: its tables in Markdown, and the model held against it."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.torch_model import WITHIN, Costs, Link, Step, off_by, predicted_s

PROGRAMS = ("mlp", "resnet50", "gpt", "decode", "loader")
MOST_IDLE_MS = {"resnet50": 3.0}
"""Wall and processor of a step against a server whose operators do nothing."""
TARGETS = {"mlp": 0.95, "resnet50": 0.97, "gpt": 0.97}
"""Of native, at the least delay."""
NOTHING = "operators do nothing"
"""The way by a server that runs none of them."""
BEGIN, END = "<!-- torch_engine.json, by --write: -->", "<!-- end of torch_engine.json -->"
MOST_OPERATOR_US, LEAST_OF_IPERF, MOST_ROUND_TRIPS = 2.0, 0.9, 1.1


def programs(document: dict[str, Any]) -> list[str]:
    """Those that it has: an older document lacks what was added since."""
    return [program for program in PROGRAMS if program in document["rounds"][0]["programs"]]


def least_s(document: dict[str, Any], program: str, way: str, what: str = "step_s") -> float:
    """The shortest step of all rounds: other work on the machine only ever makes one longer."""
    return min(min(turn["programs"][program][way][what]) for turn in document["rounds"])


def per_step(document: dict[str, Any], program: str, way: str) -> dict[str, float]:
    found: dict[str, float] = document["rounds"][0]["programs"][program][way]["per_step"]
    return found


def least_call_us(document: dict[str, Any], way: str, name: str, what: str) -> float:
    return min(float(turn["calls"][way]["calls"][name][what]) for turn in document["rounds"])


def costs(document: dict[str, Any]) -> Costs:
    """The least of all rounds: of an addition's message, a wait, a byte each way."""
    first = document["links"][0]
    native_us = least_call_us(document, "native", "add_", "done_us")
    done_us = least_call_us(document, first, "add_", "done_us")
    return Costs(
        issue_s=least_call_us(document, first, "add_", "issued_us") / 1e6,
        serve_s=max(0.0, done_us - native_us) / 1e6,
        wait_s=min(turn["calls"][first]["synchronize_us"] for turn in document["rounds"]) / 1e6,
        up_s=1e-9 / max(max(turn["copies"]["up_gb_s"]) for turn in document["rounds"]),
        down_s=1e-9 / max(max(turn["copies"]["down_gb_s"]) for turn in document["rounds"]),
    )


def model(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Each program at each delay, as predicted and as measured."""
    rows = []
    for program in programs(document):
        for name in document["links"]:
            counts = per_step(document, program, name)
            ahead = counts.get("bytes_ahead", 0)
            step = Step(
                least_s(document, program, "native"), counts["calls"], counts["waits"],
                counts["bytes_sent"] - ahead, counts["bytes_down"], ahead,
            )  # fmt: skip
            said = predicted_s(step, costs(document), Link.of(name))
            was = least_s(document, program, name)
            rows.append({"program": program, "link": name, "predicted_s": said, "measured_s": was})
    return rows


def busy(document: dict[str, Any]) -> bool:
    """Whether more ran than the machine has processors: times on the wall then say nothing of the engine."""
    return bool(max(turn["load_1min"] for turn in document["rounds"]) > document["machine"]["cores"])


def tables(document: dict[str, Any]) -> str:
    """Markdown of a document's figures."""
    links = document["links"]
    first = links[0]
    loads = [turn["load_1min"] for turn in document["rounds"]]
    machine = document["machine"]
    lines = [
        f"{document['date'][:10]}, {machine['processor']}, {machine['cores']} processors, PyTorch {machine['torch']}, "
        f"{len(loads)} rounds of {document['steps']} steps, load {min(loads):.1f} to {max(loads):.1f}. Shortest steps:",
        "",
        "| program | native, ms | " + " | ".join(f"of native at {Link.of(name).words}" for name in links)
        + " | target | operators, waits, kB of messages a step | client's CPU a step, ms | issued, loss not read, ms |",
        "|---|---|" + "---|" * (len(links) + 4),
    ]  # fmt: skip
    for program in programs(document):
        native = least_s(document, program, "native")
        ratios = [native / least_s(document, program, name) for name in links]
        cells = ["busy" if busy(document) else f"{ratio:.3f}" for ratio in ratios]
        counts = per_step(document, program, first)
        target = f">= {TARGETS[program]}" if program in TARGETS else ""
        lines.append(
            f"| {program} | {native * 1e3:.2f} | " + " | ".join(cells)
            + f" | {target} | {counts['calls']:.0f}, {counts['waits']:.1f}, {counts['bytes_sent'] / 1e3:.1f} | "
            f"{least_s(document, program, first, 'cpu_s') * 1e3:.2f} | "
            f"{least_s(document, program, 'unread') * 1e3:.2f} |"
        )  # fmt: skip
    lines += ["", *idle_lines(document)]
    lines += ["", "| operator | issued, us | client's CPU, us | until done, us | native, us |", "|---|---|---|---|---|"]
    for name in document["rounds"][0]["calls"][first]["calls"]:
        row = [least_call_us(document, first, name, what) for what in ("issued_us", "cpu_us", "done_us")]
        row.append(least_call_us(document, "native", name, "done_us"))
        lines.append(f"| {name} | " + " | ".join(f"{value:.2f}" for value in row) + " |")
    if busy(document):
        lines += ["", "Ratios, copies, what a delay costs and the model: not measured, for the machine was busy."]
        return "\n".join(lines)
    lines += ["", "| figure | median of the rounds | lowest | highest | target |", "|---|---|---|---|---|"]
    for name, values, target in figures(document, first):
        lines.append(f"| {name} | {median(values):.2f} | {min(values):.2f} | {max(values):.2f} | {target} |")
    lines += ["", "| model | link | predicted, ms | measured, ms | off by |", "|---|---|---|---|---|"]
    for row in model(document):
        off = off_by(row["predicted_s"], row["measured_s"])
        lines.append(
            f"| {row['program']} | {Link.of(row['link']).words} | {row['predicted_s'] * 1e3:.2f} | "
            f"{row['measured_s'] * 1e3:.2f} | {off:+.0%}{'' if abs(off) <= WITHIN else f', not within {WITHIN:.0%}'} |"
        )
    return "\n".join(lines)


def idle_lines(document: dict[str, Any]) -> list[str]:
    """A step, or a token, against a server whose operators do nothing: what kernels otherwise hide."""
    if NOTHING not in document["rounds"][0]["programs"][programs(document)[0]]:
        return ["A server whose operators do nothing: not measured."]
    lines = ["| program, its operators do nothing | a step, ms | client's CPU, ms | target |", "|---|---|---|---|"]
    for program in programs(document):
        wall, cpu = (least_s(document, program, NOTHING, what) * 1e3 for what in ("step_s", "cpu_s"))
        target = f"<= {MOST_IDLE_MS[program]:g}" if program in MOST_IDLE_MS else ""
        lines.append(f"| {program} | {'busy' if busy(document) else f'{wall:.2f}'} | {cpu:.2f} | {target} |")
    return lines


def written(page: str, document: dict[str, Any]) -> str:
    """The page with the tables of this document. ValueError where it has no place for them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN} and {END}")
    return f"{before}{begin}\n{tables(document)}\n{end}{after}"


def figures(document: dict[str, Any], first: str) -> list[tuple[str, list[float], str]]:
    """Waits and copies: name, a value of each round, target."""
    turns = document["rounds"]
    rows = [
        ("synchronise, us", [turn["calls"][first]["synchronize_us"] for turn in turns], ""),
        ("x.sum().item(), us", [turn["calls"][first]["item_us"] for turn in turns], ""),
        ("issuing x.add_(y), us", [turn["calls"][first]["calls"]["add_"]["issued_us"] for turn in turns],
         f"<= {MOST_OPERATOR_US:g}"),
    ]  # fmt: skip
    for way in ("up", "down"):
        rate = [median(turn["copies"][f"{way}_gb_s"]) for turn in turns]
        iperf = [turn[f"iperf_{way}_gb_s"] for turn in turns]
        ratio = [a / b for a, b in zip(rate, iperf, strict=True)]
        rows += [
            (f"64 MiB {way}, GB/s", rate, ""),
            (f"iperf3 {way}, GB/s", iperf, ""),
            (f"{way} of iperf3", ratio, f">= {LEAST_OF_IPERF}"),
        ]
    more = [Link.of(name) for name in document["links"][1:] if "/" not in name]
    for program in programs(document):
        for link in more:
            runs = [turn["programs"][program] for turn in turns]
            trips = [(min(run[link.name]["step_s"]) - min(run[first]["step_s"])) * 1e3 / link.delay_ms for run in runs]
            rows.append((f"{program}: round trips that +{link.delay_ms:g} ms costs", trips, f"<= {MOST_ROUND_TRIPS}"))
    return rows
