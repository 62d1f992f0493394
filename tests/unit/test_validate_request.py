"""What is asked of `toolkit validate` is checked as one value: each refusal, and what each kind of request comes to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolkit.commands.training_options import training_request
from toolkit.commands.validate import request_of, validate
from toolkit.errors import UsageFault
from toolkit.slurm_job import SlurmJob
from toolkit.validate.request import (
    NewRuns,
    Output,
    Rejudging,
    Resuming,
    Terms,
    ThisMachine,
    ValidateRequest,
)
from toolkit.validate.training import LONG_SUITES, OPTIONS, TrainingRequest

LAB, RUNS, OUTPUT = Path("inventories/lab"), Path("runs"), Output(("html",))
LONG = TrainingRequest(True, {"data": "tiny"})
MODELS = TrainingRequest(False, {"models": "resnet50"})
FILE = Path("some.yml")


def request(**given: Any) -> ValidateRequest:
    plain = ValidateRequest(LAB, RUNS, OUTPUT, TrainingRequest(False, {}))
    return replace(plain, **given)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"quick": True}, "--quick goes with --here; of a site, profiles have a quick test: toolkit profiles"),
    (
        {"anyway": True},
        "--anyway goes with --here; on a site's nodes nobody else may work while they are measured",
    ),
    (
        {"anyway": True, "quick": True},
        "--quick goes with --here; of a site, profiles have a quick test: toolkit profiles",
    ),
    *(
        ({"here": True, key: value}, "--here is this machine by itself, of which nothing is declared; omit --" + name)
        for key, value, name in [
            ("fabric", "tcp10", "fabric"),
            ("inventory_given", True, "inventory"),
            ("profile", "network", "profile"),
            ("waivers", FILE, "waivers"),
            ("branding", FILE, "branding"),
            ("baseline", FILE, "baseline"),
            ("resume", "r", "resume"),
            ("rejudge", "r", "rejudge"),
        ]
    ),
    ({"slurm": "-p gpu"}, "--slurm and --slurm-wait go with --launcher slurm"),
    ({"slurm_wait": 3}, "--slurm and --slurm-wait go with --launcher slurm"),
    ({"launcher": "slurm", "slurm": "'"}, '--slurm "\'": No closing quotation'),
    (
        {"launcher": "slurm", "slurm": "gpu"},
        "--slurm takes options of salloc, as --slurm='-p gpu -A project'; 'gpu' is none",
    ),
    *(
        (
            {"launcher": "slurm", **old},
            "--launcher slurm reaches nodes; --here is this machine, and --rejudge touches none",
        )
        for old in ({"here": True}, {"rejudge": "r"})
    ),
    ({"fabric": "tcp10", "resume": "r"}, "--fabric and --resume exclude each other; give one of them"),
    ({"fabric": "tcp10", "rejudge": "r"}, "--fabric and --rejudge exclude each other; give one of them"),
    ({"resume": "r", "rejudge": "r"}, "--resume and --rejudge exclude each other; give one of them"),
    (
        {"fabric": "tcp10", "resume": "r", "rejudge": "r"},
        "--fabric and --resume and --rejudge exclude each other; give one of them",
    ),
    ({"summary": True}, "--summary is of a plan that is only printed; give --dry-run --summary"),
    *(
        (
            {"training": LONG, **old},
            "--long, --data: of a new run of suite training over a fabric; --resume goes on with what the run was "
            "asked for",
        )
        for old in ({"resume": "r"}, {"rejudge": "r"}, {"here": True})
    ),
    *(
        (
            {**old, **more},
            f"--{next(iter(old))} uses the suites and plan of the run; omit --suite, --soak and --dry-run",
        )
        for old in ({"resume": "r"}, {"rejudge": "r"})
        for more in ({"suites": ("transport",)}, {"soak": "8h"}, {"dry_run": True}, {"dry_run": True, "summary": True})
    ),
    *(
        (
            {"without": ("pf.converged",), **other},
            "--without is for a new run of a site, or its --dry-run without --summary",
        )
        for other in ({"resume": "r"}, {"rejudge": "r"}, {"here": True}, {"dry_run": True, "summary": True})
    ),
    *(
        (
            {"baseline": FILE, **old},
            "--baseline is for a new run; a run that has one keeps it; of an old one: toolkit judge --criteria",
        )
        for old in ({"resume": "r"}, {"rejudge": "r"})
    ),
    *(
        (
            {"branding": FILE, **old},
            "--branding is for a new run; for an old one: toolkit report RUN --branding FILE",
        )
        for old in ({"resume": "r"}, {"rejudge": "r"})
    ),
    *(
        (
            {"suites": ("burn-in",), **two},
            "--minutes, --hours and --soak exclude each other; give one of them",
        )
        for two in (
            {"minutes": 1, "hours": 1},
            {"hours": 1, "soak": "8h"},
            {"minutes": 1, "soak": "8h"},
            {"minutes": 1, "soak": "8h", "training": TrainingRequest(False, {"epochs": 4})},  # the first refusal counts
        )
    ),
    *(
        (
            {"training": TrainingRequest(False, {key: 1})},
            f"{OPTIONS[key]} is of the long test; give --data DIR, or --long with it",
        )
        for key in ("epochs", "checkpoint_steps", "limit_hours")
    ),
    (
        {"training": LONG, "suites": ("preflight", "transport")},
        "--long runs the long test by itself; omit --suite transport, or give --data alone",
    ),
    ({"training": TrainingRequest(True, {})}, "--long: --data DIR is missing: the folder with the pictures, or tiny"),
    *(
        (
            given,
            "--minutes and --hours are how long the suite burn-in loads; give --suite burn-in, of a new run",
        )
        for given in (
            {"minutes": 5},
            {"hours": 1, "suites": ("transport",)},
            {"here": True, "minutes": 5},
            {"resume": "r", "minutes": 5},
            {"rejudge": "r", "hours": 5},
        )
    ),
    ({"resume": "r", "profile": "network"}, "--profile and --waivers are for a new run or for --rejudge"),
    ({"resume": "r", "waivers": FILE}, "--profile and --waivers are for a new run or for --rejudge"),
    ({"here": True, "suites": ("trnsport",)}, "unknown suite 'trnsport'; did you mean transport?"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED, ids=[f"{n}" for n in range(len(REFUSED))])
def test_options_that_do_not_go_together_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageFault) as refused:
        request(**given).checked()
    assert str(refused.value) == words


def test_a_new_run_of_a_site() -> None:
    given = request(
        fabric="tcp10,roce40", suites=("transport",), profile="network", waivers=FILE, branding=FILE, baseline=FILE,
        without=("pf.converged",), training=MODELS, launcher="slurm", slurm="-p gpu", dry_run=True,
    )  # fmt: skip
    assert given.checked() == NewRuns(
        fabric="tcp10,roce40", inventory=LAB, suites=("transport",), terms=Terms("network", FILE), branding=FILE,
        baseline=FILE, without=("pf.converged",), options={"models": "resnet50"}, job=SlurmJob(10, ("-p", "gpu")),
        dry_run=True, summary=False, runs_dir=RUNS, output=OUTPUT,
    )  # fmt: skip


def test_an_unknown_suite_of_a_site_is_left_to_what_reads_its_fabric_first() -> None:
    found = request(suites=("trnsport",)).checked()
    assert isinstance(found, NewRuns)
    assert found.suites == ("trnsport",)


@pytest.mark.parametrize(
    ("given", "suites", "minutes"),
    [
        ({"suites": ("burn-in",), "minutes": 5}, ("burn-in",), 5),
        ({"suites": ("burn-in",), "hours": 24}, ("burn-in",), 1440),
        ({"soak": "8h"}, ("burn-in",), 480),
        ({"soak": "24h", "suites": ("preflight", "burn-in")}, ("preflight", "burn-in"), 1440),
        ({"suites": ("preflight",)}, ("preflight",), None),
    ],
)
def test_how_long_burn_in_loads(given: dict[str, Any], suites: tuple[str, ...], minutes: int | None) -> None:
    site, machine = request(**given).checked(), request(here=True, **given).checked()
    assert isinstance(site, NewRuns)
    assert isinstance(machine, ThisMachine)
    assert (site.suites, site.options) == (suites, {} if minutes is None else {"minutes": minutes})
    assert (machine.suites, machine.minutes) == (suites, minutes)


def test_the_long_test_by_itself() -> None:
    found = request(training=LONG, suites=("training",)).checked()
    assert isinstance(found, NewRuns)
    assert (found.suites, found.options) == (LONG_SUITES, {"data": "tiny", "alone": 1})


def test_this_machine_a_run_that_goes_on_and_one_that_is_judged_again() -> None:
    assert request(here=True, quick=True, anyway=True, dry_run=True, summary=True).checked() == ThisMachine(
        (), quick=True, anyway=True, minutes=None, dry_run=True, summary=True, runs_dir=RUNS, output=OUTPUT
    )
    found = request(resume="r", launcher="slurm", slurm_wait=3, inventory_given=True).checked()
    assert found == Resuming("r", SlurmJob(3), RUNS, OUTPUT)
    assert request(rejudge="r", waivers=FILE).checked() == Rejudging("r", Terms(None, FILE), RUNS, OUTPUT)


def test_each_option_of_the_command_has_its_place_in_the_request() -> None:
    given = {str(option.name): object() for option in validate.params if option.expose_value}
    made = request_of(given, inventory_given=True)
    values = (*vars(made).values(), *vars(made.output).values(), made.training.long, *made.training.options.values())
    held = {id(value) for value in values}
    assert not [name for name, value in given.items() if id(value) not in held]


def test_of_suite_training_what_was_not_given_is_left_to_the_plan() -> None:
    given: dict[str, Any] = {**dict.fromkeys(OPTIONS), "long_test": False, "data": "tiny"}
    assert training_request(given) == TrainingRequest(False, {"data": "tiny"})
