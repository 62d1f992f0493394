"""Health of a node's GPUs, as NVML tells it (kind gpu-health). None: the GPU or its driver does not say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator

from validation.kinds.parsing import Parsed, ParseError, as_facts, json_object
from validation.kinds.record import Kind, on_node
from validation.measures.gpu.kernel_log import KernelLog
from validation.model import Job, Measurement, Sample, Scalar, Topology
from validation.model.base import Model
from validation.model.facts import Count, Facts, Name, once
from validation.probes import ProbeDoc

Watts = Annotated[float, Field(ge=0, le=100_000, allow_inf_nan=False)]


class GpuState(Model):
    """What a GPU was doing at one moment. Clocks in MHz, temperature in degrees Celsius, utilisation in percent.

    throttle_reasons: names as in NVIDIA's nvml.h, as `sw_power_cap`.
    """

    sm_mhz: Count | None
    sm_max_mhz: Count | None
    memory_mhz: Count | None
    memory_max_mhz: Count | None
    power_w: Watts | None
    power_limit_w: Watts | None
    temperature_c: Count | None
    utilisation_percent: Count | None
    memory_utilisation_percent: Count | None
    throttle_reasons: tuple[Name, ...] | None


class GpuReading(Model):
    """A GPU at one moment. ECC errors are counted since the driver was loaded, `_ever` in the GPU's life.

    Pages are retired up to Volta and Turing, rows remapped from Ampere on; `_pending`: at the next reset. Repairs of a
    memory channel or a TPC are told by drivers from 580 on, memory that cannot be repaired by those from 590 on.
    set_mhz: the clock that applications were given, default_mhz the one that they have otherwise.
    """

    index: Count
    uuid: str
    name: str
    address: str
    serial: str
    vbios: str
    persistence: bool | None
    compute_mode: Name | None
    mig: bool | None
    mig_pending: bool | None
    ecc: bool | None
    ecc_pending: bool | None
    ecc_uncorrected: Count | None
    ecc_corrected: Count | None
    ecc_uncorrected_ever: Count | None
    ecc_corrected_ever: Count | None
    pages_retired: Count | None
    pages_pending: bool | None
    rows_corrected: Count | None
    rows_uncorrected: Count | None
    rows_pending: bool | None
    rows_failed: bool | None
    channel_repair_pending: bool | None = None
    tpc_repair_pending: bool | None = None
    memory_unrepairable: bool | None = None
    pcie_generation: Count | None
    pcie_max_generation: Count | None
    pcie_width: Count | None
    pcie_max_width: Count | None
    pcie_replays: Count | None
    slowdown_c: Count | None
    set_mhz: Count | None
    default_mhz: Count | None
    state: GpuState

    @property
    def words(self) -> str:
        """`GPU 3 (0000:1e:00.0)`."""
        return f"GPU {self.index} ({self.address or self.uuid or 'of no address'})"


class GpuHealthFacts(Facts):
    """The GPUs of a node. lost: those that do not answer, in words. unread: why NVML says nothing at all, "" where it
    does. emulated: host memory stands in for them. kernel_log: what the kernel said of them."""

    type: Literal["gpu-health"] = "gpu-health"
    driver: str
    emulated: bool
    gpus: tuple[GpuReading, ...]
    lost: tuple[Name, ...]
    unread: str
    kernel_log: KernelLog

    @field_validator("gpus")
    @classmethod
    def _gpus_once(cls, gpus: tuple[GpuReading, ...]) -> tuple[GpuReading, ...]:
        return once(gpus, "index")

    def same(self, other: GpuReading) -> GpuReading | None:
        """That GPU in this reading: by its UUID, where it has none by its number; None where it is not there."""
        if other.uuid:
            return next((gpu for gpu in self.gpus if gpu.uuid == other.uuid), None)
        return next((gpu for gpu in self.gpus if gpu.index == other.index), None)


# --- Health of a node's GPUs -----------------------------------------------------------------------------------------


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """How many GPUs answered, and the facts, which stand in the report too."""
    facts = as_facts(GpuHealthFacts, doc["facts"], "gpu-health")
    if json_object(doc["stdout"], "gpu-health: the report") != doc["facts"]:
        raise ParseError("gpu-health: the facts are not those of the report")
    return [Sample(metric="gpus_seen", value=len(facts.gpus), unit="count")], facts


def _job(m: Measurement, topology: Topology) -> Job:
    return on_node(m)


KINDS = (
    Kind(
        name="gpu-health",
        title="Health of a node's GPUs",
        measures="Reads state, errors and settings of each GPU, and the driver's messages in the kernel log.",
        tool="NVML; /dev/kmsg or the journal",
        more="explanation/measuring/nodes.md",
        job=_job,
        parse=parse,
        repeat_by="probe",
        once=True,
    ),
)
