"""Pictures, and what is said of each."""
