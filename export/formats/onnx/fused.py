"""The profile with fused operators of ONNX Runtime's CPU provider, domain `com.microsoft`.

Fused operators are created from primitives, never from patterns in a decomposed graph. `FusedLowering` marks larger
primitives than the portable profile, `merge` merges markers that one operator can compute, and `FusedWriter` writes the
nodes. What no fused operator supports is computed with smaller primitives, and so with portable nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import onnx
from keras import ops
from onnx import TensorProto, helper

from kerasformer.basics.arguments import Arguments
from kerasformer.export.formats.onnx.markers import MARKER_DOMAIN, Marker, OnnxLowering, one_row
from kerasformer.export.formats.onnx.matrix_nodes import OrtMatrixNodes
from kerasformer.export.formats.onnx.node_list import CONTRIB_DOMAIN
from kerasformer.export.formats.onnx.nodes import NodeWriter
from kerasformer.layers.attention_call import AttentionCall
from kerasformer.layers.attention_spec import AttentionSpec, Rotary
from kerasformer.layers.cache import GrowingCache, LayerCache
from kerasformer.layers.primitives import needs_weights
from kerasformer.layers.tensor import Tensor, split_heads
from kerasformer.layers.visibility import Visibility

_PROJECTIONS = ("query", "key", "value")


class FusedLowering(OnnxLowering):
    """Lowering that also marks residual sums, and attention with its heads and its cache."""

    def residual(self, x: Tensor, y: Tensor) -> Tensor:
        """Marks a sum of tensors with the same rank."""
        if x.shape.rank != y.shape.rank:
            return super().residual(x, y)
        return self._mark("residual", {"x": x, "y": y}, x.shape, {})

    def multi_head_attention(self, call: AttentionCall) -> tuple[Tensor, Tensor | None, LayerCache | None]:
        """Marks attention with a causal cache as GroupQueryAttention, and any other as MultiHeadAttention.

        Both return no attention weights: where these are needed, attention is computed with plain operators.
        """
        if needs_weights():
            return super().multi_head_attention(call)
        marked: tuple[Tensor, Tensor | None, LayerCache | None] | None
        if isinstance(call.cache, GrowingCache) and call.cache.causal:
            marked = self._cached_attention(call, call.cache)
        else:
            marked = self._heads_attention(call)
        return marked or super().multi_head_attention(call)

    def _cached_attention(self, call: AttentionCall, cache: GrowingCache) -> tuple[Tensor, None, GrowingCache] | None:
        """Marks GroupQueryAttention; returns `None` if it does not support heads of this size.

        The operator computes sliding windows itself, so that layers with different windows share one bias.
        """
        spec, query = call.spec, call.query
        bias = call.visibility.bias("float32")
        if bias is None or spec.head_dim % 8:
            return None
        inputs = {"query": query, "key": call.key, "value": call.value, "bias": bias}
        inputs |= {"past_key": cache.key, "past_value": cache.value, **_rotation(query, spec.rotary, call.visibility)}
        shapes = [query.shape, cache.key.shape, cache.value.shape]
        settings = {**_settings(spec, bias), "softcap": spec.softcap, "window": spec.window, "cached": True}
        settings["scales"] = cache.scales
        context, keys, values = self._mark_all("cached_attention", inputs, shapes, {}, cache.key.dtype, **settings)
        return context, None, replace(cache, tensors=(keys, values))

    def _heads_attention(self, call: AttentionCall) -> tuple[Tensor, Tensor | None, LayerCache | None] | None:
        """Marks MultiHeadAttention; returns `None` if it does not support the attention."""
        spec, cache = call.spec, call.cache
        if spec.group_size > 1 or spec.softcap is not None or (spec.rotary is not None and cache is not None):
            return None
        bias = call.visibility.bias("float32", spec.window)
        rotation = _rotation(call.query, spec.rotary, call.visibility)
        settings = {**_settings(spec, bias), "cached": cache is not None}

        def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> tuple[Tensor, None]:
            inputs = {"query": query, "key": key, "value": value} | ({} if bias is None else {"bias": bias}) | rotation
            return self._mark("heads_attention", inputs, query.shape, {}, **settings), None

        if cache is None:
            return *attend(call.query, call.key, call.value, bias), None
        keys, values = (None if x is None else split_heads(x, spec.head_dim) for x in (call.key, call.value))
        return cache.attend(attend, call.query, keys, values, bias)


def _settings(spec: AttentionSpec, bias: Tensor | None) -> Arguments:
    return {
        "num_heads": spec.num_heads,
        "kv_num_heads": spec.num_key_value_heads,
        "head_dim": spec.head_dim,
        "scale": float(spec.scale),
        "same_for_queries": one_row(bias),
        "rotary": spec.rotary,
    }


def _rotation(query: Tensor, rotary: Rotary | None, visibility: Visibility) -> dict[str, Tensor]:
    """Returns cosines and sines `(B or 1, 1, T, R / 2)` of the angles of all tokens, which layers share.

    They are computed for the tokens of a call and not looked up in a table of all positions, since such tables take
    dozens of megabytes for long contexts.
    """
    if rotary is None:
        return {}
    positions = visibility.query_positions(ops.shape(query)[1])
    cosine, sine = visibility.rendered(("cosines and sines", rotary), lambda: rotary.cosines_and_sines(positions))
    return {"cosine": cosine, "sine": sine}


def merge(graph: onnx.GraphProto, markers: list[Marker], adds_bias: Callable[[str, bool], bool]) -> None:
    """Merges markers of a traced graph that one operator of ONNX Runtime can compute.

    Args:
        graph: The graph, whose marker nodes are modified.
        markers: The markers, to which merged ones are added.
        adds_bias: Returns whether a product, given the name of its kernel and whether it reads the output of a GELU,
            adds its bias in the same operator.
    """
    merger = _Merger(graph, markers)
    merger.merge_projections()
    merger.merge_sums_with_norms()
    merger.move_biases(adds_bias)
    merger.finish()


class _Merger:
    """Markers of a graph, with the producer and the number of uses of each tensor."""

    def __init__(self, graph: onnx.GraphProto, markers: list[Marker]) -> None:
        self.graph, self.markers = graph, markers
        self.nodes = [node for node in graph.node if node.domain == MARKER_DOMAIN]
        self.producers = {output: node for node in self.nodes for output in node.output}
        self.uses = Counter(name for node in graph.node for name in node.input)
        self.uses.update(value.name for value in graph.output)
        self.removed: set[int] = set()

    def merge_projections(self) -> None:
        """Merges the products of queries, keys and values into one if they have the same input."""
        for node in self._of_kind("cached_attention", "heads_attention"):
            candidates = [self._producer(name, "linear") for name in node.input[:3]]
            projections = [projection for projection in candidates if projection is not None]
            if len(projections) < len(candidates) or len({projection.input[0] for projection in projections}) > 1:
                continue
            products = [self._marker(projection) for projection in projections]
            roles = {tuple(product.weights) for product in products}
            if len(roles) > 1 or any(product.settings["transposed"] for product in products):
                continue
            weights = {f"{role}_{i}": name for i, item in enumerate(products) for role, name in item.weights.items()}
            adapted = [
                (f"{role}_{i}", name)
                for i, (item, projection) in enumerate(zip(products, projections, strict=True))
                for role, name in zip(item.inputs[1:], projection.input[1:], strict=True)
            ]
            names = ("x", *(role for role, _ in adapted))
            settings = {**products[0].settings, "low_rank": max(item.settings.get("low_rank", 0) for item in products)}
            merged = replace(products[0], kind="projections", weights=weights, inputs=names, settings=settings)
            self._change(projections[0], merged)
            projections[0].input[:] = [projections[0].input[0], *(name for _, name in adapted)]
            marker = self._marker(node)
            self._change(node, replace(marker, inputs=("projections", *marker.inputs[3:])))
            node.input[:] = [projections[0].output[0], *node.input[3:]]
            self.removed |= {id(projection) for projection in projections[1:]}

    def merge_sums_with_norms(self) -> None:
        """Merges a norm into the residual sum that it reads; the operator returns both results."""
        for node in self._of_kind("layer_norm", "rms_norm"):
            total = self._producer(node.input[0], "residual", single_use=False)
            if total is None:
                continue
            norm = self._marker(node)
            settings = {**norm.settings, "norm": norm.kind}
            self._change(
                total, replace(self._marker(total), kind="sum_and_norm", weights=norm.weights, settings=settings)
            )
            total.output.append(node.output[0])
            self.removed.add(id(node))

    def move_biases(self, adds_bias: Callable[[str, bool], bool]) -> None:
        """Moves the bias of a product that does not add it into the operator that reads the product and can add it."""
        for node in self._of_kind("gelu", "sum_and_norm"):
            product = self._producer(node.input[-1], "linear")
            if product is None or "bias" not in self._marker(product).weights:
                continue
            weights = dict(self._marker(product).weights)
            reads_gelu = self._producer(product.input[0], "gelu", single_use=False) is not None
            if adds_bias(weights["kernel"], reads_gelu):
                continue
            bias = weights.pop("bias")
            self._change(product, replace(self._marker(product), weights=weights))
            marker = self._marker(node)
            self._change(node, replace(marker, weights={**marker.weights, "added": bias}))

    def finish(self) -> None:
        """Removes nodes that were merged into others."""
        kept = [node for node in self.graph.node if id(node) not in self.removed]
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
        del self.graph.node[:]
        self.graph.node.extend(copies)

    def _of_kind(self, *kinds: str) -> list[onnx.NodeProto]:
        return [node for node in self.nodes if id(node) not in self.removed and self._marker(node).kind in kinds]

    def _marker(self, node: onnx.NodeProto) -> Marker:
        return self.markers[int(node.op_type)]

    def _producer(self, name: str, kind: str, single_use: bool = True) -> onnx.NodeProto | None:
        """Returns the marker of a kind that produces a tensor; with `single_use`, only if the tensor is used once."""
        node = self.producers.get(name)
        if node is None or self._marker(node).kind != kind or (single_use and self.uses[name] > 1):
            return None
        return node

    def _change(self, node: onnx.NodeProto, marker: Marker) -> None:
        node.op_type = str(len(self.markers))
        self.markers.append(marker)


class FusedWriter(NodeWriter):
    """Writer of primitives as the operators that ONNX Runtime's CPU provider runs best."""

    lowering = FusedLowering
    matrices = OrtMatrixNodes
    _matrices: OrtMatrixNodes

    def merge(self, graph: onnx.GraphProto, markers: list[Marker]) -> None:
        """See `merge`."""
        merge(graph, markers, self._matrices.adds_bias)

    def residual(self, marker: Marker, inputs: Mapping[str, str], output: str) -> None:
        """Writes a sum that was not merged with a norm."""
        self.node("Add", [inputs["x"], inputs["y"]], output)

    def sum_and_norm(self, marker: Marker, inputs: Mapping[str, str], total: str, output: str) -> None:
        """Writes a sum, including the bias of a product, and its norm."""
        added = self._vectors(marker, "added")
        if marker.settings["norm"] == "layer_norm":
            # Sum and not Add, which ONNX Runtime would fuse into SkipLayerNormalization, a much slower operator.
            summed = self.node("Sum", [inputs["x"], inputs["y"], *added], total or None)
            self.layer_norm(marker, {"x": summed}, output)
            return
        operands = [inputs["x"], inputs["y"], *self._vectors(marker, "scale"), *added]
        outputs, epsilon = [output, "", "", total], marker.settings["epsilon"]
        self._fused("SkipSimplifiedLayerNormalization", operands, outputs, epsilon=epsilon)

    def gelu(self, marker: Marker, inputs: Mapping[str, str], output: str) -> None:
        """Writes one operator, which also adds the bias of a product."""
        added = self._vectors(marker, "added")
        exact = "BiasGelu" if added else "Gelu"
        self._fused("FastGelu" if marker.settings["approximate"] else exact, [inputs["x"], *added], [output])

    def projections(self, marker: Marker, inputs: Mapping[str, str], output: str) -> None:
        """Writes several products of one tensor as one product."""
        names = [(role.partition("_")[0], name) for role, name in marker.weights.items()]
        kernels, biases = ([name for kind, name in names if kind == expected] for expected in ("kernel", "bias"))
        if len(inputs) == 1:
            self._matrices.product(inputs["x"], kernels, biases, marker.rank, False, output)
            return
        product = self._matrices.product(inputs["x"], kernels, biases, marker.rank, False)
        self.node("Add", [product, self._low_rank_products(marker, inputs, kernels)], output)

    def _low_rank_products(self, marker: Marker, inputs: Mapping[str, str], kernels: Sequence[str]) -> str:
        """Writes the low-rank products of merged projections side by side, with zeros for those without."""
        parts = []
        for index, kernel in enumerate(kernels):
            a = inputs.get(f"a_{index}", next(name for role, name in inputs.items() if role.startswith("a_")))
            outputs, _ = self.store.size([kernel], output_first=False)
            b = inputs[f"b_{index}"] if f"b_{index}" in inputs else self.zeros(marker.settings["low_rank"], outputs)
            parts.append(self.low_rank(inputs["x"], a, b))
        return self.node("Concat", parts, axis=-1)

    def cached_attention(
        self, marker: Marker, inputs: Mapping[str, str], output: str, present_key: str, present_value: str
    ) -> None:
        """Writes GroupQueryAttention, which updates the cache in place if past and present are the same buffer.

        All rows are passed as full, since padding is part of the bias. The number of slots is also read from the bias,
        since a buffer that is updated in place is longer.
        """
        self.in_place += [inputs["past_key"], inputs["past_value"]]
        attention = marker.settings
        query = inputs.get("projections", inputs.get("query", ""))
        bias = self._whole_bias(marker, inputs, query)
        last, total = self._lengths(inputs["bias"], query)
        packed = "projections" in inputs and attention["rotary"] is None
        projected = [query, "", ""] if packed else self._rotated(marker, inputs, query, output)
        operands = [*projected, inputs["past_key"], inputs["past_value"], last, total, "", "", "", bias]
        settings = {name: attention[name] for name in ("num_heads", "kv_num_heads", "scale")}
        if attention["window"] is not None:
            settings["local_window_size"] = attention["window"]
        if attention["softcap"] is not None:
            settings["softcap"] = float(attention["softcap"])
        if attention["scales"] is not None:
            scales = (self.vector(values) for values in (attention["scales"].key, attention["scales"].value))
            operands += ["", *scales]
            settings |= {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL", "kv_cache_bit_width": 8}
        self._fused("GroupQueryAttention", operands, [output, present_key, present_value], **settings)

    def heads_attention(self, marker: Marker, inputs: Mapping[str, str], output: str) -> None:
        """Writes MultiHeadAttention; keys and values are products, or heads from a cache."""
        query = inputs.get("projections", inputs.get("query", ""))
        projected = self._rotated(marker, inputs, query, output)
        bias = [self._whole_bias(marker, inputs, projected[0])] if "bias" in inputs else []
        operands = [*projected, *(["", "", *bias] if bias else [])]
        settings = {name: marker.settings[name] for name in ("num_heads", "scale")}
        self._fused("MultiHeadAttention", operands, [output], **settings)

    def _rotated(self, marker: Marker, inputs: Mapping[str, str], query: str, output: str) -> list[str]:
        """Returns queries, keys and values as separate tensors, with queries and keys rotated.

        GroupQueryAttention can rotate by itself, but in the first step it uses the same position for all rows, whereas
        rows with left padding have different ones.
        """
        attention = marker.settings
        projected = [inputs.get(name, f"{output}/{name}") for name in _PROJECTIONS]
        heads = attention["num_heads"], attention["kv_num_heads"], attention["kv_num_heads"]
        if "projections" in inputs:
            sizes = self.integers(*(count * attention["head_dim"] for count in heads))
            self._fused("Split", [inputs["projections"], sizes], projected, domain="", axis=-1)
        rotary = attention["rotary"]
        if rotary is None:
            return projected
        angles = self._angles(inputs, query, rotary.dim // 2)
        for index in (0, 1):
            settings = {"interleaved": int(rotary.interleaved), "num_heads": heads[index]}
            if rotary.dim < attention["head_dim"]:
                settings["rotary_embedding_dim"] = rotary.dim
            name = f"{output}/rotated_{_PROJECTIONS[index]}"
            self._fused("RotaryEmbedding", [projected[index], *angles], [name], **settings)
            projected[index] = name
        return projected

    def _angles(self, inputs: Mapping[str, str], query: str, width: int) -> list[str]:
        """Returns the inputs of RotaryEmbedding: the index of each token, int64 `(B, T)`, and cosines and sines.

        The operator looks up angles by position. Here the tables contain only the angles of the call's tokens, and each
        token has its own row.
        """
        cosine, sine = inputs["cosine"], inputs["sine"]

        def token_indices() -> str:
            count = self.node("ReduceProd", [self.node("Shape", [cosine], end=3)], keepdims=0)
            flat = self.node("Range", [self.integer(0), count, self.integer(1)])
            length = self.node("Shape", [cosine], start=2, end=3)
            indices = self.node("Reshape", [flat, self.node("Concat", [self.integers(-1), length], axis=0)])
            rows = self.node("Concat", [self.node("Shape", [query], start=0, end=1), self.integers(1)], axis=0)
            return self.node("Expand", [indices, rows])

        def table(values: str) -> str:
            return self.node("Reshape", [values, self.integers(-1, width)])

        tables = [
            self.once(f"{cosine}/table", lambda: table(cosine)),
            self.once(f"{sine}/table", lambda: table(sine)),
        ]
        return [self.once(f"{cosine}/token_indices", token_indices), *tables]

    def _whole_bias(self, marker: Marker, inputs: Mapping[str, str], query: str) -> str:
        """Returns the bias with a row for each query, as the operators require.

        Layers share it unless their numbers of queries may differ: the last layer of a classifier may have fewer
        queries. If queries and keys come from one product, or attention uses a cache, all layers have the same queries.
        """
        bias = inputs["bias"]
        if not marker.settings["same_for_queries"]:
            return bias

        def write() -> str:
            shape = [self.integers(1, 1), self.node("Shape", [query], start=1, end=2), self.integers(1)]
            return self.node("Expand", [bias, self.node("Concat", shape, axis=0)])

        shared = "projections" in inputs or marker.settings["cached"]
        return self.once(f"{bias}/whole" if shared else f"{bias}/whole/{query}", write)

    def _lengths(self, bias: str, query: str) -> tuple[str, str]:
        """Returns the last slot of each row, int32 `(B,)`, and the number of slots, int32 `(1,)`, for all layers."""
        size = self.once(f"{bias}/positions", lambda: self.node("Shape", [bias], start=3, end=4))
        total = self.once(f"{size}/int32", lambda: self.node("Cast", [size], to=TensorProto.INT32))

        def write() -> str:
            last = self.node("Cast", [self.node("Sub", [size, self.integers(1)])], to=TensorProto.INT32)
            return self.node("Expand", [last, self.node("Shape", [query], start=0, end=1)])

        return self.once(f"{size}/last", write), total

    def _fused(self, operator: str, inputs: list[str], outputs: list[str], **settings: object) -> None:
        """Appends a node with several results, by default of ONNX Runtime's domain."""
        settings = {"domain": CONTRIB_DOMAIN, **settings}
        self.nodes.append(helper.make_node(operator, inputs, outputs, name=outputs[0], **settings))

    def _vectors(self, marker: Marker, *roles: str) -> list[str]:
        """Returns the initializers of those of the weights that the marker has."""
        return [self.store.plain(marker.weights[role]) for role in roles if role in marker.weights]
