"""Published figures of the reference architecture, drawn beside measured ones as reference points and never judged.

They are the claims of validation/rules/reference/; nothing here was measured by this toolkit.
"""

from __future__ import annotations

from validation.rules.reference import Claim, Reference

_SCALED = ("c4130-p100", "c4140-k")
_COMPARED = ("8xsxm2", "c4140-k", "c4140-m")
TRAINED = "resnet50"
GPUS = 8
NAMES = {
    "inception4": "Inception-v4",
    "vgg19": "VGG-19",
    "vgg16": "VGG-16",
    "inception3": "Inception-v3",
    "resnet50": "ResNet-50",
    "googlenet": "GoogLeNet",
    "alexnet": "AlexNet",
}


def _rates(reference: Reference, machine: str, **conditions: str | int) -> list[Claim]:
    claims = reference.all(machine, **conditions)
    return [c for c in claims if c.published is not None and c.published.unit == "images/s"]


def whitepaper(reference: Reference) -> str:
    """The document that scaling and throughput are of."""
    return reference.documents["whitepaper"].cite


def scaling(reference: Reference) -> dict[str, dict[int, float]]:
    """ResNet-50: system -> images/s by number of GPUs."""
    return {
        reference.machines[machine].short: {
            int(c.conditions["gpus"]): c.value
            for c in sorted(_rates(reference, machine, model=TRAINED), key=lambda c: int(c.conditions["gpus"]))
        }
        for machine in _SCALED
    }


def throughput_systems(reference: Reference) -> tuple[str, ...]:
    """The systems of `throughput`, in words."""
    return tuple(reference.machines[machine].title for machine in _COMPARED)


def throughput(reference: Reference) -> dict[str, tuple[float, ...]]:
    """Model -> images/s on 8 GPUs, one figure for each of the systems."""
    return {
        name: tuple(_rates(reference, machine, model=model, gpus=GPUS)[0].value for machine in _COMPARED)
        for model, name in NAMES.items()
    }


def today(reference: Reference) -> dict[str, tuple[Claim, ...]]:
    """Model -> public rates of today's machines, of others' programs; none in runs that began without them."""
    found: dict[str, tuple[Claim, ...]] = {}
    for claim in reference.claims.values():
        name = NAMES.get(str(claim.conditions.get("model")), "")
        rated = claim.published is not None and claim.published.unit == "images/s"
        if name and rated and not reference.document(claim).founding:
            found[name] = (*found.get(name, ()), claim)
    return found


def conditions(reference: Reference) -> str:
    """What all of `scaling` and `throughput` was measured with, in words."""
    claims = [c for machine in (*_SCALED, *_COMPARED) for c in _rates(reference, machine)]
    batches, precisions = ({str(c.conditions[key]) for c in claims} for key in ("batch", "precision"))
    return f"batch {' or '.join(sorted(batches))} per GPU, {' or '.join(sorted(precisions))}"


def assumed(reference: Reference) -> str:
    """What of the conditions of `throughput` no document says, in words."""
    claims = [c for machine in _COMPARED for c in _rates(reference, machine, gpus=GPUS)]
    words = sorted({f"{name} {c.conditions[name]}" for c in claims for name in c.inferred})
    return f"{' and '.join(words)} are inferred" if words else ""


def remote_ratios(reference: Reference) -> tuple[tuple[str, float, str], ...]:
    """(case, remote over native, source): one GPU, of others and of the documents."""
    found = [c for c in reference.claims.values() if is_ratio(c)]
    return tuple((_case(reference, c), c.value, reference.source(c)) for c in found)


def is_ratio(claim: Claim) -> bool:
    """True for a published ratio of remote over native, of the documents and of others."""
    by = claim.confirmed_by
    rated = claim.id.startswith("others.ratio") or (by is not None and by.criterion == "rm.ratio")
    return rated and claim.published is not None


def _case(reference: Reference, claim: Claim) -> str:
    if not reference.document(claim).founding:
        return claim.section
    assert claim.published is not None
    return f"{', '.join(claim.fabrics)}: {claim.published.printed}"
