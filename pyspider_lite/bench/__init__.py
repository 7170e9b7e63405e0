"""Measures the whole suite on a generated site: `scripts/bench`."""
