"""What the documents themselves compare, as points of reference. The figures stand where the report has them from."""

from __future__ import annotations

from collections.abc import Iterator

from validation.campaign.model import Published
from validation.campaign.sections import RATE
from validation.fabric import fabric_names, load_fabric
from validation.report.numbers import plural
from validation.report.published import REMOTE_RATIOS, SCALING, WHITEPAPER


def published(criteria: tuple[str, ...]) -> tuple[Published, ...]:
    """The published figures of these criteria, in their order."""
    known = [*_scaling(), *_ratios()]
    return tuple(p for id_ in criteria for p in known if p.criterion == id_)


def _scaling() -> Iterator[Published]:
    for system, rates in SCALING.items():
        for gpus, rate in rates.items():
            case = f"ResNet-50, {plural(gpus, 'GPU')}, {system}"
            yield Published(
                criterion=RATE, case=case, fabric=None, sense="measured", value=rate, unit="images/s", source=WHITEPAPER
            )
            if gpus > 1:
                yield Published(
                    criterion="tn.intra" if gpus <= 4 else "tn.inter",  # 4 GPUs in each node of both systems
                    case=case,
                    fabric=None,
                    sense="measured",
                    value=rate / (gpus * rates[1]),
                    unit="ratio",
                    source=WHITEPAPER,
                )


def _ratios() -> Iterator[Published]:
    for case, value, source in REMOTE_RATIOS:
        yield Published(
            criterion="rm.ratio", case=case, fabric=None, sense="measured", value=value, unit="ratio", source=source
        )
    for name in fabric_names():
        fabric = load_fabric(name)
        if fabric.remote_ratio is not None:
            yield Published(
                criterion="rm.ratio",
                case=fabric.title,
                fabric=name,
                sense="at least",
                value=fabric.remote_ratio.minimum,
                unit="ratio",
                source=fabric.remote_ratio.source + (", provisional" if fabric.remote_ratio.provisional else ""),
            )
