"""Checks of a site as built, in plain pytest with pytest-testinfra: what the nodes hold, seen from outside.

They know nothing of the roles' tasks, read no record that the provisioning left on a node, and change nothing. What
they expect comes from the site's inventory, and where that is silent from the roles' defaults, tables and releases,
which are data. docs/how-to/as-built.md has the line that runs them without this toolkit.
"""
