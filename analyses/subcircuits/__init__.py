"""Parts of an induction circuit, given or prevented all through training."""
