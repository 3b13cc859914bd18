"""Benchmarks of speed, memory and size, to be run by hand."""

from kerasformer import telemetry

telemetry.switch_off()  # for ONNX Runtime in all measured processes
