"""Encodes spans as OTLP's ExportTraceServiceRequest in protobuf. Pure functions.

Written here because the messages are few and stable, and the library that has them is larger than all the rest of tracing.
The tests parse the result with that library.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from agents_app.tracing import Context, Span, Value

CONTENT_TYPE = "application/x-protobuf"
_SCOPE = "agenthost"
_ERROR = 2


def request(resource: Mapping[str, Value], spans: Iterable[Span]) -> bytes:
    """The body of one export."""
    scope = _text(1, _SCOPE)
    of_scope = _message(1, scope) + b"".join(_message(2, _span(each)) for each in spans)
    return _message(1, _message(1, _attributes(1, resource)) + _message(2, of_scope))


def _span(span: Span) -> bytes:
    assert span.context is not None
    pieces = [
        _bytes(1, bytes.fromhex(span.context.trace_id)),
        _bytes(2, bytes.fromhex(span.context.span_id)),
        _text(3, span.context.state) if span.context.state else b"",
        _bytes(4, bytes.fromhex(span.parent_id)) if span.parent_id else b"",
        _text(5, span.name),
        _number(6, span.kind),
        _fixed64(7, span.began),
        _fixed64(8, span.ended),
        _attributes(9, span.attributes),
        *(_message(13, _link(each)) for each in span.links),
        _message(15, _number(3, _ERROR)) if span.error is not None else b"",
        _fixed32(16, _flags(span.context)),
    ]
    return b"".join(pieces)


def _link(context: Context) -> bytes:
    state = _text(3, context.state) if context.state else b""
    ids = _bytes(1, bytes.fromhex(context.trace_id)) + _bytes(2, bytes.fromhex(context.span_id))
    return ids + state + _fixed32(6, _flags(context))


def _flags(context: Context) -> int:
    return int(context.sampled)


def _attributes(field: int, attributes: Mapping[str, Value]) -> bytes:
    return b"".join(_message(field, _text(1, name) + _message(2, _value(value))) for name, value in attributes.items())


def _value(value: Value) -> bytes:
    match value:
        case str():
            return _text(1, value)
        case bool():
            return _number(2, int(value))
        case int():
            # Negative numbers are their two's complement of 64 bits.
            return _number(3, value & 0xFFFF_FFFF_FFFF_FFFF)
        case float():
            return _key(4, 1) + struct.pack("<d", value)
        case _:
            return _message(5, b"".join(_message(1, _text(1, each)) for each in value))


def _key(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _number(field: int, number: int) -> bytes:
    return _key(field, 0) + _varint(number)


def _fixed64(field: int, number: int) -> bytes:
    return _key(field, 1) + struct.pack("<Q", number)


def _fixed32(field: int, number: int) -> bytes:
    return _key(field, 5) + struct.pack("<I", number)


def _bytes(field: int, data: bytes) -> bytes:
    return _key(field, 2) + _varint(len(data)) + data


_message = _bytes


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode("utf-8", "replace"))
