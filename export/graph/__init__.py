"""The functions of a model that are exported: inputs and outputs, tracing, names of variables."""
