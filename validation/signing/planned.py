"""The plan of a run once more, where judging it leaves that out: rules or release were others when it was planned."""

from __future__ import annotations

from validation.model.load import ConfigError
from validation.plan import suites
from validation.run.read import Run


def planned_again(run: Run) -> list[str]:
    """One line where this release, by the rules that stand in the run, would not plan what it planned.

    That the plan asked for less than it had to cannot be told then from a plan that other rules asked for.
    """
    info = run.info
    options = {key: value for key, value in info.options.items() if key in suites.numbers() or key in suites.words()}
    try:
        wanted = suites.make_plan(info.run, run.topology, run.fabric, run.criteria, info.suites, options)
    except ConfigError as fault:
        return [f"plan.json: toolkit {info.toolkit_version} made it, and nothing of it would be planned here: {fault}"]
    if run.plan == wanted:
        return []
    ids = {m.id for m in run.plan.measurements}
    less = [m.id for m in wanted.measurements if m.id not in ids or run.plan.measurement(m.id) != m]
    more = [m.id for m in run.plan.measurements if m.id not in {m.id for m in wanted.measurements}]
    words = [
        f"{what}: {', '.join(some[:3])}" + (f" and {len(some) - 3} more" if len(some) > 3 else "")
        for what, some in (("not planned, or otherwise", less), ("planned beyond it", more))
        if some
    ]
    what = "; ".join(words) or "its rounds differ"
    return [
        f"plan.json: is not what this release plans by the rules in the run ({what}); "
        "whether it is what had to be planned was not checked"
    ]
