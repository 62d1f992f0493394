"""What a site trained at when it was accepted: `accepted.json` of a later run, by which `tn.rate` judges it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from validation.kinds.record import names
from validation.kinds.trained import config_of
from validation.model import Measurement
from validation.model.base import Model


class AcceptedRate(Model):
    """Images/s, all images over all the time, of one job in an accepted run, and the SHA-256 of that run's verdict."""

    run: str
    verdict_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    measurement: str
    model: str
    batch: str
    precision: str
    framework: str = ""  # what trained, where that was asked for
    ranks: int = Field(ge=1)
    hosts: tuple[str, ...]
    images_per_s: float = Field(gt=0, allow_inf_nan=False)


class AcceptedRates(Model):
    """accepted.json: of each job of the plan that an accepted run of the site has, the first such run's rate."""

    format: Literal["elastic-ai-accepted/1"] = "elastic-ai-accepted/1"
    rates: tuple[AcceptedRate, ...] = ()

    def of(self, job: Measurement) -> AcceptedRate | None:
        """The rate of the same job, on the same nodes."""
        return next((rate for rate in self.rates if key(rate) == job_key(job)), None)


Key = tuple[str, str, str, str, int, tuple[str, ...]]


def key(rate: AcceptedRate) -> Key:
    """What makes two jobs the same: what is trained by what, number of ranks, and the nodes in their order."""
    return rate.model, rate.batch, rate.precision, rate.framework, rate.ranks, rate.hosts


def job_key(job: Measurement) -> Key:
    """`key` of a planned job."""
    model, batch, precision, framework = config_of(job)
    return model, batch, precision, framework, int(str(job.params["ranks"])), names(job, "hosts")
