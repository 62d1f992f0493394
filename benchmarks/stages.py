"""Where the last deployment's time went: by stage, by role, and the longest tasks, from what `toolkit deploy` keeps.

    benchmarks/stages.py -i INVENTORY [--tasks 15]

Wall-clock seconds of a task for all its nodes together, as the run saw them; nothing is run. Prints tables in Markdown.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from toolkit.deploy.site_state import LastRun, SiteState


def durations(run: LastRun) -> list[tuple[str, str, str, float]]:
    """Stage, role, task and seconds of each step."""
    ends = [step.began_s for step in run.steps[1:]] + [run.total_s]
    names = [[*step.name.split("|", 2), "", ""][:3] for step in run.steps]
    return [
        (stage, role, task, end - step.began_s)
        for (stage, role, task), step, end in zip(names, run.steps, ends, strict=True)
    ]


def table(title: str, rows: list[tuple[str, float]], total: float) -> str:
    """A table of seconds and shares."""
    lines = [f"| {title} | s | share |", "|---|---|---|"]
    lines += [f"| {name} | {seconds:.1f} | {100 * seconds / total:.0f} % |" for name, seconds in rows]
    return "\n".join(lines)


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-i", "--inventory", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=15, help="how many of the longest tasks")
    options = parser.parse_args()
    run = SiteState(options.inventory.resolve()).read_last(check=False)
    if run is None:
        print(f"stages.py: nothing is kept of {options.inventory}; run toolkit deploy first", file=sys.stderr)
        return 1
    stages: Counter[str] = Counter()
    roles: Counter[str] = Counter()
    start = run.steps[0].began_s if run.steps else run.total_s
    stages["(starting Ansible)"] = start
    steps = durations(run)
    for stage, role, _, seconds in steps:
        stages[stage] += seconds
        roles[role or "(facts)"] += seconds
    longest = sorted(steps, key=lambda step: -step[3])[: options.tasks]
    print(table("stage", list(stages.items()), run.total_s), "\n")
    print(table("role", roles.most_common(), run.total_s), "\n")
    print(table("task", [(f"{s}: {r}: {t}" if r else f"{s}: {t}", d) for s, r, t, d in longest], run.total_s))
    print(f"\ntotal {run.total_s:.0f} s, {len(steps)} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
