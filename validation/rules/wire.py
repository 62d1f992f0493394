"""What packets take on the wire beside their payload."""

from __future__ import annotations

TCP_HEADERS_BYTES = 52  # IPv4 20 (RFC 791) + TCP 20 (RFC 9293) + timestamps option 12 (RFC 7323)
ETHERNET_FRAME_BYTES = 38  # preamble and SFD 8 + header 14 + FCS 4 + inter-packet gap 12 (IEEE 802.3)
ROCE_WIRE_BYTES = 82  # Ethernet 38 + IPv4 20 + UDP 8 + BTH 12 + ICRC 4 (InfiniBand specification, annex A17)
INFINIBAND_WIRE_BYTES = 26  # LRH 8 + BTH 12 + ICRC 4 + VCRC 2 (InfiniBand specification, volume 1)


def tcp_payload_share(mtu: int) -> float:
    """Share of an Ethernet wire's bits that are TCP payload at this IP MTU: (MTU-52)/(MTU+38)."""
    return (mtu - TCP_HEADERS_BYTES) / (mtu + ETHERNET_FRAME_BYTES)
