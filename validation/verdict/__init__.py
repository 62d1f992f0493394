"""From judgements to the verdict: what is owed, waived, found and suspected, and what of it people read first."""
