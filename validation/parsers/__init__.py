"""Parsers: a tool's untouched output becomes samples, or a ParseError. Never partial data.

Several tools exit with 0 whatever happened, so each parser checks what the tool itself says that it did: transport,
duration, streams, steps. A number that is missing, not finite or implausible is a ParseError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from validation.model import Sample, Scalar
from validation.parsers import (
    facts,
    ib_fabric,
    iperf3,
    operations,
    perftest,
    ping,
    rdma_ports,
    rdma_tools,
    remoting,
    sockperf,
    training,
)
from validation.parsers.common import Facts, Parsed, ParseError, fit, place
from validation.probes import ProbeDoc

__all__ = ["PARSERS", "Facts", "ParseError", "Parser", "parse"]

Parser = Callable[[ProbeDoc, Mapping[str, Scalar]], Parsed]

PARSERS: dict[str, Parser] = {
    "facts": facts.parse,
    "ib-fabric": ib_fabric.parse,
    "path-mtu": ping.parse,
    "rdma-bandwidth": perftest.bandwidth,
    "rdma-first-light": rdma_tools.first_light,
    "rdma-latency": perftest.latency,
    "rdma-ports": rdma_ports.parse,
    "rdma-ucx": rdma_tools.ucx,
    "remoting-copy": remoting.copies,
    "remoting-fraction": remoting.fractions,
    "remoting-isolate": remoting.isolation,
    "tcp-bandwidth": iperf3.parse,
    "tcp-latency": sockperf.parse,
    "training-short": training.parse,
    "utilisation": operations.utilisation,
}


def parse(kind: str, doc: ProbeDoc, params: Mapping[str, Scalar] | None = None) -> tuple[list[Sample], Facts]:
    """Samples and facts of a probe's document. `params` are the measurement's, checked against what the tool did.

    ParseError where the tool failed, did something else, or its output cannot be used whole; where the parser itself
    did not foresee the output, the exception is its cause and the place stands in its words.
    """
    if kind not in PARSERS:
        raise ParseError(f"no parser for {kind!r}; known: {', '.join(PARSERS)}")
    try:
        if doc["kind"] != kind:
            raise ParseError(f"the probe answered with {doc['kind']!r} instead of {kind!r}")
        if doc["error"]:
            raise ParseError(f"{doc['tool']}: {doc['error']}")
        if doc["returncode"] != 0:
            raise ParseError(f"{doc['tool']} ended with exit status {doc['returncode']}")
        samples, facts = PARSERS[kind](doc, params or {})
        fit(samples, facts)
    except ParseError:
        raise
    except Exception as fault:  # whatever it is, it costs this measurement alone
        raise ParseError(f"{kind}: the output is not as this parser knows it ({place(fault)})") from fault
    return samples, facts
