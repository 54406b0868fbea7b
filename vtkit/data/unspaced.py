"""Scripts without spaces between words: their characters, and the words in a run of them, which come from ICU's
dictionaries and depend on the run alone."""

import re

import regex

IDEOGRAPHS = "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
IDEOGRAPHS += "\U00020000-\U0003347f"
"""Chinese characters, as the inside of a character class."""

KANA = "\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"
"""Hiragana and Katakana, with the mark of a long vowel."""

SOUTH_EAST_ASIA = "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
SOUTH_EAST_ASIA += "\u0e81-\u0ece\u0edc-\u0edf"  # Lao
# Burmese
SOUTH_EAST_ASIA += "\u1000-\u103f\u1050-\u108f\u109a-\u109d\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa76\uaa7a-\uaa7f"
SOUTH_EAST_ASIA += "\u1780-\u17d3\u17d7\u17dc\u17dd"  # Khmer
"""Letters and signs of Thai, Lao, Burmese and Khmer; their digits and punctuation are like those of other scripts."""

UNSPACED = f"{SOUTH_EAST_ASIA}{IDEOGRAPHS}{KANA}"  # all of them
RUN = rf"[{UNSPACED}][{UNSPACED}\p{{M}}]*"  # a run of them, as a pattern

BEHIND = rf"(?<=[{UNSPACED}]|[{UNSPACED}]\p{{M}})(?=[\p{{L}}\p{{N}}&&[^{UNSPACED}]])"
"""The beginning of a word of a script with spaces directly after a run (使用Python), as a pattern of Oniguruma."""

_CHARACTER = re.compile(f"[{UNSPACED}]")
_RUN = regex.compile(RUN)


def begins_unspaced(text: str) -> bool:
    """Whether ``text`` begins with a character of such a script."""
    return _CHARACTER.match(text) is not None


def count_unspaced(text: str) -> int:
    """The characters of such scripts in ``text``."""
    return 0 if text.isascii() else len(_CHARACTER.findall(text))


def cut_run(run: str) -> list[str]:
    """The words of a run: คะแนนของฉัน → คะแนน, ของ, ฉัน; of other text also what stands between words."""
    from icu4py.breakers import WordBreaker

    return list(WordBreaker(run, "en"))


def cut_runs(text: str) -> list[str]:
    """``text`` in pieces, cut only between the words of its runs: a ไม่ดี b → a ไม่, ดี b."""
    if text.isascii():
        return [text]
    pieces, start = [], 0
    for run in _RUN.finditer(text):
        end = run.start()
        for word in cut_run(run.group())[:-1]:
            end += len(word)
            pieces.append(text[start:end])
            start = end
    return [*pieces, text[start:]]
