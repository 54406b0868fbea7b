"""Recipes damaged in every way: ``vtkit recipe check`` answers with a message and an exit code, and soon."""

import random
import re
import shutil
import time
from pathlib import Path

import pytest

from vtkit.commands.recipe import check_recipe
from vtkit.recipe.load import MOST_BYTES, load_recipe
from vtkit.recipe.tables import all_settings, field_called, tables_in
from vtkit.settings.recipe import Recipe
from vtkit.system.errors import RecipeError, VtkitError

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
SECONDS = 20.0
"""Of the processor: forty times what the longest takes here, far below what is quadratic in 5,000 lines."""

VALUES = [
    "0", "-1", "1", "1e308", "-1e308", "nan", "inf", "99999999999999999999", "0o7", '""', '"\\u0000"', '"\\u001b[31m"',
    '"\\U0010ffff"', f'"{"x" * 5000}"', '"~\\u0000/a.txt"', "'''\n'''", '"~nobody/a"', "true", "[]", "{}", "[[]]",
    "[1, 'a', true]", "[nan]", "{a = 1}", "[{}]", "1979-05-27T07:32:00Z", "07:32:00", "[" * 100 + "]" * 100,
    "{a = " * 100 + "1" + "}" * 100, "{a." + "a." * 100 + "a = 1}", "'unclosed", '["a", "a"]', '"./absent.txt"',
    '"a/b/c"', '"../"', '"/dev/zero"', '"datasets:"', '"miracl:xx"', '"none"', "none",
    '["nDCG@99999999999999999999"]', '["nDCG@0", "nDCG@-1", "P@1.5", "x", "alpha_nDCG@5"]', '["AP(rel=0)", "((("]',
]  # fmt: skip
LINES = [
    "[adapt]", "[[adapt]]", "[a.b.c]", f"[{'a.' * 50}a]", f"{'a.' * 50}a = 1", "=", "[", "x", 'extends = "."',
    'extends = ["a", 1]', 'extends = "/dev/null"', '"a\\u001b[31m" = 1', "'' = 1", "literal[x = 1", '"literal[x" = 1',
    '"tuple[" = 1', "\t\0", "\ufeff", "\u202e = 1", 'transfer = "mean"', "adapt = 1", "recipe.name.x = 1", "\r",
]  # fmt: skip


def check(path: Path, *overrides: str) -> tuple[int, str]:
    """Exit code and message of ``vtkit recipe check``; anything else than an error with a message is raised."""
    try:
        check_recipe(path, list(overrides))
    except VtkitError as error:
        return error.exit_code, str(error)
    return 0, ""


def expect_an_answer(path: Path, *overrides: str) -> str:
    started = time.process_time()
    code, message = check(path, *overrides)
    assert time.process_time() - started < SECONDS
    assert code in (0, 2)
    assert len(message) < 50_000
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\x1b\u202e]", message)
    return message


def mutated(text: str, draw: random.Random) -> bytes:
    """``text`` with one to three things wrong."""
    lines = text.splitlines()
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(lines))
        settings = [number for number, line in enumerate(lines) if re.match(r"\w+ = ", line)]
        match draw.randrange(8):
            case 0 | 1 | 2 if settings:
                place = draw.choice(settings)
                lines[place] = f"{lines[place].partition('=')[0]}= {draw.choice(VALUES)}"
            case 3:
                lines.insert(place, draw.choice(LINES))
            case 4:
                lines.insert(place, lines[draw.randrange(len(lines))])
            case 5:
                del lines[place]
            case 6 if settings:
                place = draw.choice(settings)
                lines[place] = f"{draw.choice(all_settings())[-1]} = {draw.choice(VALUES)}"
            case _:
                lines[place] = "".join(
                    letter if draw.random() > 0.05 else chr(draw.randrange(0, 0x250)) for letter in lines[place]
                )
        lines = lines or [""]
    raw = bytearray("\n".join(lines).encode("utf-8", "replace"))
    if draw.random() < 0.15 and raw:
        raw[draw.randrange(len(raw))] = draw.randrange(256)
    return bytes(raw)


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipes")
    for path in RECIPES.glob("*.toml"):
        shutil.copy(path, folder)
    return folder


@pytest.mark.parametrize("seed", range(8))
def test_mutated_recipes_are_checked_or_refused(recipes: Path, seed: int) -> None:
    draw = random.Random(seed)
    texts = [path.read_text("utf-8") for path in sorted(RECIPES.glob("*.toml"))]
    for number in range(38):
        path = recipes / f"mutated-{seed}-{number}.toml"
        path.write_bytes(mutated(draw.choice(texts), draw))
        expect_an_answer(path)


def test_settings_of_the_command_line_are_checked_or_refused(recipes: Path) -> None:
    draw = random.Random(0)
    keys = [".".join(setting) for setting in all_settings()] + ["a", ".", "a." * 50 + "a", "\ud800", "vocabulary", ""]
    for _ in range(100):
        expect_an_answer(recipes / "quickstart.toml", f"{draw.choice(keys)}={draw.choice(VALUES)}".replace("\0", ""))


def test_every_number_has_bounds() -> None:
    def unbounded(table: type, above: str) -> list[str]:
        found = []
        for name, field in table.model_fields.items():
            for inner in tables_in(field.annotation):
                found += unbounded(inner, f"{above}{name}.")
            if {int, float} & {field.annotation, *getattr(field.annotation, "__args__", ())} or (
                "int" in str(field.annotation) or "float" in str(field.annotation)
            ):
                known = field_called(name, [table])
                marks = str(known.metadata if known else "") + str(field.annotation)
                if not re.search(r"\bL[te]\(|\bl[te]=|Literal", marks):
                    found.append(f"{above}{name}")
        return found

    assert unbounded(Recipe, "") == []


def refused(path: Path) -> str:
    started = time.process_time()
    with pytest.raises(RecipeError) as error:
        load_recipe(path)
    assert time.process_time() - started < SECONDS
    return str(error.value)


def test_files_that_are_no_recipes_are_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    path.write_text("# " + "x" * 10_000_000)
    assert f"more than {MOST_BYTES} bytes" in refused(path)
    path.write_bytes(bytes(range(256)) * 100)
    assert "not valid" in refused(path)
    assert f"more than {MOST_BYTES} bytes" in refused(Path("/dev/zero"))
    path.write_text(f'extends = "{"x" * 5000}"\n')
    assert "there is no file" in refused(path)


def test_many_problems_are_counted_and_the_first_shown(recipes: Path) -> None:
    path = recipes / "many.toml"
    text = (RECIPES / "quickstart.toml").read_text("utf-8")
    path.write_text(text + "[report.x]\n" + "".join(f"key{number} = 1\n" for number in range(5000)))
    expect_an_answer(path)
    path.write_text(text + "".join(f"[section{number}]\na = 1\n" for number in range(3000)))
    message = expect_an_answer(path)
    assert "section0: unknown section" in message
    assert "... and 2970 more" in message


def test_what_is_refused_is_named_as_it_stands(recipes: Path) -> None:
    path = recipes / "named.toml"
    text = (RECIPES / "quickstart.toml").read_text("utf-8").replace("[adapt]", '[adapt]\n"a\\u001b[31mb" = 1', 1)
    path.write_text(text)
    assert r'"adapt.a\u001b[31mb": unknown setting' in expect_an_answer(path)
