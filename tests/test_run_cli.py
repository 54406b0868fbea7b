"""The main job through the command line, on real text: run, rerun, kill, search, explain, and what users get wrong.

The encoders are tiny (one layer, 32 wide) and learn nothing worth quoting; what is tested is that every stage does
its work, that nothing is repeated, and that a killed run ends in the numbers of an undisturbed one.
"""

import html
import json
import os
import shutil
import subprocess
from pathlib import Path

import command_line
import pytest

from vtkit import search_run
from vtkit.system.errors import VtkitError

DATA = Path(__file__).resolve().parents[1] / "recipes" / "quickstart_data"
SETTINGS = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "COLUMNS": "200"}

TRAINING = "steps = 20\nbatch_size = 8\nmax_length = 32\n"
CALIBRATE = "[calibrate]\ntarget_activation = 0.1\n"
ENGLISH = f"""
[recipe]
name = "english"
language = "en"
[source.scratch]
layers = 1
hidden = 32
heads = 2
feed_forward = 64
max_length = 64
[vocabulary]
kind = "trained"
corpus = ["{DATA}/elements-en"]
size = 1200
[casing]
input = "lowercase"
[adapt]
corpus = ["{DATA}/elements-en"]
train = "all"
{TRAINING}learning_rate = 1e-3
{CALIBRATE}"""

KOREAN = f"""
[recipe]
name = "korean"
language = "ko"
[source]
recipe = "english.toml"
[vocabulary]
kind = "trained"
corpus = ["{DATA}/elements-ko"]
size = 2600
[transfer]
method = "parallel"
parallel.files = ["{DATA}/parallel-en-ko.tsv"]
[adapt]
objective = ["align", "crop"]
corpus = ["{DATA}/elements-ko"]
{TRAINING}checkpoint_every = 5
{CALIBRATE}[finetune]
data = "{DATA}/elements-ko"
steps = 20
batch_size = 8
hard_negatives = 1
document_length = 32
learning_rate = 1e-3
checkpoint_every = 5
[index]
document_length = 32
[evaluate]
max_queries = 60
sets = ["{DATA}/elements-ko"]
"""


def vtkit(folder: Path, *arguments: str, check: int | None = 0, typed: str = "") -> subprocess.CompletedProcess[str]:
    """The command line as a user calls it, in ``folder``."""
    done = command_line.call(folder, arguments, {**os.environ, **SETTINGS}, typed)
    if check is not None:
        assert done.returncode == check, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert "bug in vtkit" not in done.stderr, done.stderr
    return done


def write_recipes(folder: Path) -> None:
    (folder / "english.toml").write_text(ENGLISH, encoding="utf-8")
    (folder / "korean.toml").write_text(KOREAN, encoding="utf-8")


def numbers(folder: Path) -> dict[str, object]:
    """What a run found, without times and versions."""
    report = json.loads((folder / "runs" / "korean" / "report.json").read_text("utf-8"))
    return {name: report[name] for name in ("results", "vocabulary", "curves", "calibration", "sparsity", "neighbours")}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the recipe ran to its end undisturbed."""
    folder = tmp_path_factory.mktemp("finished")
    write_recipes(folder)
    vtkit(folder, "run", "korean.toml")
    return folder


def test_no_damage_to_a_run_that_is_handed_over_changes_its_results(finished: Path, tmp_path: Path) -> None:
    alone = Path(shutil.copytree(finished / "runs" / "korean", tmp_path / "korean"))

    def found() -> list[tuple[str, float, str]]:
        results = search_run(alone, "금의 녹는점") + search_run(alone, "gold", query_language="en")
        return [(each.id, each.score, each.text) for of_query in results for each in of_query]

    before, noticed = found(), set()
    for path in [path for path in sorted(alone.rglob("*")) if path.is_file() and path.stat().st_size]:
        raw = path.read_bytes()
        for place in (len(raw) // 2, len(raw) - 3):
            path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
            try:
                assert found() == before, path
            except VtkitError as error:
                assert str(path.parent) in str(error)  # noqa: PT017
                noticed.add(path.relative_to(alone).as_posix())
        path.write_bytes(raw)
    assert found() == before
    assert noticed >= {
        "run.json", "model/model.safetensors", "bridge/translations.npz", "index/manifest.json",
        *(f"index/elements-ko/{name}" for name in ("index.json", "generations/1/documents.jsonl")),
        *(f"index/elements-ko/generations/1/postings/{name}.npy" for name in ("starts", "entries", "largest")),
    }  # fmt: skip


def test_a_run_leaves_model_index_runs_and_report(finished: Path) -> None:
    run = finished / "runs" / "korean"
    assert {path.name for path in run.iterdir()} >= {
        "model", "index", "trec", "report.md", "report.html", "report.json", "recipe.resolved.toml", "versions.json",
        "run.log",
    }  # fmt: skip
    judged = {path.name.removesuffix(".trec.gz") for path in (run / "trec" / "elements-ko").iterdir()}
    assert judged == {"source", "transfer", "adapt", "calibrate", "finetune", "bm25", "bm25-words", "hybrid"}
    report = json.loads((run / "report.json").read_text("utf-8"))
    (result,) = report["results"]
    assert result["queries"] == 60
    assert result["documents"] == 575
    by_model = {row["system"]: row["measures"] for row in result["rows"]}
    assert by_model["BM25"]["nDCG@10"] > 0.3
    assert all(0 <= value <= 1 for row in by_model.values() for value in row.values())
    assert sum(report["vocabulary"]["methods"].values()) == report["vocabulary"]["target_size"]
    analysis = report["vocabularies"]
    assert analysis["target"]["size"] == report["vocabulary"]["target_size"]
    assert analysis["source"]["size"] == report["vocabulary"]["source_size"]
    assert analysis["documents"]["texts"] == analysis["documents"]["of"] == result["documents"]
    assert analysis["queries"]["texts"] == analysis["queries"]["of"] >= result["queries"]
    # the English source reads nearly every Korean word as one unknown token
    assert (
        analysis["target"]["queries"]["unknown_tokens"] < 0.05 < 0.5 < analysis["source"]["queries"]["unknown_tokens"]
    )
    last = result["rows"][-1]  # the recipe fine-tunes on the training queries, so that they do not choose
    fusion = last["fusion"]
    assert fusion["kind"] == "snippets"
    assert fusion["weight"] == fusion["snippets"]["weight"] == 0.05  # four steps of training
    assert fusion["snippets"]["pairs"] > 50
    assert result["share_cut"] > 0.5  # paragraphs, cut at 32 tokens
    assert f"{result['share_cut']:.0%} of the documents of elements-ko are cut at 32 tokens" in (
        run / "run.log"
    ).read_text("utf-8")
    assert report["command"][:2] == ["vtkit", "run"]
    last_line = vtkit(finished, "run", "korean.toml").stdout.splitlines()[-1]
    assert last_line.startswith("Do not deploy the encoder: ")  # four steps of training
    assert html.escape(last_line) in (run / "report.html").read_text("utf-8")
    assert len(report["curves"]["finetune"]["loss"]) == 4


def test_figures_of_sampled_queries_are_labelled_wherever_they_stand(finished: Path) -> None:
    run = finished / "runs" / "korean"
    lines = (DATA / "elements-ko" / "qrels" / "test.tsv").read_text("utf-8").splitlines()[1:]
    whole = len({line.split("\t")[0] for line in lines})
    said = f"sampled: 60 of {whole} queries"
    (result,) = json.loads((run / "report.json").read_text("utf-8"))["results"]
    assert result["not_comparable"] == [said]
    assert f"elements-ko, not comparable ({said}) (60 queries" in vtkit(finished, "run", "korean.toml").stdout
    for page in ("report.html", "report.md", "model/README.md"):
        assert f"elements-ko, not comparable ({said})" in (run / page).read_text("utf-8"), page


def test_a_second_run_does_nothing(finished: Path) -> None:
    again = vtkit(finished, "run", "korean.toml", "--verbose")
    plan = [line for line in again.stderr.splitlines() if ": done" in line]
    assert len(plan) == 37  # with the stages of the source recipe, and six checks
    assert " run: " not in again.stderr
    (searched,) = [line for line in again.stderr.splitlines() if line.startswith("search it: vtkit search ")]
    assert searched.endswith("/runs/korean 'your query'")
    left = [path.name for path in (finished / "runs" / "korean").iterdir() if path.name.startswith(".")]
    assert set(left) <= {".lock", ".verified.json"}


def test_results_and_verdict_are_on_standard_output_and_progress_is_not(finished: Path) -> None:
    done = vtkit(finished, "run", "korean.toml")
    out, messages = done.stdout.splitlines(), done.stderr
    assert {"BM25", "source model", "after fine-tuning"} <= {line.partition("  ")[0] for line in out}, done.stdout
    assert any(line.startswith("model ") and "nDCG@10" in line for line in out)
    (example,) = [line for line in out if line.startswith("example search: ")]
    assert out[out.index(example) + 1].startswith("  1. ")
    assert "over BM25" in out[-1] or "against BM25" in out[-1]
    assert not {"plan: ", "report: ", "search it: "} & {line.partition(" ")[0] + " " for line in out}
    assert "plan: 0 of 37 steps" in messages
    assert "nDCG@10" not in messages
    planned = vtkit(finished, "run", "korean.toml", "--set", "adapt.steps=21", "--dry-run")
    assert planned.stdout.startswith("plan: ")
    assert planned.stderr == ""


def test_a_plan_is_five_lines_that_name_each_reason(finished: Path) -> None:
    settings = ("--set", "finetune.learning_rate=2e-3", "--set", "gates.off=ties")
    short = vtkit(finished, "run", "korean.toml", *settings, "--dry-run").stdout.splitlines()
    full = vtkit(finished, "run", "korean.toml", *settings, "--dry-run", "--verbose").stdout.splitlines()
    running = [line.split()[0] for line in full if " run: " in line]
    plan = [line for line in short if line.startswith(("plan: ", "  "))]
    assert len(plan) <= 5
    assert plan[0].startswith(f"plan: {len(running)} of 37 steps to run")
    assert "  finetune: finetune.learning_rate 0.001 -> 0.002" in plan
    named = {stage for line in plan[1:] for stage in line.strip().partition(": ")[0].split(", ")}
    assert named == {step.partition(":")[0] for step in running}
    assert not [line for line in short if "skip: " in line]


def test_a_changed_gate_runs_its_checks_only_and_the_report_quotes_the_new_one(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    arguments = ("run", "korean.toml", "--set", "gates.off=ties", "--set", "gates.warn=overlap")
    done = vtkit(folder, *arguments).stderr
    made = [line.split("] ")[1] for line in done.splitlines() if line.startswith("[")]
    assert made == ["check:vocabulary", "check:transfer", "check:adapt", "check:calibrate", "report"]
    before, after = (
        json.loads((f / "runs/korean/report.json").read_text("utf-8"))["gates"] for f in (finished, folder)
    )
    gates = [(gate["stage"], gate["gate"]) for gate in before]
    assert gates == [
        *(("vocabulary", gate) for gate in ("overlap", "unicode")),
        *(("transfer", gate) for gate in ("identity", "neighbours")),
        *((stage, gate) for stage in ("transfer", "calibrate") for gate in ("activation", "dimensions", "ties")),
    ]
    assert [(gate["stage"], gate["gate"]) for gate in after] == [gate for gate in gates if gate[1] != "ties"]
    assert [gate["level"] for gate in after][:2] == ["warn", "fail"]


def test_a_gate_that_fails_stops_before_anything_is_trained_however_often_it_only_warned(
    finished: Path, tmp_path: Path
) -> None:
    """A source over Latin letters reads Korean as [UNK]: it cannot work, and that is known before the transfer."""
    shutil.copytree(finished / "runs", tmp_path / "runs")
    write_recipes(tmp_path)
    latin = [f"--set=vocabulary.corpus=['{DATA}/elements-en']", "--set=vocabulary.size=1200", "--until=adapt"]
    warned = vtkit(tmp_path, "run", "korean.toml", *latin, "--set=gates.warn=unicode", "--set=adapt.steps=2").stderr
    assert "gate unicode after vocabulary: fail" in " ".join(warned.split())
    stopped = vtkit(tmp_path, "run", "korean.toml", *latin, "--set=adapt.steps=3", check=1).stderr
    assert [line.split("] ")[1] for line in stopped.splitlines() if line.startswith("[")] == ["check:vocabulary"]
    assert "error: gate unicode after vocabulary" in stopped
    again = vtkit(tmp_path, "run", "korean.toml", *latin, "--set=adapt.steps=3", check=1).stderr
    assert "error: gate unicode after vocabulary" in again


def test_search_and_explain_agree_on_the_score_and_its_tokens(finished: Path) -> None:
    found = json.loads(vtkit(finished, "search", "runs/korean", "금의 녹는점", "--json", "-k", "3").stdout)
    best = found["results"][0]
    why = json.loads(vtkit(finished, "explain", "runs/korean", "금의 녹는점", best["id"], "--json").stdout)
    assert why["score"] == pytest.approx(best["score"], rel=1e-4)
    assert why["rank"] == 1
    parts = [*why["tokens"], *why["special_tokens"]]
    assert sum(product for *_, product in parts) == pytest.approx(why["score"], rel=1e-4)
    assert not {token for token, *_ in why["tokens"]} & {"[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"}
    assert why["tokens"][0][0] == best["tokens"][0][0]
    words = vtkit(finished, "search", "runs/korean", "금의 녹는점", "-k", "2", "--model", "transfer").stdout
    assert "query tokens:" not in words
    assert len(words.splitlines()) == 4  # rank, score, id and title, and below them the beginning of the text
    words = vtkit(finished, "search", "runs/korean", "금의 녹는점", "-k", "2", "--model", "transfer", "--why").stdout
    assert "query tokens:" in words
    assert words.count("  금의  [encoder ") == words.count("  녹는점  [encoder ") == 2
    missing = vtkit(finished, "explain", "runs/korean", "금", "nothing-like-it", check=1)
    assert "no document 'nothing-like-it'" in missing.stderr
    assert "no index for 'best'" in vtkit(finished, "search", "runs/korean", "금", "--model", "best", check=1).stderr
    assert "is not a vtkit run" in vtkit(finished, "search", "runs", "금", check=1).stderr


def test_many_queries_are_searched_as_each_alone(finished: Path) -> None:
    """From a file as TREC lines, from one as JSON lines, from standard input as typed at the prompt."""
    queries = {"a": "금의 녹는점", "b": "철"}
    (finished / "q.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in queries.items()), "utf-8")
    (finished / "q.jsonl").write_text(
        "".join(json.dumps({"_id": name, "text": text}) + "\n" for name, text in queries.items()), "utf-8"
    )
    (finished / "q.txt").write_text("\n".join(["", *queries.values()]), "utf-8")
    alone = {
        name: json.loads(vtkit(finished, "search", "runs/korean", text, "--json", "--top", "3").stdout)["results"]
        for name, text in queries.items()
    }
    call = ["search", "runs/korean", "--top", "3", "--batch"]
    trec = [line.split() for line in vtkit(finished, *call, "q.tsv").stdout.splitlines()]
    lines = [(query, "Q0", one["id"], str(one["rank"])) for query, found in alone.items() for one in found]
    assert [tuple(line[:4]) for line in trec] == lines
    assert [float(line[4]) for line in trec] == pytest.approx([one["score"] for f in alone.values() for one in f])
    for file, names in (("q.jsonl", ["a", "b"]), ("q.txt", ["2", "3"])):
        found = [json.loads(line) for line in vtkit(finished, *call, file, "--json").stdout.splitlines()]
        assert [one["id"] for one in found] == names
        for one, expected in zip(found, alone.values(), strict=True):
            assert [result["id"] for result in one["results"]] == [result["id"] for result in expected]


def test_without_a_query_one_is_read_after_the_other(finished: Path) -> None:
    typed = "금의 녹는점\n\n:top 1\n철\n:explain 1\n:explain 7\n:top x\n"
    done = vtkit(finished, "search", "runs/korean", "--top", "2", "--why", typed=typed)
    assert done.stdout.count("query tokens:") == 3
    assert sum(line.startswith(("  1  ", "  2  ")) for line in done.stdout.splitlines()) == 3
    assert "rank 1" in done.stdout
    assert "needs a number, the rank of a result above" in done.stderr


def test_empty_queries_and_those_of_a_file_are_checked_all_at_once(finished: Path) -> None:
    for arguments in (("search", "runs/korean", " \t"), ("explain", "runs/korean", "\u200b", "x")):
        assert "there is nothing to search for" in vtkit(finished, *arguments, check=2).stderr
    (finished / "bad.tsv").write_text("a\tone\nno tab\na\ttwo\nb\t \nc d\tthree\n", "utf-8")
    (finished / "none.txt").write_text("\n \n", "utf-8")
    message = vtkit(finished, "search", "runs/korean", "--batch", "bad.tsv", check=1).stderr
    for part in ("4 problems", "has one column", "occurs twice", "has no text", "white space"):
        assert part in message
    assert "has no query" in vtkit(finished, "search", "runs/korean", "--batch", "none.txt", check=1).stderr
    assert "a file of them" in vtkit(finished, "search", "runs/korean", "철", "--batch", "none.txt", check=2).stderr


MOMENTS = (
    "adapt-*/checkpoints/checkpoint-10/vtkit-complete",
    "finetune-*/checkpoints/checkpoint-5/optimizer.pt",
    "evaluate-finetune-*",
)


def test_a_run_killed_again_and_again_ends_in_the_same_numbers(finished: Path, tmp_path: Path) -> None:
    write_recipes(tmp_path)
    store = Path("runs", "artifacts")
    steps = json.loads((finished / "runs" / "korean" / "run.json").read_text("utf-8"))["steps"]
    for name, output in steps.items():
        if "/" in name or name == "vocabulary":  # done before the first kill: those of the English recipe
            shutil.copytree(finished / store / output, tmp_path / store / output)
    partial = tmp_path / store / ".partial"
    for moment in MOMENTS:  # as soon as it is seen among the outputs that are being made
        arguments, environment = ["run", "korean.toml"], {**os.environ, **SETTINGS}
        command_line.killed(tmp_path, arguments, environment, lambda moment=moment: list(partial.glob(moment)))
    plan = vtkit(tmp_path, "run", "korean.toml", "--dry-run", "-v").stdout
    assert "skip: done" in plan
    vtkit(tmp_path, "run", "korean.toml")
    assert numbers(tmp_path) == numbers(finished)


@pytest.mark.parametrize(
    ("option", "code", "message"),
    [
        ("--set=finetune.data=nowhere", 2, "nowhere"),
        ("--set=finetune.bacth_size=8", 2, "Did you mean 'batch_size'?"),
        ("--set=evaluate.measures=['nDCG@ten']", 2, "nDCG@ten"),
        ("--set=adapt.corpus=['latin1.txt']", 1, "latin1.txt"),
        ("--until=train", 2, "there is no such stage"),
    ],
)
def test_what_users_get_wrong_is_one_message(finished: Path, option: str, code: int, message: str) -> None:
    (finished / "latin1.txt").write_bytes("caf\xe9 au lait\n".encode("latin-1"))
    before = set((finished / "runs" / "artifacts").iterdir())
    done = vtkit(finished, "run", "korean.toml", option, check=code)
    assert sum(line.startswith("error: ") for line in done.stderr.splitlines()) == 1
    assert message in done.stderr
    assert set((finished / "runs" / "artifacts").iterdir()) == before
