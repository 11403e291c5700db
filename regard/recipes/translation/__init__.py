"""Translation: from one text to another."""
