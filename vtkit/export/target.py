"""The engines that a model and its index are handed over to."""

from __future__ import annotations

from typing import Literal

Target = Literal["onnx", "qdrant", "elasticsearch", "opensearch", "postgres", "lucene", "milvus", "vespa"]
"""Each has a file of its name in this folder, and ``scripts/TARGET.py`` with what its user runs."""
