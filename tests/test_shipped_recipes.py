"""The recipes that ship with vtkit: each passes the check once what it needs is there, and says what it was checked
against."""

import json
from operator import attrgetter
from pathlib import Path

import pytest
import tiny
from command_line import succeeds

from vtkit.data.collections import judgements
from vtkit.encoder.checkpoint import save_encoder
from vtkit.recipe.load import load_recipe
from vtkit.recipe.sweep import grid_of
from vtkit.settings.finetune import SIDES
from vtkit.settings.named import named_things
from vtkit.settings.transfer import SemanticTransfer
from vtkit.settings.vocabulary import TrainedVocabulary
from vtkit.training.document_expansion.expansions import LIKELIEST
from vtkit.training.document_expansion.tilde import EPOCHS, POSITIVES

RECIPES = sorted((Path(__file__).parent.parent / "recipes").glob("*.toml"))


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One small thing of each kind that a recipe can name."""
    folder = tmp_path_factory.mktemp("things")
    save_encoder(tiny.encoder(folder / "work"), folder / "model")
    (folder / "set" / "qrels").mkdir(parents=True)
    (folder / "set" / "corpus.jsonl").write_text(json.dumps({"_id": "d", "title": "", "text": "river stone"}))
    (folder / "set" / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "river"}))
    for split in ("train", "test", "dev"):
        (folder / "set" / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    (folder / "text.txt").write_text("river stone\n")
    (folder / "pairs.tsv").write_text("river\tstone\n")
    (folder / "vectors.vec").write_text("1 2\nriver 0.5 0.5\n")
    return {
        "model": folder / "model", "tokenizer": folder / "model", "retrieval": folder / "set",
        "corpus": folder / "text.txt", "pairs": folder / "pairs.tsv", "vectors": folder / "vectors.vec",
    }  # fmt: skip


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_passes_the_check_where_its_things_are_there(path: Path, things: dict[str, Path]) -> None:
    options = ["--set", "sweep=none"]  # whose cells are loaded below
    recipe = load_recipe(path).recipe
    for thing in named_things(recipe):
        if not Path(thing.value).exists() and thing.what != "recipe":
            listed = isinstance(attrgetter(thing.setting)(recipe), tuple)
            value = json.dumps([str(things[thing.what])] if listed else str(things[thing.what]))
            options += ["--set", f"{thing.setting}={value}"]
    succeeds("recipe", "check", str(path), *options)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_cell_of_a_sweep_is_a_recipe(path: Path) -> None:
    if load_recipe(path).recipe.sweep is None:
        return
    cells = grid_of(path).cells
    assert len({cell.name for cell in cells}) == len(cells) > 1


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_no_recipe_asks_for_a_precision_that_some_machines_compute_slowly(path: Path) -> None:
    assert load_recipe(path).recipe.index.precision == "float32"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_penalties_are_made_for_the_loss(path: Path) -> None:
    """The papers that train with InfoNCE have λ of 1e-4 to 8e-4; MarginMSE has 0.08 to 0.5, KL 0.006 to 0.009. The
    chemistry of the vocabulary-transfer paper, which has other ones in its authors' code, is looked at below."""
    section = load_recipe(path).recipe.finetune
    if path.stem == "chemistry_bpe":
        return
    if section is None:
        ending_before_it = ("quickstart", "without_judgements", "from_embedder", "cai_gpl", "sembridge_bridge")
        assert path.stem in ending_before_it
    elif section.loss == ("kl",):
        assert path.stem == "csv_unicoil" or 0.006 <= section.penalties("document")["flops"] <= 0.009
    else:
        least, most = {"infonce": (1e-5, 1e-3), "margin_mse": (0.08, 0.5)}[section.loss[0]]
        assert all(least <= strength <= most for side in SIDES for strength in section.penalties(side).values())


@pytest.mark.parametrize("name", ["biomedical_adalm", "science_adalm"])
def test_cai_adapts_a_masked_language_model_before_it_is_trained_to_retrieve(name: str) -> None:
    recipe = load_recipe(next(path for path in RECIPES if path.stem == name)).recipe
    assert recipe.source.model == getattr(recipe.vocabulary, "tokenizer", None) == "google-bert/bert-base-uncased"
    assert recipe.transfer.methods == ("subtoken",)
    assert recipe.transfer.bias.method in ("mixture", "copy-overlap")  # both keep old tokens' biases to the bit
    assert (recipe.adapt.train, recipe.adapt.mask_rate, recipe.adapt.new_token_weight) == ("all", 0.15, 1.0)
    assert recipe.calibrate is None
    assert recipe.finetune.flops_definition == "cai"
    assert recipe.index.document_weighting == "cai-paper"


@pytest.mark.parametrize("name", ["modernbert_to_uncased", "vt_backbones", "vt_initialisation"])
def test_vocabulary_transfer_has_the_settings_that_its_paper_prints(name: str) -> None:
    recipe = load_recipe(next(path for path in RECIPES if path.stem == name)).recipe
    assert (recipe.transfer.method, recipe.transfer.bias.method) == ("semantic", "zscore")
    assert recipe.finetune.flops_definition == "splade"
    assert recipe.transfer.settings_of(SemanticTransfer).alpha == 2.0
    assert recipe.adapt.steps * recipe.adapt.warmup == 4000
    assert recipe.adapt.train == "embeddings"
    assert (recipe.adapt.mask_rate, recipe.adapt.new_token_weight, recipe.adapt.learning_rate) == (0.3, 2.0, 3e-4)
    assert recipe.calibrate.target_activation == 0.4
    assert (recipe.finetune.steps, recipe.finetune.document_length) == (150_000, 256)
    assert recipe.index.document_length == 512


def test_chemistry_has_the_settings_of_its_authors_code() -> None:
    recipe = load_recipe(next(path for path in RECIPES if path.stem == "chemistry_bpe")).recipe
    assert (recipe.transfer.methods, recipe.transfer.bias.method) == (("subtoken",), "zscore")
    assert recipe.adapt.corpus == ("datasets:BASF-AI/dolma-chem-only-query-generated::train:paragraph",)
    assert (recipe.calibrate.target_activation, recipe.calibrate.definition) == (0.4, "pooled")
    section = recipe.finetune
    assert section.data == "datasets:BASF-AI/dolma-chem-only-query-generated::train:generated_query:paragraph"
    assert section.steps is not None
    assert 0 <= section.steps * section.batch_size - 200_000 < section.batch_size
    assert (section.batch_size, section.warmup, section.learning_rate) == (128, 0.1, 2e-5)
    assert (section.loss, section.query_lambda, section.document_lambda) == (("infonce",), (0.0,), (3e-3,))
    lengths = {section.query_length, section.document_length, recipe.index.query_length, recipe.index.document_length}
    assert lengths == {512}
    assert (recipe.index.top_dimensions, recipe.index.query_top_dimensions) == (128, 128)
    assert recipe.evaluate.sets == ("chemteb:hotpotqa", "chemteb:nq")


def test_corpus_specific_vocabularies_have_the_settings_that_their_paper_prints() -> None:
    splade, unicoil = (load_recipe(path).recipe for path in RECIPES if path.stem.startswith("csv_"))
    for recipe in (splade, unicoil):
        assert recipe.source.scratch is not None
        assert isinstance(recipe.vocabulary, TrainedVocabulary)
        assert (recipe.vocabulary.algorithm, recipe.vocabulary.size) == ("wordpiece", 100_000)
        assert (recipe.adapt.objective, recipe.adapt.train, recipe.adapt.mask_rate) == ("mlm", "all", 0.15)
        assert recipe.finetune.loss == ("kl",)
        assert recipe.finetune.teachers
    assert (splade.source.kind, unicoil.source.kind) == ("splade", "unicoil")
    assert (splade.finetune.query_encoder, splade.finetune.steps) == ("binary", 50_000)
    assert splade.finetune.penalties("document") == {"flops": 0.009}
    assert not splade.expands
    assert (LIKELIEST, POSITIVES, EPOCHS) == (200, 10, 5)
    assert unicoil.expand_documents.method == "tilde-aug"
    assert unicoil.finetune.epochs == 5.0
    assert unicoil.finetune.penalties("query") == unicoil.finetune.penalties("document") == {}


def test_the_quickstart_is_judged_on_every_question_that_its_source_is_not_trained_on() -> None:
    data = RECIPES[0].parent / "quickstart_data"
    judged = {
        (language, split): set(judgements(str(data / f"elements-{language}"), split))
        for language in ("en", "ko")
        for split in ("train", "test")
    }
    queries = [json.loads(line)["_id"] for line in (data / "elements-ko" / "queries.jsonl").open(encoding="utf-8")]
    trained, evaluated = judged["en", "train"], judged["ko", "test"]
    assert not trained & evaluated  # the Korean questions are translations of the English ones, under the same ids
    assert trained | evaluated == set(queries)
    assert judged["ko", "train"] == trained  # so none of these chooses a weight
    assert len(evaluated) >= 2 * len(trained)
