"""The host variable `bmc` of an inventory: how a node's controller is reached, checked once, its password kept out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator, model_validator

from toolkit.inventory_address import address_fault
from validation.model import Bmc

_PLAIN = r"(?:^|[\s{{,])[\"']?{}[\"']?\s*[:=]\s*(?P<value>\S.*)"
_HIDDEN = re.compile(r"[\"']?\s*\{\{|!vault\b")
"""A value of a template or a vault."""


def _text(value: object) -> object:
    """A value of an attribute as the BMC prints it: YAML takes Enabled for a text, and 1 for a number."""
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _port(value: object) -> object:
    return int(value) if isinstance(value, str) and value.strip().isdecimal() else value


class BmcVariable(BaseModel):
    """`bmc` of a host. Without `password` the variable ELASTIC_AI_BMC_PASSWORD of the environment has it.

    `ca`: file of the authority that signed its certificate; `fingerprint`: SHA-256 of the certificate.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    address: str = Field(min_length=1)
    port: Annotated[int, BeforeValidator(_port)] = Field(default=443, ge=1, le=65535)
    user: str = Field(min_length=1)
    password: SecretStr | None = Field(default=None, min_length=1)
    ca: str | None = None
    fingerprint: str | None = None
    bios: dict[str, Annotated[str, BeforeValidator(_text)]] = {}

    @field_validator("address")
    @classmethod
    def _is_one(cls, value: str) -> str:
        if fault := address_fault(value):
            raise ValueError(fault)
        return value

    @field_validator("fingerprint")
    @classmethod
    def _of_64(cls, value: str | None) -> str | None:
        digits = (value or "").replace(":", "").lower()
        if value is not None and not re.fullmatch(r"[0-9a-f]{64}", digits):
            raise ValueError("is no SHA-256 fingerprint: 64 hexadecimal digits, with or without colons")
        return digits or None

    @field_validator("ca")
    @classmethod
    def _is_there(cls, value: str | None) -> str | None:
        if value is not None and not Path(value).expanduser().is_file():
            raise ValueError(f"{value}: no such file")
        return value

    @model_validator(mode="after")
    def _one_proof(self) -> BmcVariable:
        if self.ca and self.fingerprint:
            raise ValueError("has both ca and fingerprint; keep one")
        return self

    def bmc(self) -> Bmc:
        """What of it may be kept with a run: no password."""
        return Bmc(address=self.address, port=self.port, user=self.user, ca=self.ca, fingerprint=self.fingerprint,
                   bios=self.bios)  # fmt: skip


def plain_password(place: str | None, name: str = "password") -> bool:
    """Whether the line at `place` (`file:line`) gives the password itself, neither a template nor a vault. name: of
    its variable."""
    file, _, line = (place or "").rpartition(":")
    if not line.isdecimal():
        return False
    try:
        text = Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
    except (OSError, UnicodeDecodeError, IndexError):
        return False
    found = re.search(_PLAIN.format(re.escape(name)), text)
    return found is not None and not _HIDDEN.match(found["value"])
