"""The words of page one, one file per language. The other pages are English: they quote criteria and tools."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field

from validation.model import Model
from validation.model.load import load_yaml

Language = Literal["en", "de"]
LANGUAGES: tuple[str, ...] = get_args(Language)


class Plural(Model):
    """A noun with its count: `{n}` stands for the number."""

    one: str
    other: str


class States(Model):
    """One text for each sign-off state."""

    ACCEPTED: str
    REJECTED: str
    INCOMPLETE: str
    REHEARSAL: str
    INSPECTION: str
    CONSTRUCTED_EXAMPLE: str


class Outcomes(Model):
    """One text for each outcome."""

    passed: str
    passed_waived: str
    failed: str
    incomplete: str


class Meaning(Model):
    """The third sentence: what the outcome means, and the next step."""

    accepted: str
    rejected: str
    incomplete: str
    rehearsal_passed: str
    rehearsal_failed: str
    rehearsal_incomplete: str
    inspection_passed: str
    inspection_failed: str
    inspection_incomplete: str
    constructed_example: str
    unjudged: str


class FrontWords(Model):
    """All words of page one. Placeholders in braces are filled in; every language has the same ones."""

    labels: dict[str, str]
    plurals: dict[str, Plural]
    suites: dict[str, str]
    figures: dict[str, str] = Field(description="what each key figure is called")
    verdicts: dict[str, str]
    reasons: dict[str, str] = Field(description="reason code -> two or three words")
    state: States
    outcome: Outcomes
    tested: str
    tested_here: str
    on_lab: str
    came: str
    suspect: str
    meaning: Meaning

    def count(self, number: int, noun: str) -> str:
        """Number and noun, as in "1 node", "4 nodes"; a noun without plural forms here is kept as it is."""
        forms = self.plurals.get(noun)
        if forms is None:
            return f"{number} {noun}"
        return (forms.one if number == 1 else forms.other).format(n=number)


@cache
def front_words(language: Language) -> FrontWords:
    """The words of page one in a language."""
    return load_yaml(Path(str(resources.files("validation.report") / "words" / f"{language}.yml")), FrontWords)
