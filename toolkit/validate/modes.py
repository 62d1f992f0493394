"""A function for each thing that `toolkit validate` can be asked for; each ends with the verdict's exit code."""

from __future__ import annotations

from dataclasses import replace

from toolkit import acceptance, campaigns, rundir, slurm_job
from toolkit.agreement import find_agreement
from toolkit.inventory import read_site
from toolkit.joined.asked import refuse_lacking
from toolkit.loudness import progress
from toolkit.validate.finish import finish
from toolkit.validate.here import plan_here, refuse_elsewhere
from toolkit.validate.measuring import interrupted, measure, measured
from toolkit.validate.outline import outline_here, outlines, print_outlines
from toolkit.validate.planned import PlannedRun, plan_run, print_plans
from toolkit.validate.request import NewRuns, Rejudging, Resuming, ThisMachine, ValidateRequest, known_suites
from toolkit.validate.several import measure_each
from toolkit.validate.units import of_unit
from validation.rules.fabric import read_fabric
from validation.run.catalogue import load_criteria, read_criteria


def carry_out(request: ValidateRequest) -> None:
    """Do what was asked. UsageFault, ConfigError, ... where it cannot be done."""
    asked = request.checked()
    if isinstance(asked, Rejudging):
        rejudge(asked)
    elif isinstance(asked, Resuming):
        resume(asked)
    elif isinstance(asked, ThisMachine):
        validate_here(asked)
    else:
        validate_site(asked)


def rejudge(asked: Rejudging) -> None:
    """Judge a run again by today's rules; no node is touched."""
    run_dir = rundir.find(asked.runs_dir, asked.run)
    rundir.refuse_signed(run_dir)
    info, _, _ = rundir.asked(run_dir)
    agreement = find_agreement(asked.terms.profile, asked.terms.waivers, load_criteria(), created=info.created)
    with rundir.lock(run_dir):
        acceptance.take_rules(run_dir, agreement)
        finish(run_dir, asked.output)


def resume(asked: Resuming) -> None:
    """Measure what a run lacks."""
    run_dir = rundir.find(asked.runs_dir, asked.run)
    info, topology, _ = rundir.asked(run_dir)
    rundir.refuse_signed(run_dir)
    if asked.job is not None:
        slurm_job.refuse(info.suites)
    refuse_elsewhere(topology, run_dir)
    with rundir.lock(run_dir):
        try:
            if not acceptance.go_on(run_dir, measure, None if asked.job is None else asked.job.make):
                progress(f"{run_dir}: every measurement is finished; judging")
        except acceptance.Interrupted:
            interrupted(run_dir)
        finish(run_dir, asked.output)


def validate_here(asked: ThisMachine) -> None:
    """A new run of this machine by itself, or its plan."""
    planned = plan_here(asked)
    if asked.summary:
        print_outlines([outline_here(planned)], asked.output.as_json)
    elif asked.dry_run:
        print_plans([planned], asked.output.as_json)
    else:
        _measure_one(planned, asked)


def validate_site(asked: NewRuns) -> None:
    """A new run of one fabric, or one after the other of several, or their plans."""
    named = [read_fabric(name) if name else None for name in campaigns.fabrics_asked(asked.fabric)]
    known_suites(asked.suites)
    if asked.summary:
        print_outlines(outlines(asked, named), asked.output.as_json)
        return
    site, packaged = of_unit(read_site(asked.inventory), asked.unit), read_criteria()
    planned = [plan_run(asked, fabric, site, packaged, len(named)) for fabric in named]
    if asked.job is not None:
        slurm_job.refuse({suite for run in planned for suite in run.plan.suites})
        planned = [replace(run, slurm=asked.job) for run in planned]
    if not asked.dry_run and any("remoting" in run.plan.suites for run in planned):
        refuse_lacking(asked.inventory, site.topology)
    if asked.dry_run:
        print_plans(planned, asked.output.as_json)
    elif len(planned) == 1:
        _measure_one(planned[0], asked)
    else:
        measure_each(planned, asked.runs_dir, asked.output)


def _measure_one(planned: PlannedRun, asked: ThisMachine | NewRuns) -> None:
    run_dir = measured(planned, asked.runs_dir)
    with rundir.lock(run_dir):
        finish(run_dir, asked.output)
