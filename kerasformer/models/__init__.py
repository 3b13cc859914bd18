"""Shared by all architectures: configurations, weight tables, model classes by task, loading, the Keras engine."""
