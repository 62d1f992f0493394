"""Counters of an RDMA port, read before and after the load: what grew, and what cannot be said of them.

A counter that is absent, fell, or stands at its maximum does not show that nothing happened: then the growth is not
known, and says so. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

LINK_ERRORS = frozenset(
    {
        *("symbol_error", "link_error_recovery", "link_downed", "local_link_integrity_errors", "port_rcv_errors"),
        *("port_rcv_remote_physical_errors", "port_rcv_constraint_errors", "port_xmit_constraint_errors"),
        *("excessive_buffer_overrun_errors", "rx_icrc_encapsulated"),
        *("rx_crc_errors_phy", "rx_symbol_err_phy", "rx_pcs_symbol_err_phy", "link_down_events_phy"),
        *("rx_in_range_len_errors_phy", "rx_fragments_phy", "rx_jabbers_phy"),
        *("rx_fcs_err_frames", "rx_pcs_symbol_err", "link_down_events"),
    }
)
"""Counters of a bad cable, transceiver or port: InfiniBand specification, volume 1, 16.1.3.5, as sysfs names them;
mlx5's broken invariant checksums; those of an Ethernet port itself, which `ethtool -S` has (mlx5: `_phy`, Linux,
Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst; bnxt_en: the last three)."""

LOST = frozenset(
    {
        *("out_of_sequence", "packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err"),  # mlx5
        *("out_of_seq_request", "rcvd_seq_err"),  # rxe
        *("port_xmit_discards", "rx_discards_phy", "tx_discards_phy", "out_of_buffer"),
    }
)
LOST_BY_PRIORITY = re.compile(r"rx_prio\d+_(buf_|cong_)?discards?")
HOST_QUEUES = "rx_out_of_buffer"
"""Frames that the host's own TCP queues had no room for (mlx5): its processor was late, the fabric lost nothing."""
STORMS = frozenset({"tx_pause_storm_warning_events", "tx_pause_storm_error_events"})
"""Counters that grow where a fabric loses packets, and where its flow control jams (`ethtool -S` of mlx5)."""

MAXIMA = {
    **dict.fromkeys(("local_link_integrity_errors", "excessive_buffer_overrun_errors"), 2**4 - 1),
    **dict.fromkeys(("link_downed", "link_error_recovery"), 2**8 - 1),
    **dict.fromkeys(("port_xmit_constraint_errors", "port_rcv_constraint_errors"), 2**8 - 1),
    **dict.fromkeys(("symbol_error", "port_rcv_errors", "port_rcv_remote_physical_errors"), 2**16 - 1),
    "port_xmit_discards": 2**16 - 1,
}
"""Where InfiniBand's counters stop: the widths of PortCounters, InfiniBand specification, volume 1, 16.1.3.5."""
WIDEST = frozenset({2**32 - 1, 2**64 - 1})  # where any other counter of a card stops, if it stops
CLEAR = "clear it with perfquery -R and measure again"

GAUGES = re.compile(r"(active|watermark|pacing|db_fifo)_.*")  # bnxt_re counts its queue pairs among them


def of_links(name: str) -> bool:
    """True for a counter of link errors."""
    return name in LINK_ERRORS


def of_loss(name: str) -> bool:
    """True for a counter of lost packets."""
    return name in LOST or LOST_BY_PRIORITY.fullmatch(name) is not None


def of_storms(name: str) -> bool:
    """True for a counter of pause storms."""
    return name in STORMS


class Change(NamedTuple):
    """What a counter did between two readings. `reset`: it fell, so that it began anew and nothing is known of it."""

    name: str
    by: int
    reset: bool

    def __str__(self) -> str:
        """`link_downed +1`."""
        return f"{self.name} {self.by:+d}"


def changes(first: Mapping[str, int], last: Mapping[str, int]) -> list[Change]:
    """What the counters that are in both readings did."""
    both = sorted(set(first) & set(last))
    return [Change(name, last[name] - first[name], last[name] < first[name]) for name in both]


def growth(first: Mapping[str, int], last: Mapping[str, int], judged: Callable[[str], bool]) -> list[Change]:
    """Judged counters that grew between the readings."""
    return [change for change in changes(first, last) if judged(change.name) and change.by > 0]


def pauses(first: Mapping[str, int], last: Mapping[str, int]) -> list[Change]:
    """Pause frames and what was discarded or lost meanwhile, as far as the port counts them."""
    grown = [one for one in changes(first, last) if one.by > 0]
    return [c for c in grown if of_loss(c.name) or "pause" in c.name or c.name.endswith(("_dropped", "missed_errors"))]


def gaps(first: Mapping[str, int], last: Mapping[str, int], groups: dict[str, Callable[[str], bool]]) -> list[str]:
    """Why growth of these groups (in words -> their counters) is not known; empty where every counter tells."""
    found = [
        f"{c.name} fell from {first[c.name]} to {last[c.name]}: the port's counters restarted during the run"
        for c in changes(first, last)
        if c.reset and not GAUGES.fullmatch(c.name)
    ]
    for words, judged in groups.items():
        before, after = ({name for name in each if judged(name)} for each in (first, last))
        if not before & after:
            found.append(f"no counter of {words} is in both readings of the port")
        elif before != after:
            found.append(f"{', '.join(sorted(before ^ after))} in one of the two readings only")
        found += [
            f"{name} is at its maximum of {first[name]} and cannot grow: {CLEAR}"
            for name in sorted(before)
            if first[name] == MAXIMA.get(name) or first[name] in WIDEST
        ]
    return found
