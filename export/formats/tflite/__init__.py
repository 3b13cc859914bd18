"""Export of Keras functions as one TFLite file: tracing, conversion without weights, fusion and storage."""
