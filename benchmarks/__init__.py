"""Measurements of speed, memory and size beside other libraries; run by people, never a test: see run.py."""
