"""Matrix products over tiles."""
