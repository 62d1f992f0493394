"""Counters of GPUs that grew between two readings: errors, retired memory, repeated packets. Pure."""

from __future__ import annotations

from validation.measures.gpu.health import GpuHealthFacts

REPLAYS_PER_MINUTE = 8.0
"""More repeated PCIe packets are a bad link: NVIDIA DCGM user guide, background health checks, PCIe."""


def growth(first: GpuHealthFacts, last: GpuHealthFacts, minutes: float) -> tuple[list[str], list[str]]:
    """What grew between two readings of a node and may not, and why that is not known. minutes: between the two."""
    wrong: list[str] = []
    unknown: list[str] = []
    for gpu in first.gpus:
        after = last.same(gpu)
        if after is None:
            wrong.append(f"{gpu.words} is gone at the end of the run")
            continue
        for key, words in (
            ("ecc_uncorrected", "uncorrectable memory errors"), ("ecc_uncorrected_ever", "uncorrectable memory errors"),
            ("pages_retired", "retired pages"), ("rows_uncorrected", "rows remapped for uncorrectable errors"),
            ("pcie_replays", "PCIe replays"),
        ):  # fmt: skip
            begin, end = getattr(gpu, key), getattr(after, key)
            if begin is None or end is None:
                unknown += [f"{gpu.words}: {words} are in one of the two readings only"] if begin != end else []
            elif end < begin:
                unknown.append(f"{gpu.words}: {words} fell from {begin} to {end}: it was reset during the run")
            elif key == "pcie_replays":
                if end - begin > REPLAYS_PER_MINUTE * max(minutes, 1.0):
                    wrong.append(f"{gpu.words}: {end - begin} {words} in {minutes:.1f} minutes of the run")
            elif end > begin:
                wrong.append(f"{gpu.words}: {end - begin} {words} more during the run")
    return list(dict.fromkeys(wrong)), list(dict.fromkeys(unknown))
