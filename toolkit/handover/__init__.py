"""The papers of a handover: punch list, units and their sum, witnessed tests."""
