"""Functions of a model that are exported: inputs and outputs, tracing, and variable names."""
