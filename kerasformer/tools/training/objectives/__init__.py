"""Pretraining objectives: functions that make inputs and labels of texts, in NumPy, and their losses and models."""
