"""What `ansible-doc` reads of our modules."""

from __future__ import annotations

import pytest

from tests.support.module_docs import REPO, document

MODULES = sorted(path.stem for path in (REPO / "plugins/modules").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("module", MODULES)
def test_the_documentation_can_be_read(module: str) -> None:
    found = document(module, "DOCUMENTATION")
    assert found["module"] == module
    assert all("description" in option for option in found.get("options", {}).values())
