"""What a measurement found out that is no sample, as typed objects: the base of all forms of facts.

A probe prints facts as plain JSON objects, its parser reads them into a form, and everybody after it works with the
form: nobody parses a sentence. A form is a class of `Facts` with a `type` of its own, beside the measurement that finds
it out; `type` in results.jsonl tells which it is, and facts without one are plain scalars.

None means that it is not known, "" or an empty list that it was looked for and is not there. Units are in the names.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeVar, Union

from pydantic import Discriminator, Field, GetJsonSchemaHandler, Tag, TypeAdapter
from pydantic_core import CoreSchema, core_schema

from validation.base import discovery
from validation.model.base import Model, Scalar

Count = Annotated[int, Field(ge=0, le=2**64)]
"""A counter or size: none is larger."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1)]
M = TypeVar("M", bound=Model)
PlainFacts = dict[str, Scalar | list[str] | dict[str, float]]
_PLAIN: TypeAdapter[PlainFacts] = TypeAdapter(PlainFacts)


class Facts(Model):
    """Base of all forms of facts. A class with a default for `type` is known by it from there on."""

    known: ClassVar[dict[str, type[Facts]]] = {}
    no_figure: ClassVar[bool] = False
    """Whether what is found out can be that there is no figure, and why (`why_no_figure`)."""

    def why_no_figure(self) -> str:
        """Why a sound result has no figure, in words; "" where it has."""
        return ""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Take the form up; TypeError where two have one type."""
        super().__pydantic_init_subclass__(**kwargs)
        field = cls.model_fields.get("type")
        if field is None or not isinstance(field.default, str):
            return  # what several forms share
        other = Facts.known.setdefault(field.default, cls)
        if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"two forms of facts have the type {field.default!r}: {other.__name__}, {cls.__name__}")


def forms() -> dict[str, type[Facts]]:
    """All forms of facts, by their type."""
    discovery.modules()
    return dict(sorted(Facts.known.items()))


def _read(value: Any) -> Facts | PlainFacts:
    """Facts as they stand in JSON, or made already; ValueError where they are of no form."""
    if isinstance(value, Facts):
        return value
    if not isinstance(value, dict) or "type" not in value:
        return _PLAIN.validate_python(value)
    kind = value["type"]
    form = Facts.known.get(kind) if isinstance(kind, str) else None
    form = form or (forms().get(kind) if isinstance(kind, str) else None)
    if form is None:
        raise ValueError(f"facts of type {kind!r} are none of this release")
    return form.model_validate(value)


def _type_of(value: Any) -> str:
    kind = value.get("type", "plain") if isinstance(value, dict) else getattr(value, "type", "plain")
    return str(kind)


class _ByType:
    """Reads facts by their type, which is looked up when the first are read: measurements come with their forms."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(_read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        every = [Annotated[form, Tag(kind)] for kind, form in forms().items()]
        union: Any = Union.__getitem__((*every, Annotated[PlainFacts, Tag("plain")]))
        return handler(TypeAdapter(Annotated[union, Discriminator(_type_of)]).core_schema)


AnyFacts = Annotated[Facts | PlainFacts, _ByType()]


def once(things: tuple[M, ...], *keys: str) -> tuple[M, ...]:
    """The things; ValueError where two have the same keys."""
    seen = set()
    for thing in things:
        name = tuple(getattr(thing, key) for key in keys)
        if name in seen:
            raise ValueError(f"duplicate {' '.join(map(str, filter(None, name)))}")
        seen.add(name)
    return things
