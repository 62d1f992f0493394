"""What is measured of the pool: remoting, by the toolkit's own commands on a client, and its use over time."""

from __future__ import annotations

from validation.kinds.record import Kind, on_node
from validation.measures.pool import use, utilisation
from validation.measures.remoting import infer, move, neighbours, pooled, shares, train, unchanged, worlds
from validation.measures.remoting import parse as remoting_parse
from validation.measures.remoting.train import MadeLink
from validation.model import Job, Measurement, Topology


def _job(m: Measurement, topology: Topology) -> Job:
    return on_node(m)


def _copies(m: Measurement, topology: Topology) -> Job:
    """A program that hangs is ended before its probe would be, so that the lease is given back."""
    return on_node(m, limit_s=m.timeout_s - 30)


def _training(m: Measurement, topology: Topology) -> Job:
    """On a client and through the pool, or over a link that this machine makes by itself."""
    job = _copies(m, topology)
    if MadeLink.of(m.params) is None:
        return job
    return job.model_copy(update={"probe": job.probe.model_copy(update={"probe": "remoting-link"})})


KINDS = (
    Kind(
        name="remoting-copy",
        title="Copies to remote GPUs",
        measures="Copies between a client and every GPU of the pool, and between all of these GPUs, and verifies the "
        "data.",
        tool="`elastic-ai-copybench` in a lease, on the client",
        more="explanation/measuring/remoting.md",
        job=_copies,
        parse=remoting_parse.copies,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-isolate",
        title="Attempts on the isolation of leases",
        measures="Tries to leave the limits of a lease: more memory, another GPU, a wrong token, another user, another "
        "machine.",
        tool="`toolkit run` and `toolkit lease` on a client, and programs on the server",
        more="explanation/measuring/remoting.md",
        job=_job,
        parse=remoting_parse.isolation,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-fraction",
        title="Memory of fractions of a GPU",
        measures="Fills all parts of one GPU at once and compares the memory of each with its share.",
        tool="`toolkit lease` and `toolkit run` on a client",
        more="explanation/measuring/remoting.md",
        job=_job,
        parse=remoting_parse.fractions,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-train",
        title="Training natively and remotely, in turns",
        measures="Trains the same small network natively and through the engine, in turns, and compares speed, losses "
        "and weights.",
        tool="`elastic-ai-train` in one lease",
        more="explanation/measuring/remoting.md",
        job=_training,
        parse=train.parse,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-shares",
        title="Tenants that train on parts of one GPU",
        measures="Trains several tenants on parts of one GPU at the same time, and one tenant on the whole GPU.",
        tool="`elastic-ai-train` in one lease for each tenant",
        more="explanation/measuring/remoting.md",
        job=_copies,
        parse=shares.parse,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-infer",
        title="Answers natively and remotely, in turns",
        measures="Times single answers of the same network natively and through the engine.",
        tool="`elastic-ai-train` with forward passes only",
        more="explanation/measuring/remoting.md",
        job=_copies,
        parse=infer.parse,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-neighbours",
        title="A tenant beside its neighbours",
        measures="Trains one tenant beside a busy neighbour and beside a neighbour whose kernel fails.",
        tool="`elastic-ai-train` and a program with a planted fault",
        more="explanation/measuring/remoting.md",
        job=_copies,
        parse=neighbours.neighbours,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-noreboot",
        title="Boot ids around changes of parts",
        measures="Compares the boot ids of server and client before and after a GPU is divided in each way.",
        tool="`toolkit lease` on a client, and the kernels' boot ids",
        more="explanation/measuring/remoting.md",
        job=_job,
        parse=neighbours.noreboot,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-layout",
        title="Training in layouts of near and far GPUs",
        measures="Trains on GPUs of the own server, of another server, and of both.",
        tool="`elastic-ai-train`, natively and through the engine",
        more="explanation/measuring/remoting.md",
        job=_copies,
        parse=worlds.layout,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-scale",
        title="Training over more and more GPU servers",
        measures="Trains one job on 1 GPU, on one server, and on more and more servers.",
        tool="`elastic-ai-train` from one client",
        more="explanation/measuring/remoting.md",
        job=_copies,
        parse=worlds.scale,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-unchanged",
        title="A program natively, remotely and on a part",
        measures="Runs one program natively, through the engine and on half a GPU, and checks that neither program nor "
        "machine had to change.",
        tool="`toolkit run`, and facts of the client before and after",
        more="explanation/measuring/remoting.md",
        job=_job,
        parse=unchanged.parse,
        repeat_by="probe",
        by_daemon=True,
    ),
    Kind(
        name="remoting-move",
        title="A GPU taken back and given to others",
        measures="Takes a GPU back from a running training and lets the training go on from its checkpoint.",
        tool="`toolkit run` by two classes of users",
        more="explanation/measuring/remoting.md",
        job=_copies,
        parse=move.parse,
        repeat_by="probe",
        once=True,
        by_daemon=True,
    ),
    Kind(
        name="remoting-pooled",
        title="Two departments' jobs, siloed and pooled",
        measures="Runs the same jobs on the GPUs of each department's own server, and on all GPUs of the pool.",
        tool="`toolkit run` by two departments, and Slurm's record of their leases",
        more="explanation/measuring/remoting.md",
        job=_copies,
        parse=pooled.parse,
        repeat_by="probe",
        once=True,
        by_daemon=True,
    ),
    Kind(
        name="utilisation",
        title="Utilisation of the pool over time",
        measures="Reads how many GPUs are leased and how busy they are, for a while.",
        tool="The readings of Prometheus on the head",
        more="explanation/measuring/remoting.md",
        job=_job,
        parse=utilisation.utilisation,
        repeat_by="probe",
        once=True,
    ),
    Kind(
        name="pool-use",
        title="GPU-hours of the pool",
        measures="Adds up the GPU-hours that jobs held in the last 30 days.",
        tool="Slurm's accounting (sacct)",
        more="explanation/measuring/remoting.md",
        job=_job,
        parse=use.pool_use,
        repeat_by="probe",
        once=True,
    ),
)
