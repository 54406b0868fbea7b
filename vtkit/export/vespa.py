"""Target ``vespa``: an application package (schema, services, the network for ``splade-embedder``) and a feed.

Vespa's embedder pools the logits itself, always passes token types, and names a dimension after its decoded token. So
the network has an input for types, and ``tokenizer.json`` has no decoder if Vespa encodes queries: the names are then
the tokens themselves.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.encoder.asymmetric import WholeEncoder
from vtkit.export.documents import Collection, Entry, json_line
from vtkit.export.features import NAMES, model_stays_outside, numbered, token_names
from vtkit.export.network import MODEL
from vtkit.export.readme import Section
from vtkit.vocabulary.tokenizer_file import FILE

if TYPE_CHECKING:
    from vtkit.export.portable import Portable, Source


def write_for_vespa(source: Source, portable: Portable, collection: Collection | None, folder: Path) -> list[Section]:
    """Write ``application/`` and ``feed/part-00000.jsonl`` and so on."""
    names = token_names(source.encoder)
    side = source.encoder.query_side if isinstance(source.encoder, WholeEncoder) else None
    why = model_stays_outside(
        source, portable, names,
        (side is not None, "the network does not encode its queries"),
        (not portable.pools_elsewhere, "Vespa pools the logits itself, which gives different weights here"),
    )  # fmt: skip
    application = folder / "application"
    (application / "schemas").mkdir(parents=True, exist_ok=True)
    (application / "schemas" / "doc.sd").write_text(_SCHEMA, encoding="utf-8")
    embedder = ""
    if why is None:
        models = application / "models"
        models.mkdir(exist_ok=True)
        shutil.copyfile(folder / MODEL, models / MODEL)
        parts = json.loads((folder / FILE).read_text("utf-8"))
        parts |= {"decoder": None, "added_tokens": [token | {"special": False} for token in parts["added_tokens"]]}
        (models / FILE).write_text(json.dumps(parts, ensure_ascii=False), encoding="utf-8")
        embedder = _EMBEDDER.format(length=source.document_length)
    (application / "services.xml").write_text(_SERVICES.format(embedder=embedder), encoding="utf-8")
    if collection is None:
        return [Section("The application", _queries(why))]
    called = numbered(collection.dimensions) if why or names is None else names
    (folder / NAMES).write_text(json.dumps(called, ensure_ascii=False), encoding="utf-8")
    collection.write(folder / "feed", "part-{}.jsonl", lambda entries: _lines(entries, called))
    return [Section("First result", _FIRST), Section("Queries in Vespa", _queries(why))]


def _lines(entries: Iterable[Entry], names: Sequence[str]) -> Iterator[str]:
    for entry in entries:
        fields = {"id": entry.id, "title": entry.title, "text": entry.text, "weights": {"cells": entry.vector(names)}}
        yield json_line({"put": f"id:doc:doc::{entry.number}", "fields": fields})


_SCHEMA = """schema doc {

    document doc {

        field id type string {
            indexing: attribute | summary
        }

        field title type string {
            indexing: summary
        }

        field text type string {
            indexing: summary
        }

        field weights type tensor<float>(term{}) {
            indexing: attribute
        }
    }

    document-summary ids {
        summary id {}
    }

    rank-profile sparse {
        inputs {
            query(q) tensor<float>(term{})
        }
        first-phase {
            expression: sum(query(q) * attribute(weights))
        }
    }
}
"""

_EMBEDDER = """
        <component id="sparse" type="splade-embedder">
            <transformer-model path="models/model.onnx"/>
            <tokenizer-model path="models/tokenizer.json"/>
            <max-tokens>{length}</max-tokens>
            <transformer-output>logits</transformer-output>
        </component>
"""

_SERVICES = """<?xml version="1.0" encoding="utf-8" ?>
<services version="1.0">
    <container id="default" version="1.0">
        <search/>
        <document-api/>{embedder}
    </container>
    <content id="content" version="1.0">
        <min-redundancy>1</min-redundancy>
        <documents>
            <document type="doc" mode="index"/>
        </documents>
    </content>
</services>
"""

_FIRST = """
```bash
pip install onnxruntime tokenizers numpy
vespa deploy application                 # to a Vespa that runs; `vespa config set target local`
for part in feed/*.jsonl; do vespa feed $part; done
python index.py search "a query"         # VESPA=ADDRESS names another than http://localhost:8080
```

The rank profile `sparse` scores every document exactly, by the dot product. `dimensions.json` has the names of the
dimensions. These files follow Vespa's documentation; vtkit's authors did not try them on a server.
"""


def _queries(why: str | None) -> str:
    if why is not None:
        return f"Vespa's `splade-embedder` cannot encode this encoder's queries: {why}. Encode them with `encode.py`."
    return """
`application/services.xml` has the encoder as a `splade-embedder`, so Vespa can encode queries itself:

```bash
vespa query 'yql=select id from doc where true' 'ranking=sparse' 'input.query(q)=embed(sparse, @text)' 'text=a query'
```
"""
