"""Document expansion: the words that a text is expanded by, and how it is read with them behind it. A text keeps at
least half of the tokens that are read of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from transformers import PreTrainedTokenizerFast

from vtkit.data.retrieval import Document, RetrievalSet
from vtkit.data.text import batches
from vtkit.data.unspaced import begins_unspaced
from vtkit.encoder.documents import document_frequencies
from vtkit.encoder.masked import masked_dimensions
from vtkit.encoder.truncation import shortened, whole_encodings
from vtkit.search.analysers import STOP_WORDS
from vtkit.system.outputs import kept_array
