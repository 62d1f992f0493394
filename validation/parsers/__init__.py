"""Parsers: a tool's untouched output becomes samples, or a ParseError. Never partial data.

Several tools exit with 0 whatever happened, so each parser checks what the tool itself says that it did: transport,
duration, streams, steps. A number that is missing, not finite or implausible is a ParseError. Which parser reads which
kind of measurement stands in validation/kinds/.
"""

from validation.parsers.common import Facts, Parsed, ParseError

__all__ = ["Facts", "ParseError", "Parsed"]
