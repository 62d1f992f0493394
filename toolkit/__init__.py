"""The operator's tool: command line, lab, inventory, run directory. May import `validation`, never the reverse."""
