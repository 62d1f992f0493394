"""The lab's fabric switch as its hosts and its administrators see it: LLDP at each port, its configuration over ssh."""
