"""Benchmarks of speed, memory and size, to be run by hand."""
