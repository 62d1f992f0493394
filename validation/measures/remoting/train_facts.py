"""Facts of a training natively and remotely, in turns (kind remoting-train)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Literal, NamedTuple

from pydantic import Field, field_validator

from validation.measures.remoting.facts import Remoting
from validation.model.base import Model, Param
from validation.model.facts import Count, Name, Positive, once

Way = Literal["native", "remote"]


class CallCosts(Model):
    """Microseconds of the calls of a step, each kind by itself, in the middle of `rounds`: of the synchronisation
    alone; of the others with the synchronisation behind them, which are as many launches and bytes as a step has.
    """

    rounds: Count = Field(ge=1)
    synchronisation_us: Positive
    launches_us: Positive
    to_device_us: Positive
    from_device_us: Positive


class TrainRun(Model):
    """One job of elastic-ai-train. images_per_s: of each step but the first, which pays for what is done once. losses:
    of each step. weights_sha256: of the weights at its end. The counts are of the whole job. wait_us: of a step, in its
    last synchronisation, in the middle; costs: of its calls; None where the program's release did not tell.
    """

    way: Way
    turn: Count
    batch: Count = Field(ge=1)
    host: Name
    images_per_s: tuple[Positive, ...] = Field(min_length=1)
    losses: tuple[Positive, ...] = Field(min_length=2)
    weights_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    launches: Count
    bytes_to_devices: Count
    bytes_from_devices: Count
    synchronisations: Count
    wait_us: Positive | None = None
    costs: CallCosts | None = None


class OtherResult(NamedTuple):
    """A job that computed something else: another loss from `step` on; None: the same losses, and other weights."""

    turn: int
    way: Way
    batch: int
    step: int | None

    def __str__(self) -> str:
        """`turn 2, remote, batch 32: another loss from step 3 on`."""
        what = "the same losses, other weights" if self.step is None else f"another loss from step {self.step} on"
        return f"turn {self.turn}, {self.way}, batch {self.batch}: {what}"


class MadeLink(Model):
    """A link that was made on one machine: 10^9 bit/s (0: no limit), microseconds each way, and what made them."""

    gbps: float = Field(ge=0, allow_inf_nan=False)
    delay_us: float = Field(ge=0, allow_inf_nan=False)
    rate_by: Literal["tbf", "relay", ""]
    delay_by: Literal["netem", "relay", ""]

    @classmethod
    def of(cls, params: Mapping[str, Param]) -> MadeLink | None:
        """The link of a measurement's parameters; None where it has none."""
        if "rate_by" not in params:
            return None
        given = {key: params[key] for key in ("gbps", "delay_us", "rate_by")}
        return cls.model_validate({**given, "delay_by": params.get("delay_by", "")})

    @property
    def bare(self) -> bool:
        """Whether it is the loopback as it is."""
        return not self.rate_by and not self.delay_by

    @property
    def words(self) -> str:
        """`10 Gbit/s, 50 us each way`."""
        if self.bare:
            return "loopback"
        return f"{f'{self.gbps:g} Gbit/s' if self.gbps else 'no limit'}, {self.delay_us:g} us each way"

    @property
    def name(self) -> str:
        """The same for an id: `10gbps-50us`."""
        return "loopback" if self.bare else f"{self.gbps:g}gbps-{self.delay_us:g}us".replace(".", "_")


class RemoteTrainFacts(Remoting):
    """The same training on the same GPU in both ways, with several batch sizes, in the order in which it ran. link:
    what stood between program and GPU where it was made for it; None: the fabric.
    """

    type: Literal["remote-train"] = "remote-train"
    server: str
    device: Name
    uuid: Name
    inputs: Count
    hidden: Count
    classes: Count
    steps: Count = Field(ge=2)
    runs: tuple[TrainRun, ...] = Field(min_length=1)
    link: MadeLink | None = None

    @field_validator("runs")
    @classmethod
    def _runs_once(cls, runs: tuple[TrainRun, ...]) -> tuple[TrainRun, ...]:
        for batch in {run.batch for run in runs}:
            if {run.way for run in runs if run.batch == batch} != {"native", "remote"}:
                raise ValueError(f"batch {batch} was not trained both ways")
        return once(runs, "way", "turn", "batch")

    def batches(self) -> tuple[int, ...]:
        """Each batch size once, the smallest first."""
        return tuple(sorted({run.batch for run in self.runs}))

    def of(self, way: Way, batch: int) -> list[TrainRun]:
        """The jobs of a way with a batch size."""
        return [run for run in self.runs if (run.way, run.batch) == (way, batch)]

    def rates(self, way: Way, batch: int) -> list[float]:
        """Images/s of every step that counts, of all turns."""
        return [rate for run in self.of(way, batch) for rate in run.images_per_s]

    def differing(self) -> list[OtherResult]:
        """The jobs that computed something else than the first native one of their batch size."""
        found = []
        for batch in self.batches():
            first = self.of("native", batch)[0]
            for run in (run for run in self.runs if run.batch == batch):
                pairs = zip_longest(first.losses, run.losses)
                steps = [at for at, (here, there) in enumerate(pairs, 1) if here != there]
                if steps or run.weights_sha256 != first.weights_sha256:
                    found.append(OtherResult(run.turn, run.way, batch, steps[0] if steps else None))
        return found

    def differ(self, batch: int) -> int:
        """How many jobs with that batch size are among these."""
        return sum(other.batch == batch for other in self.differing())
