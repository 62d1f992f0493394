"""The toolkit's own errors, under the root of all (validation/base/errors.py). Nodes import it, without packages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from validation.base.errors import ToolkitError


class UsageFault(ToolkitError):
    """An input that cannot be used, or a state in which the command makes no sense. Says what to do next."""


class LabError(ToolkitError):
    """The lab cannot do what was asked; one sentence that says what to do."""


class LeaseError(ToolkitError):
    """A lease request that cannot be met; one sentence. `code` is RETRY where trying again may help."""


class BuildError(ToolkitError):
    """The engine cannot be built; one sentence that says what to do."""


def or_nearest(word: str, known: Iterable[str], others: str = "", cutoff: float = 0.5, numbered: bool = False) -> str:
    """The end of a sentence about a word that is not known: `did you mean X?`, or else what there is (`others`).

    `numbered`: names such as gpu2 or v100, of which another number or first letter is another thing and no misspelling.
    """
    names = list(known)
    alike = [name for name in names if not numbered or _key(name) == _key(word)]
    near = difflib.get_close_matches(word.lower(), alike, n=1, cutoff=cutoff)
    return f"did you mean {near[0]}?" if near else others or f"there are: {', '.join(names)}"


def _key(name: str) -> str:
    return name[:1].lower() + "".join(sign for sign in name if sign.isdigit())
