"""Tokenizers in every form on disk: vtkit's tokens are those of the library that owns the form."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from generated import ADDED, Layout, cases, layouts, texts, tokenizer_of
from hypothesis import given
from transformers import AutoTokenizer

from vtkit.vocabulary.existing import load_tokenizer
from vtkit.vocabulary.saved import SETTINGS, save_tokenizer
from vtkit.vocabulary.tokenizer_file import TokenizerFile


@cases(150)
@given(layouts(), texts(*ADDED))
def test_a_tokenizer_json_is_read_as_tokenizers_reads_it_and_again_once_saved(layout: Layout, some: list[str]) -> None:
    owner = tokenizer_of(layout)
    with TemporaryDirectory() as work:
        (Path(work) / "tokenizer.json").write_text(json.dumps(layout), encoding="utf-8")
        tokenizer = load_tokenizer(work, require_roles=False)
        save_tokenizer(tokenizer, Path(work) / "saved")
        again = AutoTokenizer.from_pretrained(f"{work}/saved", local_files_only=True)
        alone = TokenizerFile.load(Path(work) / "saved", json.loads((Path(work) / "saved" / SETTINGS).read_text()))
    assert tokenizer.get_vocab() == again.get_vocab() == alone.get_vocab() == owner.get_vocab()
    for text in some:
        wanted = owner.encode(text, add_special_tokens=False).ids
        roles = [owner.token_to_id(token) for token in ("[CLS]", "[SEP]")]
        for read in (tokenizer, again, alone):
            assert read([text], add_special_tokens=False).encodings[0].ids == wanted
            assert read([text]).encodings[0].ids == [roles[0], *wanted, roles[1]]
