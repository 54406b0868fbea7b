"""Letters and signs that writers of a script interchange or leave out."""

ARABIC: dict[str, str] = {
    **dict.fromkeys([chr(0x640), chr(0x670), *map(chr, range(0x64B, 0x660))], ""),  # tatweel and vowel signs
    **dict.fromkeys("أإآٱ", "ا"),
    "ى": "ي",
    "ة": "ه",
}
"""Character -> its common form: most writers leave out vowel signs, and many the signs on an alef."""

HEBREW = dict.fromkeys(map(chr, [*range(0x591, 0x5BE), 0x5BF, 0x5C1, 0x5C2, 0x5C4, 0x5C5, 0x5C7]), "")
"""Points and accents."""

DEVANAGARI = {
    chr(0x901): chr(0x902),  # chandrabindu, often written as anusvara
    chr(0x93C): "",  # nukta
    chr(0x929): chr(0x928),
    chr(0x931): chr(0x930),
    chr(0x934): chr(0x933),
}
"""Of text in a composed Unicode form."""

FOLDED = {**ARABIC, **HEBREW, **DEVANAGARI}
"""Like Lucene's normalizers of Arabic and Hindi, except that Lucene also drops the length of Hindi's vowels."""
