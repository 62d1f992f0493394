"""What is measured of the pool: remoting, by the toolkit's own commands on a client, and its use over time."""

from __future__ import annotations

from validation.kinds.record import Kind, on_node
from validation.model import Job, Measurement, Topology
from validation.parsers import (
    operations,
    pool_use,
    remoting,
    remoting_infer,
    remoting_move,
    remoting_neighbours,
    remoting_shares,
    remoting_train,
    remoting_unchanged,
    remoting_worlds,
)
from validation.probes.shaped_link import link_of


def _job(m: Measurement, topology: Topology) -> Job:
    return on_node(m)


def _copies(m: Measurement, topology: Topology) -> Job:
    """A program that hangs is ended before its probe would be, so that the lease is given back."""
    return on_node(m, limit_s=m.timeout_s - 30)


def _training(m: Measurement, topology: Topology) -> Job:
    """On a client and through the pool, or over a link that this machine makes by itself."""
    job = _copies(m, topology)
    if link_of(m.params) is None:
        return job
    return job.model_copy(update={"probe": job.probe.model_copy(update={"probe": "remoting-link"})})


KINDS = (
    Kind(
        name="remoting-copy",
        title="Copies to remote GPUs",
        job=_copies,
        parse=remoting.copies,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-isolate",
        title="Attempts on the isolation of leases",
        job=_job,
        parse=remoting.isolation,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-fraction",
        title="Memory of fractions of a GPU",
        job=_job,
        parse=remoting.fractions,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-train",
        title="Training natively and remotely, in turns",
        job=_training,
        parse=remoting_train.parse,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-shares",
        title="Tenants that train on parts of one GPU",
        job=_copies,
        parse=remoting_shares.parse,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-infer",
        title="Answers natively and remotely, in turns",
        job=_copies,
        parse=remoting_infer.parse,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-neighbours",
        title="A tenant beside its neighbours",
        job=_copies,
        parse=remoting_neighbours.neighbours,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-noreboot",
        title="Boot ids around changes of parts",
        job=_job,
        parse=remoting_neighbours.noreboot,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-layout",
        title="Training in layouts of near and far GPUs",
        job=_copies,
        parse=remoting_worlds.layout,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-scale",
        title="Training over more and more GPU servers",
        job=_copies,
        parse=remoting_worlds.scale,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-unchanged",
        title="A program natively, remotely and on a part",
        job=_job,
        parse=remoting_unchanged.parse,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-move",
        title="A GPU taken back and given to others",
        job=_copies,
        parse=remoting_move.parse,
        repeat_by="probe",
        once=True,
        by_daemon=True,
    ),
    Kind(
        name="utilisation",
        title="Utilisation of the pool over time",
        job=_job,
        parse=operations.utilisation,
        repeat_by="probe",
        once=True,
    ),
    Kind(
        name="pool-use",
        title="GPU-hours of the pool",
        job=_job,
        parse=pool_use.pool_use,
        repeat_by="probe",
        once=True,
    ),
)
