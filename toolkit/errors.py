"""The toolkit's own errors, under the root of all (validation/errors.py). Standard library only: nodes import it."""

from __future__ import annotations

from validation.errors import ToolkitError


class UsageFault(ToolkitError):
    """An input that cannot be used, or a state in which the command makes no sense. Says what to do next."""


class LabError(ToolkitError):
    """The lab cannot do what was asked; one sentence that says what to do."""


class LeaseError(ToolkitError):
    """A lease request that cannot be met; one sentence. `code` is RETRY where trying again may help."""


class BuildError(ToolkitError):
    """The engine cannot be built; one sentence that says what to do."""
