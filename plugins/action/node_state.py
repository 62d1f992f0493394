"""node_state on the controller: the same reading, without Ansible's own code on the node where that will do."""

from __future__ import annotations

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils import late
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.reading import Reads

late.load()


class ActionModule(Reads):
    """Asks in the short way where it can."""

    MODULE = "node_state"
    NEEDS = ("container",)
