"""engine_artefact on the controller: in check mode it only tells what is installed."""

from __future__ import annotations

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.reading import Reads


class ActionModule(Reads):
    """Asks in the short way where it can."""

    MODULE = "engine_artefact"
    ONLY_IN_CHECK_MODE = True
