"""The nodes of the fused operators of ONNX Runtime, where it has one for a primitive."""

from __future__ import annotations

from kerasformer.export.onnx_nodes import NodeWriter


class FusedWriter(NodeWriter):
    """Writes primitives as the operators that ONNX Runtime's CPU provider runs best."""
