"""What a command is asked is one value: every option has its place in it, and it is checked outside of click."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest

from toolkit import asbuilt
from toolkit.commands.lab import lab
from toolkit.commands.lab_drill import drill
from toolkit.commands.narrow import narrow
from toolkit.commands.node import node
from toolkit.commands.report import report
from toolkit.commands.trend import trend
from toolkit.errors import UsageFault
from toolkit.inventory import read_site
from toolkit.lab import drillplan
from toolkit.lab.drill import Drilled
from toolkit.lab.drill_request import CLEAN, DrillRequest
from toolkit.lab.faults import FAULTS
from toolkit.lab.spec import make_spec
from toolkit.lab.wanted import LabRequest
from toolkit.narrowing import NarrowRequest
from toolkit.node.join import Newcomer
from toolkit.node_groups import groups_of
from toolkit.report_request import ALL_JOBS, FORMATS, CampaignOf, ReportOf, ReportRequest, TraceOf
from toolkit.trends import OVERDUE_HOURS, Metrics, TrendRequest

COMMANDS = Path(drillplan.__file__).parents[1] / "commands"
FILE, RUNS = Path("some.yml"), Path("runs")


@pytest.mark.parametrize(
    ("command", "request_type", "besides"),
    [
        (drill, DrillRequest, {"as_json"}),
        (narrow, NarrowRequest, {"as_json"}),
        (report, ReportRequest, {"as_json"}),
        (trend, TrendRequest, {"as_json"}),
        (lab.commands["up"], LabRequest, {"as_json", "inventory", "joining", "torch_python", "tensorflow_python"}),
        (lab.commands["needs"], LabRequest, {"as_json"}),
        (node.commands["add"], Newcomer, {"as_json"}),
        (node.commands["replace"], Newcomer, {"as_json", "grace_s"}),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_each_option_has_its_place_in_the_request(
    command: click.Command, request_type: type[Any], besides: set[str]
) -> None:
    given = {option.name for option in command.params if option.expose_value}
    assert given == {field.name for field in fields(request_type)} | besides


def test_commands_have_few_parameters_and_short_functions() -> None:
    """Options go into a request as they are; what is done with it stands outside of the command."""
    found = []
    for path in sorted(COMMANDS.glob("*.py")):
        for one in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
                count = len([*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs])
                lines = (one.end_lineno or one.lineno) - one.lineno + 1
                if count > 6 or lines > 60:
                    found.append(f"{path.name}:{one.lineno}: {one.name}: {count} parameters, {lines} lines")
    assert not found


def test_nothing_is_built_on_a_command() -> None:
    """Only the two command lines, the site's and that of machines of a pool, import commands."""
    found = []
    for path in sorted(COMMANDS.parent.rglob("*.py")):
        if path.parent == COMMANDS or path.name in ("cli.py", "pool_cli.py"):
            continue
        for one in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = [one.module or ""] if isinstance(one, ast.ImportFrom) else []
            named += [alias.name for alias in one.names] if isinstance(one, ast.Import) else []
            found += [f"{path.name}: {name}" for name in named if name.startswith("toolkit.commands")]
    assert not found


# --- a report -----------------------------------------------------------------------------------------------------


def reporting(**given: Any) -> ReportRequest:
    plain: dict[str, Any] = {"names": (), "campaign": False, "formats": FORMATS, "out": None, "branding": None}
    return ReportRequest(**{**plain, "trace": None, "runs_dir": RUNS, **given})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        *(
            ({"trace": "job", **more}, "--trace JOB is of one run, and takes no --campaign, --branding or --format")
            for more in ({"campaign": True}, {"branding": FILE}, {"formats": ("html",)}, {"names": ("a", "b")})
        ),
        ({"out": Path(__file__)}, f"--out {__file__}: is a file; name a folder"),
        ({"campaign": True, "branding": FILE}, "--branding is of one run, not of a campaign"),
        ({"campaign": True, "formats": ("html", "junit")}, "junit: is of one run; a campaign is html, pdf, json"),
        ({"names": ("a", "b")}, "2 runs are named; one page of them all: toolkit report --campaign RUN RUN ..."),
    ],
)
def test_options_of_a_report_that_do_not_go_together(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageFault) as refused:
        reporting(**given).checked()
    assert str(refused.value) == words


def test_a_report_a_campaign_and_a_trace() -> None:
    assert reporting(names=("a",), branding=FILE).checked() == ReportOf("a", FORMATS, None, FILE, RUNS)
    assert reporting(out=Path("new")).checked() == ReportOf(None, FORMATS, Path("new"), None, RUNS)
    found = reporting(names=("a", "b"), campaign=True).checked()
    assert found == CampaignOf(("a", "b"), FORMATS, None, RUNS)  # all of which a campaign has
    assert reporting(trace=ALL_JOBS, out=Path(__file__)).checked() == TraceOf(None, "", Path(__file__), RUNS)


# --- a trend ------------------------------------------------------------------------------------------------------


def test_of_a_trend_too() -> None:
    plain = {"names": (), "formats": FORMATS, "out": None, "metrics": None, "overdue_hours": None, "runs_dir": RUNS}

    def checked(**given: Any) -> Metrics | None:
        return TrendRequest(**{**plain, **given}).checked()

    assert checked() is None
    assert checked(metrics=FILE) == Metrics(FILE, OVERDUE_HOURS * 3600.0)
    assert checked(metrics=FILE, overdue_hours=2) == Metrics(FILE, 7200.0)
    with pytest.raises(UsageFault, match="prom: is of one run; a trend is html, pdf, json"):
        checked(formats=("prom",))
    with pytest.raises(UsageFault, match="--overdue-hours is for the alert in --metrics FILE; give that too"):
        checked(overdue_hours=2)


# --- a group test -------------------------------------------------------------------------------------------------


def narrowing(**given: Any) -> NarrowRequest:
    plain: dict[str, Any] = {"nodes": "n1,n2,n3", "inventory": None, "group": "gpu_servers", "limit_s": 1}
    return NarrowRequest(**{**plain, "at_once": 1, "alone": 2, "out": RUNS, "command": ("x", "{nodes}"), **given})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"command": ("x", "nodes")},
            "COMMAND has neither {nodes} nor {hostfile}: each job would run on the same nodes",
        ),
        ({"inventory": FILE}, "--nodes names them; omit -i"),
        ({"nodes": None}, "which nodes? --nodes NAME,... or -i INVENTORY"),
        ({"nodes": "n1,n2,n1"}, "a node is named twice"),
        ({"nodes": "n1"}, "1 node: there is nothing to narrow"),
        ({"alone": 4}, "3 nodes: there is nothing to narrow"),
    ],
)
def test_a_group_test_that_cannot_be(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageFault) as refused:
        narrowing(**given).checked()
    assert str(refused.value) == words


def test_nodes_of_a_group_test_are_named_or_those_of_any_group(tmp_path: Path) -> None:
    """A rack is a group as others are, and not only the three that a site is made of."""
    hosts = "\n".join(
        f"        {name}: {{fabric_ports: [{{interface: fab0, address: 10.0.0.{at}/24}}]}}" for at, name in
        enumerate(("gpu1", "gpu2", "gpu3"), 1)
    )  # fmt: skip
    where = tmp_path / "hosts.yml"
    rack = "    rack1:\n      hosts: {gpu1: {}, gpu3: {}}\n"
    where.write_text(f"all:\n  children:\n    gpu_servers:\n      hosts:\n{hosts}\n{rack}")
    assert narrowing(nodes="n1,,n2,").checked() == ("n1", "n2")
    assert narrowing(nodes=None, inventory=where).checked() == ("gpu1", "gpu2", "gpu3")
    assert narrowing(nodes=None, inventory=where, group="rack1").checked() == ("gpu1", "gpu3")
    with pytest.raises(UsageFault, match=r"hosts\.yml: no node in group rack2; .*rack1"):
        narrowing(nodes=None, inventory=where, group="rack2").checked()
    site = read_site(where)
    assert [n.name for n in asbuilt.chosen(site.topology, "rack1", groups_of(site))] == ["gpu1", "gpu3"]


# --- a drill ------------------------------------------------------------------------------------------------------


def drilling(**given: Any) -> DrillRequest:
    plain: dict[str, Any] = {"name": "lab", "inventory": None, "kinds": (), "every": False, "without": ()}
    plain |= {"clean": None, "alone": False, "narrow": False, "fabric": "tcp10", "suites": (), "anew": False}
    return DrillRequest(**{**plain, "out": Path("no-such-folder"), **given})


def test_which_faults_a_drill_plants() -> None:
    assert drilling().asked == drillplan.SHORT
    assert drilling(clean=0).asked == drillplan.SHORT
    assert drilling(clean=3).asked == ()
    assert drilling(clean=3, kinds=("ecc",)).asked == ("ecc",)
    assert drilling(every=True, clean=1).asked == tuple(FAULTS)
    with pytest.raises(UsageFault, match="--all is every fault; omit --fault"):
        drilling(every=True, kinds=("ecc",)).checked()


def test_what_a_drill_leaves_out_and_what_it_did_already(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path))
    spec = make_spec("x", 3, 4, 1)
    asked = drilling(kinds=("port-down", "ecc", "slow-link"), without=("ecc",), out=tmp_path, clean=2)
    assert asked.left_out(spec) == {"port-down": "needs a virtual machine", "ecc": "left out by --except"}
    assert [(t.name, [kind for kind, _ in t.planted]) for t in asked.turns(spec, ())] == [
        ("clean-1", []),
        ("clean-2", []),
        ("turn-1", ["slow-link"]),
    ]
    (tmp_path / "turn-1").mkdir()
    done = Drilled("", "", False, False, False, (), "", 1.0, turn="clean-1")
    again = asked.turns(spec, [done])
    assert [t.name for t in again] == ["clean-2", "turn-2"]
    assert again[0].suites == CLEAN
    command = asked.command(again[1])
    assert command[command.index("--runs-dir") + 1] == str(tmp_path / "turn-2")
