"""`toolkit support`: what a vendor needs to know of a bad part, in one file."""
