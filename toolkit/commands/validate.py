"""`toolkit validate`: measure a site and sign it off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
from click.core import ParameterSource

from toolkit import acceptance, answers, campaigns, rundir, slurm_job
from toolkit.agreement import find_agreement, up_front
from toolkit.baselines import measured_by, with_baseline
from toolkit.command_class import command
from toolkit.commands.formats import format_option
from toolkit.commands.options import details_option, inventory_option, launcher_options, runs_dir_option
from toolkit.commands.validate_here import asked_here, refuse_elsewhere
from toolkit.commands.validate_outline import outline_here, outlines, print_outlines
from toolkit.commands.validate_several import each
from toolkit.commands.validate_shared import Asked, interrupted, measure, measured, tell
from toolkit.commands.validate_training import Training, training_options
from toolkit.errors import UsageFault, or_nearest
from toolkit.estimates import expected_s, total_s
from toolkit.exits import Exit, epilogue
from toolkit.fabric_choice import OVER_TCP, choose_fabric, trains_over_tcp, without_rdma
from toolkit.inventory import Site, read_site
from toolkit.loudness import progress
from toolkit.progress import duration, make_console
from toolkit.report_branding import find_branding
from toolkit.slurm_job import SlurmJob
from toolkit.verdict_text import print_plan
from toolkit.working import working
from validation.model import Scalar
from validation.model.load import Source
from validation.plan.suites import DEFAULT, SUITES, WITHOUT, make_plan
from validation.plan.suites.burnin import MINUTES, MOST_MINUTES, SOAK_HOURS
from validation.rules.catalogue import load_criteria, read_criteria
from validation.rules.fabric import LoadedFabric, read_fabric
from validation.run.runfiles import RunFiles

FRONT = (
    "--fabric", "--inventory", "--profile", "--suite", "--here", "--resume", "--dry-run", "--format", "--json",
)  # fmt: skip
"""What --help shows; --help-all shows all options."""


@command(epilog=epilogue("validate"), front=FRONT)
@click.option(
    "--fabric",
    "fabric_name",
    metavar="NAME[,NAME...]",
    help="Measure over this network; toolkit fabrics lists them. Several give one run each, then a page of all. "
    " [default: the inventory's]",
)
@inventory_option
@click.option(
    "--here", is_flag=True, help="Measure this machine by itself, as this user: no inventory, no ssh, nothing owed."
)
@click.option("--quick", is_flag=True, help="Take each measurement at its shortest, with --here.")
@click.option("--anyway", is_flag=True, help="Measure GPUs that somebody works on too, with --here.")
@click.option(
    "--minutes",
    type=click.IntRange(1, MOST_MINUTES),
    help=f"Load for so many minutes, with --suite burn-in.  [default: {MINUTES}]",
)
@click.option(
    "--hours",
    type=click.IntRange(1, MOST_MINUTES // 60),
    help="Load for so many hours, with --suite burn-in; 8, 24, 72 and 168 are usual.",
)
@click.option(
    "--soak",
    type=click.Choice(list(SOAK_HOURS)),
    is_flag=False,
    flag_value=next(iter(SOAK_HOURS)),
    help="Run suite burn-in for a night, a day, three or a week, GPUs and fabric at once.  [--soak alone: 8h]",
)
@click.option(
    "--suite",
    "suites",
    multiple=True,
    metavar="NAME",
    help=f"Measure this suite; repeatable. There are: {', '.join(SUITES)}.  [default: the profile's, else "
    f"{', '.join(DEFAULT)}]",
)
@click.option(
    "--profile",
    metavar="NAME|FILE",
    help="Judge by what is owed for this delivery; toolkit profiles lists them.  [default: acceptance_profile "
    "of the inventory, otherwise everything]",
)
@click.option(
    "--waivers",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Lift failures that somebody accepted in this file.  [default: waivers.yml beside the inventory, if there]",
)
@click.option(
    "--branding",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Take customer, logo, language and own text from this report.yml.  [default: report.yml beside the "
    "inventory, if there]",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Add bounds of earlier runs, as toolkit baseline writes them.  [default: baseline.yml beside the "
    "inventory, if there]",
)
@click.option(
    "--without",
    multiple=True,
    metavar="CRITERION",
    help="Leave out this criterion, such as pf.converged, which takes minutes; the verdict names it. Repeatable.",
)
@training_options
@launcher_options
@click.option("--resume", metavar="RUN", help="Continue this run; finished measurements are kept.")
@click.option("--rejudge", metavar="RUN", help="Judge this run again by today's criteria; no node is touched.")
@click.option("--dry-run", is_flag=True, help="Print the plan and its estimate, and touch no node.")
@click.option(
    "--summary", is_flag=True, help="Print rounds and minutes of each kind alone, with --dry-run; for large fleets."
)
@format_option()
@details_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout: the verdict, or the plan.")
@runs_dir_option
@click.pass_context
def validate(
    ctx: click.Context,
    fabric_name: str | None,
    inventory: Path,
    here: bool,
    quick: bool,
    anyway: bool,
    minutes: int | None,
    hours: int | None,
    soak: str | None,
    suites: tuple[str, ...],
    profile: str | None,
    waivers: Path | None,
    branding: Path | None,
    baseline: Path | None,
    without: tuple[str, ...],
    training: Training,
    launcher: str,
    slurm: str,
    slurm_wait: int | None,
    resume: str | None,
    rejudge: str | None,
    dry_run: bool,
    summary: bool,
    formats: tuple[str, ...],
    as_json: bool,
    runs_dir: Path,
) -> None:
    """Measure a site, judge it, and write the report.

    The plan is written before anything runs, every result as soon as it is there, and nothing passes that was not
    measured. Virtual nodes give a REHEARSAL, never an acceptance.

    \b
    toolkit validate --fabric tcp10                 the virtual lab
    toolkit validate --fabric roce40 -i inventories/site --profile network
    toolkit validate --fabric tcp10 --suite transport    only the network
    toolkit validate --fabric tcp10,roce40          two runs, and a page with both
    toolkit validate --fabric tcp10 --dry-run       what, and how long it takes
    toolkit validate --resume RUN                   after an interruption
    toolkit validate --here                         this machine, no inventory
    \f

    \b
    toolkit validate --fabric tcp10 --suite remoting         GPUs over the network; wants the GPU servers to itself
    toolkit validate --suite training --models resnet50,vgg16 --batch 64,128 --gpus 1,8,16
    toolkit validate --suite training --long --data /data/imagenet --checkpoints /data/ckpt
    toolkit validate --fabric roce400 -i fleet --dry-run --summary   a few lines, of thousands of nodes
    toolkit validate --rejudge RUN --waivers waivers.yml     after the customer has decided
    toolkit validate --fabric roce40 -i inventories/site --baseline good.yml
    toolkit validate --fabric tcp10 --json | jq .sign_off
    toolkit validate --fabric tcp10 --format json            no PDF, which takes ten seconds, and no page
    toolkit validate --here --suite burn-in --minutes 60     its GPUs under load for an hour
    toolkit validate --fabric tcp10 --soak 24h               all GPUs of a site and its fabric for a day
    toolkit validate --fabric roce100 --launcher slurm --slurm='-p gpu'
    toolkit validate --here --suite remoting                 its GPU natively, and over links made on itself

    The long test trains by the schedule of the reference architecture and predicts its hours first. A checkpoint is
    written about every ten minutes and after each epoch: the same command, or --resume RUN, goes on from there. Its
    folders have to be volumes of the training container: docs/how-to/training-long.md.
    """
    if here or quick or anyway:
        _refuse_with_here(ctx, here, quick)
    job = slurm_job.chosen(launcher, slurm, slurm_wait)
    if job is not None and (here or rejudge):
        raise UsageFault("--launcher slurm reaches nodes; --here is this machine, and --rejudge touches none")
    chosen = [
        name for name, given in (("--fabric", fabric_name), ("--resume", resume), ("--rejudge", rejudge)) if given
    ]
    if len(chosen) > 1:
        raise UsageFault(f"{' and '.join(chosen)} exclude each other; give one of them")
    if summary and not dry_run:
        raise UsageFault("--summary is of a plan that is only printed; give --dry-run --summary")
    training.refuse_of_old_run(bool(resume or rejudge or here))
    if (resume or rejudge) and (suites or soak or dry_run):
        raise UsageFault(f"{chosen[0]} uses the suites and plan of the run; omit --suite, --soak and --dry-run")
    if without and (resume or rejudge or here or summary):
        raise UsageFault("--without is for a new run of a site, or its --dry-run without --summary")
    if baseline and (resume or rejudge):
        raise UsageFault(
            "--baseline is for a new run; a run that has one keeps it; of an old one: toolkit judge --criteria"
        )
    if branding and (resume or rejudge):
        raise UsageFault("--branding is for a new run; for an old one: toolkit report RUN --branding FILE")
    if sum(given is not None for given in (minutes, hours, soak)) > 1:
        raise UsageFault("--minutes, --hours and --soak exclude each other; give one of them")
    suites = training.suites(suites)
    if soak is not None:
        hours, suites = SOAK_HOURS[soak], tuple(dict.fromkeys((*suites, "burn-in")))
    minutes = 60 * hours if hours is not None else minutes
    if minutes is not None and (resume or rejudge or "burn-in" not in suites):
        raise UsageFault(
            "--minutes and --hours are how long the suite burn-in loads; give --suite burn-in, of a new run"
        )
    if resume and (profile or waivers):
        raise UsageFault("--profile and --waivers are for a new run or for --rejudge")
    if rejudge:
        run_dir = rundir.find(runs_dir, rejudge)
        rundir.refuse_signed(run_dir)
        info, _, _ = rundir.read(run_dir)
        agreement = find_agreement(profile, waivers, load_criteria(), created=info.created)
        with rundir.lock(run_dir):
            acceptance.take_rules(run_dir, agreement)
            _finish(run_dir, formats, as_json)
    elif resume:
        go_on(rundir.find(runs_dir, resume), formats, as_json, job)
    elif here:
        alone = asked_here(_check_suites(suites), quick, anyway, minutes)
        if summary:
            print_outlines([outline_here(alone)], as_json)
            return
        _one(alone, dry_run, formats, as_json, runs_dir)
    else:
        options = {**training.asked(), **({} if minutes is None else {"minutes": minutes})}
        agreed = (profile, waivers)
        if summary:
            print_outlines(outlines(fabric_name, inventory, _check_suites(suites), agreed, options), as_json)
            return
        begin(
            fabric_name, inventory, suites, agreed, branding, options, dry_run, formats, as_json, runs_dir, baseline,
            job, without,
        )  # fmt: skip


def _refuse_with_here(ctx: click.Context, here: bool, quick: bool) -> None:
    """UsageFault for an option that makes no sense of one machine by itself."""
    if not here and not quick:
        raise UsageFault("--anyway goes with --here; on a site's nodes nobody else may work while they are measured")
    if not here:
        raise UsageFault("--quick goes with --here; of a site, profiles have a quick test: toolkit profiles")
    for name in ("fabric_name", "inventory", "profile", "waivers", "branding", "baseline", "resume", "rejudge"):
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            said = next(p.opts[-1] for p in ctx.command.params if p.name == name)
            raise UsageFault(f"--here is this machine by itself, of which nothing is declared; omit {said}")


def _one(asked: Asked, dry_run: bool, formats: tuple[str, ...], as_json: bool, runs_dir: Path) -> None:
    if dry_run:
        _print_plans([asked], as_json)
        return
    run_dir = measured(asked, runs_dir)
    with rundir.lock(run_dir):
        _finish(run_dir, formats, as_json)


def _check_suites(suites: tuple[str, ...]) -> tuple[str, ...]:
    for suite in suites:
        if suite not in SUITES:
            raise UsageFault(f"unknown suite {suite!r}; {or_nearest(suite, SUITES)}")
    return suites


def begin(
    fabric_name: str | None,
    inventory: Path,
    suites: tuple[str, ...],
    agreed: tuple[str | None, Path | None],
    branding: Path | None,
    options: dict[str, Scalar],
    dry_run: bool,
    formats: tuple[str, ...],
    as_json: bool,
    runs_dir: Path,
    baseline: Path | None = None,
    job: SlurmJob | None = None,
    without: tuple[str, ...] = (),
) -> None:
    """A new run of one fabric, or one after the other of several. Ends with the verdict's exit code."""
    named = [read_fabric(name) if name else None for name in campaigns.fabrics_asked(fabric_name)]
    suites = _check_suites(suites)
    site, sources = read_site(inventory), read_criteria()
    several = [
        _asked(one, inventory, site, sources, suites, agreed, branding, options, len(named) > 1, baseline, without)
        for one in named
    ]
    if job is not None:
        slurm_job.refuse({suite for asked in several for suite in asked.plan.suites})
        several = [replace(asked, slurm=job) for asked in several]
    if len(several) == 1:
        _one(several[0], dry_run, formats, as_json, runs_dir)
    elif dry_run:
        _print_plans(several, as_json)
    else:
        each(several, formats, as_json, runs_dir)


def _asked(
    asked: LoadedFabric | None,
    inventory: Path,
    site: Site,
    sources: Sequence[Source],
    suites: tuple[str, ...],
    agreed: tuple[str | None, Path | None],
    branding: Path | None,
    options: dict[str, Scalar],
    named: bool,
    baseline: Path | None,
    without: tuple[str, ...],
) -> Asked:
    """`named`: the fabric is said with what has to be known up front, for it is one of several."""
    topology, record, declared = site
    loaded = choose_fabric(asked, inventory, declared)
    fabric = loaded.fabric
    sources = with_baseline(sources, baseline, inventory, topology, fabric.name)
    criteria = load_criteria(sources)
    agreement = find_agreement(*agreed, criteria, inventory, record.acceptance_profile)
    suites = suites or (agreement.profile.suites if agreement.profile else DEFAULT)
    over_tcp: tuple[str, ...] = ()
    if trains_over_tcp(topology, fabric, suites):
        topology, over_tcp = without_rdma(topology), (OVER_TCP,)
    report_yml = find_branding(branding, inventory, fabric, topology)
    unknown = sorted(set(without) - {c.id for c in criteria})
    if unknown:
        there = or_nearest(unknown[0], [c.id for c in criteria], "toolkit criteria lists them")
        raise UsageFault(f"--without {unknown[0]}: there is no such criterion; {there}")
    if without:
        options = {**options, WITHOUT: ",".join(without)}
    plan = make_plan("plan", topology, fabric, measured_by(criteria), suites, options)
    for line in (*over_tcp, *up_front(agreement, criteria, fabric, plan.suites, topology.virtual)):
        click.echo(f"{fabric.name}: {line}" if named else line, err=True)
    return Asked(inventory, topology, record, loaded, sources, agreement, report_yml, plan, options)


def _print_plans(several: Sequence[Asked], as_json: bool) -> None:
    """The plan of each fabric."""
    if as_json:
        answers.say("plans", {"plans": [asked.plan.model_dump(mode="json") for asked in several]})
        return
    for asked in several:
        plan = asked.plan
        if len(several) > 1:
            click.echo(f"\nfabric {plan.fabric}")
        print_plan(make_console(), plan, duration(total_s(plan, expected_s(plan, asked.topology))))


def go_on(run_dir: Path, formats: tuple[str, ...], as_json: bool, job: SlurmJob | None = None) -> None:
    """Measure what a run lacks. Ends with the verdict's exit code."""
    info, topology, _ = rundir.read(run_dir)
    rundir.refuse_signed(run_dir)
    if job is not None:
        slurm_job.refuse(info.suites)
    refuse_elsewhere(topology, run_dir)
    with rundir.lock(run_dir):
        try:
            if not acceptance.go_on(run_dir, measure, None if job is None else job.make):
                progress(f"{run_dir}: every measurement is finished; judging")
        except acceptance.Interrupted:
            interrupted(run_dir)
        _finish(run_dir, formats, as_json)


def _finish(run_dir: Path, formats: tuple[str, ...], as_json: bool) -> None:
    """Judge, report, print, and end with the verdict's exit code."""
    run = RunFiles(run_dir)
    with working("judging"):
        verdict = acceptance.judge_run(run)
    tell(run, verdict, formats, (lambda told: answers.say("verdict", told)) if as_json else None)
    raise SystemExit(Exit(verdict.exit_code))
