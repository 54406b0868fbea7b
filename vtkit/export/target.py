"""The engines that a model and its index can be exported to."""

from __future__ import annotations

from typing import Literal

Target = Literal["onnx", "qdrant", "elasticsearch", "opensearch", "postgres", "lucene", "milvus", "vespa"]
"""Each has a file with its name in this folder, and ``scripts/TARGET.py`` for its users."""
