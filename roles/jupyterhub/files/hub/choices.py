"""What a user chooses for notebooks, and the form for it. It needs nothing of JupyterHub's.

Whatever comes from a browser or over REST is one of what administrators offer, or refused: it comes into a job's
request.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

WHOLE = "1"
NAMES = {"gpus": "GPUs", "part": "part of each", "gpu_class": "class", "hours": "hours", "environment": "environment"}


class NotOffered(ValueError):
    """A choice that nobody offers, in words for its user."""


@dataclass(frozen=True)
class Offer:
    """What administrators offer. parts: of a GPU, beside whole ones. gpu_classes: by Slurm's partitions."""

    parts: tuple[str, ...]
    gpu_classes: tuple[str, ...]
    environments: tuple[str, ...]
    most_gpus: int
    most_hours: int

    @classmethod
    def read(cls, path: Path) -> Offer:
        """Of the file that the role wrote."""
        found = json.loads(path.read_text())
        return cls(
            **{
                one.name: tuple(found[one.name]) if isinstance(found[one.name], list) else found[one.name]
                for one in fields(cls)
            }
        )


@dataclass(frozen=True)
class Choice:
    """What a user chose. gpu_class: "" for any."""

    gpus: int
    part: str
    gpu_class: str
    hours: int
    environment: str

    def options(self) -> dict[str, object]:
        """As JupyterHub keeps it."""
        return asdict(self)


def _number(name: str, value: object, most: int) -> int:
    text = str(value)[:20]
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,6}", text) or not 1 <= int(text) <= most:
        raise NotOffered(f"{NAMES[name]}: a whole number from 1 to {most}")
    return int(text)


def _one_of(name: str, value: object, offered: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in offered:
        raise NotOffered(f"{NAMES[name]}: one of {', '.join(one or 'any' for one in offered)}")
    return value


def checked(offer: Offer, options: Mapping[str, object]) -> Choice:
    """The choice that these options are; what is missing is the first that is offered. NotOffered for all else."""
    unknown = sorted(set(options) - set(NAMES))
    if unknown:
        raise NotOffered(f"there is no such choice; these are: {', '.join(NAMES)}")
    return Choice(
        gpus=_number("gpus", options.get("gpus", 1), offer.most_gpus),
        part=_one_of("part", options.get("part", WHOLE), (WHOLE, *offer.parts)),
        gpu_class=_one_of("gpu_class", options.get("gpu_class", ""), ("", *offer.gpu_classes)),
        hours=_number("hours", options.get("hours", min(4, offer.most_hours)), offer.most_hours),
        environment=_one_of("environment", options.get("environment", offer.environments[0]), offer.environments),
    )


def of_form(form: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """The first value of each field of a form; fields that are none of ours are left out."""
    return {name: form[name][0] for name in NAMES if form.get(name)}


def _select(name: str, label: str, offered: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f'<option value="{html.escape(value)}">{html.escape(words)}</option>' for value, words in offered)
    return (
        f'<div class="mb-3"><label class="form-label" for="{name}">{label}</label>'
        f'<select class="form-select form-control" id="{name}" name="{name}">{rows}</select></div>'
    )


def _count(name: str, label: str, value: int, most: int) -> str:
    return (
        f'<div class="mb-3"><label class="form-label" for="{name}">{label}</label>'
        f'<input class="form-control" id="{name}" name="{name}" type="number" required min="1" max="{most}" '
        f'value="{value}"></div>'
    )


def page(offer: Offer) -> str:
    """The form, as HTML."""
    whole = [(WHOLE, "whole GPUs"), *((part, part) for part in offer.parts)]
    return "".join(
        (
            _count("gpus", "GPUs", 1, offer.most_gpus),
            _select("part", "Part of each GPU", whole),
            _select("gpu_class", "Class", [("", "any"), *((one, one) for one in offer.gpu_classes)]),
            _count("hours", "Hours, at most", min(4, offer.most_hours), offer.most_hours),
            _select("environment", "Environment", [(one, one) for one in offer.environments]),
        )
    )
