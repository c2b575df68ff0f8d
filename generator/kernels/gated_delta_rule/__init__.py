"""Chunked Gated DeltaNet."""
