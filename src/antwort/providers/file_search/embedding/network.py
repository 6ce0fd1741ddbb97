"""The network of all-MiniLM-L6-v2, put together anew of the weights of a package so that it computes in 8 bits.

The graph of the package makes floating-point numbers of its 8-bit weights before each product, and is as slow as if it
had no others. Here the products are those of integers, and what belongs together is one operation of the runtime. A
graph is a message of Protocol Buffers, of which a reader and a writer of a page are enough: the library for it would
be larger than the model.
"""

import platform
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

INPUT, OUTPUT = "ids", "mean"
_LAYERS, _HEADS, _WIDTH = 6, 12, 384
_POSITIONS = 512
_EPSILON = 1e-12
_PAIR = 127
"""The most that two weights may have together, as 255 times that, and what rounding adds, fits in 16 bits."""
_PROCESSORS = Path("/proc/cpuinfo")
_RUNTIME = "com.microsoft"
"""The operations that ONNX Runtime has besides those of the standard."""
_FLOAT, _INT8, _INT64 = 1, 3, 7
_TYPES = {_FLOAT: "<f4", _INT8: "|i1", _INT64: "<i8"}


class UnknownNetworkError(Exception):
    """The file has not the weights that it should have."""


def has_exact_products() -> bool:
    """Tell whether the processor multiplies unsigned by signed bytes exactly.

    All of ARM do, and of the others those with instructions made for it; the rest saturates sums of two products.
    """
    if platform.machine().lower() in {"aarch64", "arm64"}:
        return True
    try:
        known = _PROCESSORS.read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return "avx512_vnni" in known or "avx_vnni" in known


def integer_network(model: bytes, numpy: Any, *, exact: bool) -> bytes:
    """Return a network that makes of the tokens of one text the mean of what the model says about each.

    With `exact` its weights are what they were; without, they are as much smaller as processors need that add two
    products up in 16 bits.
    """
    try:
        weights = _weights(model, numpy)
    except (ValueError, IndexError, TypeError) as error:
        raise UnknownNetworkError(f"It is no network: {error}") from error
    order = [name.removesuffix("_q") for name in weights if name.startswith("val_") and name.endswith("_q")]
    if len(order) != 6 * _LAYERS:
        raise UnknownNetworkError(f"It has {len(order)} matrices of 8 bits, not {6 * _LAYERS}.")
    graph = _Graph(numpy, weights, exact=exact)
    try:
        found = _embedded(graph)
        for number in range(_LAYERS):
            found = _layer(graph, number, order[6 * number : 6 * number + 6], found)
    except (KeyError, ValueError) as error:
        raise UnknownNetworkError(f"It is not put together as it should be: {error}.") from error
    graph.add("ReduceMean", [found], [OUTPUT], axes=[1], keepdims=0)
    return graph.written()


def _embedded(graph: "_Graph") -> str:
    """Add what stands for the tokens and their positions."""
    weights, prefix = graph.weights, "inner.embeddings."
    graph.keep("word", weights[f"{prefix}word_embeddings.weight_q"])
    graph.keep("word_scale", weights[f"{prefix}word_embeddings.weight_scale"])
    positions = weights[f"{prefix}position_embeddings.weight_q"] * weights[f"{prefix}position_embeddings.weight_scale"]
    graph.keep("position", positions[:_POSITIONS] + weights[f"{prefix}token_type_embeddings.weight"][0])
    graph.keep("start", graph.numpy.zeros(1, "int64"))
    graph.add("Gather", ["word", INPUT], ["word_q"])
    graph.add("Cast", ["word_q"], ["word_f"], to=_FLOAT)
    graph.add("Gather", ["word_scale", INPUT], ["word_s"])
    graph.add("Mul", ["word_f", "word_s"], ["words"])
    graph.add("Shape", [INPUT], ["length"], start=1, end=2)
    graph.add("Slice", ["position", "start", "length", "start"], ["positions"])
    return graph.add_norm("embedded", ["words", "positions"], f"{prefix}LayerNorm")


def _layer(graph: "_Graph", number: int, names: list[str], before: str) -> str:
    """Add a layer: first each token is seen together with all others, then by itself."""
    *attention, output, wide, narrow = names
    prefix, own = f"inner.encoder.layer.{number}.", f"layer_{number}_"
    biases = [f"{prefix}attention.self.{kind}.bias" for kind in ("query", "key", "value")]
    graph.multiply(f"{own}all", before, attention, biases)
    graph.keep(f"{own}widths", graph.numpy.array([_WIDTH] * 3, "int64"))
    parts = [f"{own}query", f"{own}key", f"{own}value"]
    graph.add("Split", [f"{own}all", f"{own}widths"], parts, axis=-1)
    graph.add("MultiHeadAttention", parts, [f"{own}seen"], _RUNTIME, num_heads=_HEADS)
    graph.multiply(f"{own}attended", f"{own}seen", [output], [f"{prefix}attention.output.dense.bias"])
    middle = graph.add_norm(f"{own}middle", [f"{own}attended", before], f"{prefix}attention.output.LayerNorm")
    graph.multiply(f"{own}wide", middle, [wide], [f"{prefix}intermediate.dense.bias"])
    graph.add("Gelu", [f"{own}wide"], [f"{own}active"], _RUNTIME)
    graph.multiply(f"{own}narrow", f"{own}active", [narrow], [f"{prefix}output.dense.bias"])
    return graph.add_norm(f"{own}end", [f"{own}narrow", middle], f"{prefix}output.LayerNorm")


class _Graph(Struct):
    """A graph in the making; numbers of fields are those of the messages of ONNX."""

    numpy: Any
    weights: Mapping[str, Any]
    exact: bool
    nodes: list[bytes] = field(default_factory=list)
    constants: list[bytes] = field(default_factory=list)

    def keep(self, name: str, values: Any) -> str:
        """Add a constant, and return its name."""
        values = self.numpy.ascontiguousarray(values)
        kind = next((kind for kind, dtype in _TYPES.items() if values.dtype == dtype), None)
        if kind is None:
            raise ValueError(f"'{name}' is of {values.dtype}")
        dimensions = [_number(1, size) for size in values.shape]
        self.constants.append(
            _bytes(5, b"".join([*dimensions, _number(2, kind), _text(8, name), _bytes(9, values.tobytes())]))
        )
        return name

    def add_norm(self, name: str, given: Iterable[str], weight: str) -> str:
        """Add a sum that is brought to one size: two operations, as the one for both takes four times as long."""
        sizes = [self.keep(f"{name}_{kind}", self.weights[f"{weight}.{kind}"]) for kind in ("weight", "bias")]
        total = self.add("Add", given, [f"{name}_sum"])
        return self.add("LayerNormalization", [total, *sizes], [name], axis=-1, epsilon=_EPSILON)

    def multiply(self, name: str, given: str, matrices: list[str], biases: list[str]) -> None:
        """Add a product with matrices that stand side by side; what is given is made integers of on the way."""
        numpy, weights = self.numpy, self.weights
        matrix = numpy.concatenate([weights[f"{one}_q"] for one in matrices], axis=1)
        scales = numpy.concatenate([weights[f"{one}_scale"][0] for one in matrices])
        if not self.exact:
            matrix, scales = _narrowed(matrix, scales, numpy)
        bias = numpy.concatenate([weights[one] for one in biases])
        kept = [self.keep(f"{name}_q", matrix), self.keep(f"{name}_s", scales), "", self.keep(f"{name}_b", bias)]
        self.add("DynamicQuantizeMatMul", [given, *kept], [name], _RUNTIME)

    def add(
        self, kind: str, given: Iterable[str], made: list[str], domain: str = "", **options: float | list[int]
    ) -> str:
        """Add an operation, and return the name of the first of what it makes."""
        parts = [_text(1, name) for name in given] + [_text(2, name) for name in made]
        parts += [_text(4, kind), *(_bytes(5, _option(name, value)) for name, value in options.items())]
        self.nodes.append(_bytes(1, b"".join([*parts, _text(7, domain)])))
        return made[0]

    def written(self) -> bytes:
        """Return the graph as a file has it."""
        ends = [_value(11, INPUT, _INT64, [1, "length"]), _value(12, OUTPUT, _FLOAT, [1, _WIDTH])]
        graph = b"".join([*self.nodes, _text(2, "minilm"), *self.constants, *ends])
        known = [_bytes(8, _text(1, "") + _number(2, 17)), _bytes(8, _text(1, _RUNTIME) + _number(2, 1))]
        return b"".join([_number(1, 8), _bytes(7, graph), *known])


def _narrowed(matrix: Any, scales: Any, numpy: Any) -> tuple[Any, Any]:
    """Return a matrix with larger scales where two weights that follow each other would be too large together."""
    largest = numpy.zeros(scales.shape, "int16")
    for sign in (1, -1):
        parts = numpy.maximum(matrix.astype("int16") * sign, 0)
        largest = numpy.maximum(largest, (parts[1:] + parts[:-1]).max(axis=0))
    factors = numpy.maximum(largest / numpy.float32(_PAIR), 1).astype("float32")
    return numpy.rint(matrix / factors).astype("int8"), scales * factors


# --- Protocol Buffers -------------------------------------------------------------------------------------------------


def _weights(model: bytes, numpy: Any) -> dict[str, Any]:
    """Return the constants of a graph by name, those of matrices in the order in which they are used."""
    constants: dict[str, Any] = {}
    used: list[str] = []
    [graph] = [value for number, value in _fields(model) if number == 7]
    for number, value in _fields(graph):
        if number == 5:
            name, array = _constant(value, numpy)
            constants[name] = array
        elif number == 1:
            used += [bytes(name).decode() for kind, name in _fields(value) if kind == 1]
    names = dict.fromkeys(name for name in used if name in constants)
    return {name: constants[name] for name in names}


def _constant(tensor: memoryview, numpy: Any) -> tuple[str, Any]:
    name, kind, shape, raw = "", 0, [], memoryview(b"")
    for number, value in _fields(tensor):
        if number == 1:
            shape += [value] if isinstance(value, int) else list(_numbers(value))
        elif number == 2:
            kind = value
        elif number == 8:
            name = bytes(value).decode()
        elif number == 9:
            raw = value
    values = numpy.frombuffer(raw, _TYPES[kind]).reshape(shape) if kind in _TYPES and len(raw) else None
    return name, values


def _fields(message: bytes | memoryview) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message: numbers, and bytes for whatever has a length."""
    view, at = memoryview(message), 0
    while at < len(view):
        key, at = _varint(view, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(view, at)
            yield key >> 3, value
            continue
        length = {1: 8, 5: 4}.get(kind)
        if length is None:
            length, at = _varint(view, at)
        yield key >> 3, view[at : at + length]
        at += length


def _numbers(packed: memoryview) -> Iterator[int]:
    at = 0
    while at < len(packed):
        value, at = _varint(packed, at)
        yield value


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _written(value: int) -> bytes:
    value &= (1 << 64) - 1  # a negative number has ten bytes
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _number(number: int, value: int) -> bytes:
    return _written(number << 3) + _written(value)


def _bytes(number: int, value: bytes) -> bytes:
    return _written(number << 3 | 2) + _written(len(value)) + value


def _text(number: int, value: str) -> bytes:
    return _bytes(number, value.encode())


def _option(name: str, value: float | list[int]) -> bytes:
    if isinstance(value, list):
        return _text(1, name) + b"".join(_number(8, one) for one in value) + _number(20, 7)
    if isinstance(value, int):
        return _text(1, name) + _number(3, value) + _number(20, 2)
    return _text(1, name) + _written(2 << 3 | 5) + struct.pack("<f", value) + _number(20, 1)


def _value(number: int, name: str, kind: int, shape: list[int | str]) -> bytes:
    """Describe what goes into a graph, or comes out of it."""
    sizes = b"".join(_bytes(1, _text(2, one) if isinstance(one, str) else _number(1, one)) for one in shape)
    return _bytes(number, _text(1, name) + _bytes(2, _bytes(1, _number(1, kind) + _bytes(2, sizes))))
