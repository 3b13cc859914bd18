"""What all architectures share: configurations, weight tables, model classes by task, loading, the Keras engine."""
