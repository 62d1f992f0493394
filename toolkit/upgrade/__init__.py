"""A site goes from one stack release to another, batch by batch, and back."""
