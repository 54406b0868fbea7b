"""Mutated recipes: whatever stands in a recipe or behind --set, ``recipe check`` and ``--dry-run`` answer in words."""

import random
from pathlib import Path

from harness import TESTS, Done, Findings, vtkit

CASES = 500
SECONDS = 10.0

VALUES = [
    "-1", "0", "1e308", "-1e308", "nan", "inf", "9" * 30, "9" * 5000, "0x7fffffffffffffff", "true", '""', '" "', "[]",
    "{}", "[[]]", "1979-05-27", '"\\u0000"', '"\\u001b[31mred"', '"\\u202egnirts"', '"' + "x" * 100_000 + '"',
    "[" * 500 + "]" * 500, '"/dev/zero"', '"/proc/self/mem"', '"~"', '"../.."', '"/"', '"."', '"-"', '"--help"',
    '"org/name"', '"datasets:"', '"datasets:a:b:c:d:e"', '"miracl:xx"', '["nDCG@99999999999999999999"]', '["nDCG"]',
    '["@10"]', '["nDCG@-1", "nDCG@-1"]', '["a", 1, true]', '["a", "a"]', "'''\n'''", "1_000", "0b1", "+1", "1e-400",
    '{a = 1}', '"\\ud800"', "99999999999999999999", '"artifacts"', '".."', '"CON"', '"a/b"', '"' + "é" * 300 + '"',
    "[1, 2", '"open', "= =", "#", "\x00", "\x1b[2J",
]  # fmt: skip
KEYS = [
    "unknown", "steps", '"\\u001b[31m"', '""', "a" + ".a" * 500, "learning_rate", "name", "extends", "method", "kind",
    "\x1b[2J", "x" * 10_000, '"a b"', "é",
]  # fmt: skip


def mutated(text: str, draw: random.Random) -> bytes:
    """``text``, a recipe, with one to three things wrong with it."""
    for _ in range(draw.randint(1, 3)):
        lines = text.splitlines()
        at = draw.randrange(len(lines)) if lines else 0
        settings = [number for number, line in enumerate(lines) if "=" in line and not line.lstrip().startswith("#")]
        match draw.choice(("value", "value", "value", "key", "delete", "repeat", "swap", "section", "insert", "join")):
            case "value" if settings:
                at = draw.choice(settings)
                lines[at] = f"{lines[at].split('=')[0]}= {draw.choice(VALUES)}"
            case "key" if settings:
                at = draw.choice(settings)
                lines[at] = f"{draw.choice(KEYS)} = {lines[at].split('=', 1)[1]}"
            case "delete" if lines:
                del lines[at]
            case "repeat" if lines:
                lines.insert(at, lines[at])
            case "swap" if lines:
                other = draw.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case "section":
                lines.insert(at, f"[{draw.choice(['transfer', 'adapt', 'x.y', 'recipe', 'a' + '.a' * 400, 'source'])}]")
            case "insert":
                lines.insert(at, f"{draw.choice(KEYS)} = {draw.choice(VALUES)}")
            case _:
                text = "\n".join(lines)
                cut = draw.randrange(len(text) + 1)
                lines = (text[:cut] + text[cut + draw.randint(0, 20) :]).splitlines()
        text = "\n".join(lines) + "\n"
    raw = bytearray(text.encode("utf-8", errors="surrogatepass"))
    if draw.random() < 0.1 and raw:
        for _ in range(draw.randint(1, 4)):
            raw[draw.randrange(len(raw))] = draw.randrange(256)
    return bytes(raw)


def soak(finished: Path, draw: random.Random) -> Findings:
    """Mutations of the recipes that ship with vtkit and of the tiny one; a tenth through --set and --dry-run."""
    found = Findings("recipes", finished.parent / "recipes.log")
    originals = [path.read_text("utf-8") for path in sorted((TESTS.parent / "recipes").glob("*.toml"))]
    originals += [(finished / "korean.toml").read_text("utf-8")] * 3
    for number in range(CASES):
        folder = finished
        recipe = folder / "mutated.toml"
        recipe.write_bytes(mutated(draw.choice(originals), draw))
        if number % 10 == 0:
            setting = f"{draw.choice(['adapt.steps', 'transfer.bias.method', 'source', 'recipe.name', '', 'a.b', 'x'])}"
            value = draw.choice(VALUES).replace("\x00", "")  # no argument can hold one
            arguments = ("run", "korean.toml", "--dry-run", "--set", f"{setting}={value}")
        elif number % 10 == 1:
            arguments = ("recipe", "show", "mutated.toml")
        else:
            arguments = ("recipe", "check", "mutated.toml")
        done: Done = vtkit(folder, *arguments, limit=120)
        if not found.note(f"{' '.join(arguments)[:200]} (case {number})", done, (0, 1, 2), SECONDS):
            (folder.parent / f"recipe-{number}.toml").write_bytes(recipe.read_bytes())
    recipe.unlink()
    return found
