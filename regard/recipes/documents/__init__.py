"""Documents, and which class each belongs to."""
