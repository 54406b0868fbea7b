"""Folders that are no source say what they are and what to do: adapters, decoders, CSR encoders."""

from collections.abc import Callable
from pathlib import Path

import decoders
import pytest
import tiny
from sentence_transformers import SparseEncoder
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder

from vtkit.encoder.checkpoint import load_encoder, load_source_tokenizer, load_with_new_head
from vtkit.encoder.dense import load_dense
from vtkit.system.errors import DataError


@pytest.mark.parametrize("make", [decoders.qwen3, decoders.embedding_gemma])
def test_a_decoder_is_named_with_what_to_do(make: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = make(tmp_path)
    for load in (load_source_tokenizer, load_encoder, load_with_new_head):
        with pytest.raises(DataError, match=r"is a (qwen3|gemma3_text) model, an architecture without a masked"):
            load(str(folder))


def test_a_csr_encoder_is_named_with_what_to_do(tmp_path: Path) -> None:
    csr = [Transformer(str(tiny.body(tmp_path / "body"))), Pooling(32, "mean"), SparseAutoEncoder(32, 64, 8)]
    SparseEncoder(modules=csr, device="cpu").save(str(tmp_path / "csr"))
    with pytest.raises(DataError, match=r"is a CSR encoder.*Name the embedder that it was made from"):
        load_encoder(str(tmp_path / "csr"))
    with pytest.raises(DataError, match=r"a sparse encoder, whose dimensions are .* or an autoencoder's"):
        load_with_new_head(str(tmp_path / "csr"))


@pytest.mark.parametrize("modules", [True, False])
def test_an_adapter_is_named_with_what_to_do(modules: bool, tmp_path: Path) -> None:
    folder = tiny.dense(tmp_path / "adapter")
    (folder / "config.json").unlink()
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "some/model"}')
    if not modules:
        (folder / "modules.json").unlink()
    for load in (load_encoder, load_with_new_head, lambda name: load_dense(name, "evaluate.peers")):
        with pytest.raises(DataError, match=r"holds an adapter \(LoRA\).*Merge it into that model with peft"):
            load(str(folder))
