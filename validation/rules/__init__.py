"""By what is judged: criteria, fabrics, bounds, acceptance profiles, claims, waivers. Data, and how it is read."""
