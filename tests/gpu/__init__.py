"""Checks that need a CUDA device. `python -m tests.gpu` runs them with torch and prebuilt libraries alone, without pytest."""
