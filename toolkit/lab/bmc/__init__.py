"""Emulated BMCs: Redfish over TLS with constructed servers, for rehearsals and tests; marked as emulated."""
