"""Export of Keras functions as ONNX files: tracing, conversion without weights, and the operators of each profile."""
