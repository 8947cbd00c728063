"""A libcst module in; the byte span of every node of it out."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, CodeSpan


class _Spans(ByteSpanPositionProvider):
    """libcst's own provider, asked directly: MetadataWrapper would walk the whole tree once more for nothing."""

    def of(self, module: cst.Module) -> Mapping[cst.CSTNode, CodeSpan]:
        self._gen_impl(module)
        return self._computed  # type: ignore[return-value]


def positions(module: cst.Module) -> Mapping[cst.CSTNode, CodeSpan]:
    """Offsets into the module's code as UTF-8, without a byte order mark."""
    return _Spans().of(module)
