"""Tokenizers that are there already: read from a hub id, a folder or a file, and made ready to be an encoder's. The
result is one plain fast tokenizer with special roles and ``cls ... sep`` around a text, which ``AutoTokenizer`` loads
identically. A ``tokenizer.json`` counts as it stands, since classes of transformers replace its normalizer. Another
vocabulary file is read as is usual for its kind, unless the folder names a class that reads it otherwise (XLM-RoBERTa
numbers the pieces anew, ALBERT lower-cases): then it has the class's tokens, or is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from vtkit.data.hub import fetch, read_settings
from vtkit.data.spelling import DOTTED_I, TURKIC
from vtkit.settings.casing import CasingSection
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.system.runtime import quiet_libraries
from vtkit.vocabulary.from_sentencepiece import read_sentencepiece
from vtkit.vocabulary.notation import SENTENCEPIECE, WORD_ENDS, WORDPIECE
from vtkit.vocabulary.saved import SETTINGS
from vtkit.vocabulary.tokenizer_file import FILE, beyond_bounds

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Role = Literal["pad", "unk", "cls", "sep", "mask"]

ROLES: tuple[Role, ...] = ("pad", "unk", "cls", "sep", "mask")
"""Purposes of special tokens. A beginning-of-text token plays ``cls`` and an end-of-text token ``sep``."""

NAMES_OF_ROLE: dict[Role, tuple[str, ...]] = {
    "pad": ("pad_token",),
    "unk": ("unk_token",),
    "cls": ("cls_token", "bos_token"),
    "sep": ("sep_token", "eos_token"),
    "mask": ("mask_token",),
}
"""Keys of ``tokenizer_config.json`` that name the token of a role, the first preferred."""

SPELLINGS: dict[Role, tuple[str, ...]] = {
    "pad": ("[PAD]", "<pad>", "<|pad|>", "<|padding|>"),
    "unk": ("[UNK]", "<unk>", "<|unk|>"),
    "cls": ("[CLS]", "<s>", "<|startoftext|>", "<|endoftext|>"),
    "sep": ("[SEP]", "</s>", "<|endoftext|>"),
    "mask": ("[MASK]", "<mask>", "<|mask|>"),
}
"""Usual spellings of the token of a role, for tokenizers whose configuration does not say."""

TOKENIZER_FILES = ("tokenizer*.json", "special_*.json", "added_*.json", "config.json", "vocab.*", "merges.*", "*.model")
"""Files of a hub repository a tokenizer can be built from; nothing else of it is fetched."""

PROBE_TEXTS = ("the year 2024 in a test", "2024년 한국어 시험", "日本語と中文", "тест اختبار परीक्षण ทดสอบ")
"""A tokenizer that reads all of these as unknown has lost its vocabulary."""

CASED_TEXT = "The Schools of Köln, São Paulo"
"""A text that a class which folds case or strips accents cuts otherwise than its vocabulary file alone."""

UNKNOWN_TEXT = "\U0010fffd"  # a character that no vocabulary has

LARGEST_ID = 50_000_000  # larger ids cannot be meant: a model of width 384 would have 77 GB of embeddings

AS_THEY_STAND = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Classes that transformers gives the tokenizer.json as it stands."""

UNREACHABLE_SHARE = 0.01
"""Accents are not stripped where more than this share of the tokens could never be matched afterwards."""

_KINDS = {"tokenizer_class", "model_type"}  # settings that name the class of a tokenizer


def load_tokenizer(name: str | Path, *, require_roles: bool = False) -> PreTrainedTokenizerFast:
    """The tokenizer called ``name``, ready to be an encoder's: fast, without truncation or padding, with ``input_ids``
    and ``attention_mask`` as its outputs.

    Args:
        name: a folder, a file (``tokenizer.json``, ``vocab.txt`` or a SentencePiece ``.model``), or a hub id, fetched
            only where downloads are allowed.
        require_roles: whether pad, mask, cls and sep tokens must be there, which training needs.

    Raises:
        DataError: nothing usable under that name, a damaged file, or no token for a role that is needed.
    """
    name, path = str(name), Path(name)
    if path.is_dir():
        folder, where = path, f"the folder {name}"
    elif path.is_file():
        return _from_file(path, {}, require_roles)
    elif path.is_absolute() or name.startswith((".", "~")):
        raise DataError(f"No tokenizer at {name}: there is neither a folder nor a file of that name.")
    else:
        folder, where = fetch(name, TOKENIZER_FILES, "model"), f"the hub repository {name}"
    named = [folder / file for file in ("tokenizer.json", "vocab.txt", "vocab.json") if (folder / file).is_file()]
    files = named[:1] or sorted(folder.glob("*.model"))
    if len(files) == 1:
        return _from_file(files[0], _settings(folder), require_roles)
    content = f"several SentencePiece models ({', '.join(file.name for file in files)})" if files else "none"
    raise DataError(
        f"No tokenizer in {where}: it should hold a tokenizer.json, a vocab.txt, a vocab.json with merges.txt, or "
        f"one SentencePiece .model file, but there is {content}. If the file has another name, name the file itself."
    )


def special_roles(tokenizer: PreTrainedTokenizerFast) -> dict[Role, int]:
    """The id of the token that plays each role; roles that no token plays are absent."""
    return {role: number for number, role in reversed(_roles_of_tokens(tokenizer))}


def roles_by_id(tokenizer: PreTrainedTokenizerFast) -> dict[int, Role]:
    """Every id that plays a role, even if two ids share one: ``[CLS]`` and ``<s>`` both begin a text."""
    return dict(reversed(_roles_of_tokens(tokenizer)))


def _roles_of_tokens(tokenizer: PreTrainedTokenizerFast) -> list[tuple[int, Role]]:
    backend, roles = tokenizer.backend_tokenizer, list[tuple[int, Role]]()
    for role in ROLES:
        for name in NAMES_OF_ROLE[role]:
            token = getattr(tokenizer, name, None)
            if token is not None:
                if role == "unk" and isinstance(backend.model, models.Unigram):  # it may list the piece twice
                    made = (piece.id for piece in backend.model.tokenize(UNKNOWN_TEXT))
                    roles += [(number, role) for number in made if backend.id_to_token(number) == token]
                roles.append((int(tokenizer.convert_tokens_to_ids(token)), role))
    return roles


def lowercase_steps(casing: CasingSection) -> list[Any]:
    """The normalizers that fold text to lower case as ``casing`` says: none if it keeps the case."""
    if casing.input == "keep":
        return []
    letters = DOTTED_I.items() if casing.language in TURKIC else ()
    return [*(normalizers.Replace(upper, lower) for upper, lower in letters), normalizers.Lowercase()]


def with_casing(tokenizer: PreTrainedTokenizerFast, casing: CasingSection) -> PreTrainedTokenizerFast:
    """``tokenizer`` itself if ``casing`` keeps the case, else a copy that folds text to lower case before all else.
    Accents stay, and nothing is decomposed. The steps are part of the saved ``tokenizer.json``."""
    steps = lowercase_steps(casing)
    if not steps:
        return tokenizer
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    if backend.normalizer is not None:
        steps.append(backend.normalizer)
    backend.normalizer = normalizers.Sequence(steps)
    return wrapped_like(backend, tokenizer)


def wrapped_like(backend: Tokenizer, tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """A fast tokenizer around ``backend`` whose special tokens have the roles that they have in ``tokenizer``."""
    names = [name for role in ROLES for name in NAMES_OF_ROLE[role] if getattr(tokenizer, name, None) is not None]
    return _wrapped(backend, {name: str(getattr(tokenizer, name)) for name in names})


def wrap(backend: Tokenizer, roles: Mapping[Role, str], where: str, *, require_roles: bool = True) -> Any:
    """A fast tokenizer around ``backend`` whose special tokens are ``roles``, with ``cls ... sep`` around texts."""
    missing = [role for role in ("pad", "mask", "cls", "sep") if role not in roles]
    if missing and require_roles:
        raise DataError(
            f"The tokenizer {where} has no {' and no '.join(missing)} token, which an encoder needs for training. "
            "Put a tokenizer_config.json beside it that names "
            + ", ".join(f'"{NAMES_OF_ROLE[role][0]}": "{SPELLINGS[role][0]}"' for role in missing)  # type: ignore[index]
            + " (tokens that do not exist yet are added at the end of the vocabulary), or choose another tokenizer."
        )
    named = {NAMES_OF_ROLE[role][0]: token for role, token in roles.items()}
    tokenizer = _wrapped(backend, named)
    if "cls" in roles and "sep" in roles:
        first, last = (tokenizer.convert_tokens_to_ids(roles[role]) for role in ("cls", "sep"))
        ids = tokenizer.backend_tokenizer.encode("a").ids
        if len(ids) < 3 or ids[0] != first or ids[-1] != last:
            cls, sep = roles["cls"], roles["sep"]
            tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
                single=[cls, "$A", sep],
                pair=[cls, "$A", sep, "$B:1", f"{sep}:1"],
                special_tokens=[(cls, first), (sep, last)],
            )
    return tokenizer


def _wrapped(backend: Tokenizer, named: Mapping[str, str]) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast

    backend.no_truncation()
    backend.no_padding()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
        **named,
    )


def _settings(folder: Path) -> dict[str, Any]:
    """``tokenizer_config.json`` with what the older files ``special_tokens_map.json`` and ``added_tokens.json`` add and
    the kind of model that ``config.json`` names; empty where none of them is there."""
    settings: dict[str, Any] = {}
    label = f"tokenizer {folder}"
    settings.update(
        {key: value for key, value in read_settings(folder / "config.json", label).items() if key in _KINDS}
    )
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        read = read_settings(folder / name, label)
        settings.update({key: value for key, value in read.items() if value is not None})
    added = read_settings(folder / "added_tokens.json", label)
    if added and "added_tokens_decoder" not in settings:
        special = {token.content for token in _special_tokens(settings, with_roles=True)}
        settings["added_tokens_decoder"] = {
            number: {"content": token, "special": token in special} for token, number in added.items()
        }
    return settings


def _from_file(path: Path, settings: Mapping[str, Any], require_roles: bool) -> PreTrainedTokenizerFast:
    pieces, listed = read_sentencepiece(path) if path.suffix == ".model" else (None, dict[str, int]())
    owner = None if path.name == FILE else _owner(path, settings, pieces)
    if owner is not None:
        backend, listed, settings = owner.backend_tokenizer, owner.get_vocab(), owner.special_tokens_map | {**settings}
    elif pieces is not None:
        backend = pieces
    elif path.name == "vocab.json":
        backend, listed = _from_byte_level_files(path, settings)
    elif path.suffix == ".json":
        backend, listed = _from_tokenizer_json(path, settings)
    elif path.suffix == ".txt":
        backend, listed = _from_vocab_txt(path, settings)
    else:
        raise DataError(
            f"{path} is not a tokenizer file: name a tokenizer.json, a vocab.txt or a SentencePiece .model."
        )
    check_ids(listed)
    prepare_backend(backend, str(path))
    decoder = settings.get("added_tokens_decoder") or {}
    if not isinstance(decoder, dict) or not all(str(number).isdecimal() for number in decoder):
        raise DataError(f"{path}: added_tokens_decoder of its configuration should list tokens by their numbers.")
    added = {int(number): _added_token(token) for number, token in decoder.items()}
    backend.add_tokens([added[number] for number in sorted(added)])
    listed |= {token.content: number for number, token in added.items()}
    flagged = listed.keys() - {token.content for token in backend.get_added_tokens_decoder().values()}
    backend.add_tokens([token for token in _special_tokens(settings, with_roles=True) if token.content in flagged])
    roles = _roles(backend, settings)
    for role, token in roles.items():
        if backend.token_to_id(token) is None:
            console.warn(f"{path}: the {role} token {token} is not in the vocabulary and is added at its end.")
    tokenizer = wrap(backend, roles, str(path), require_roles=require_roles)
    tokenizer.add_tokens(_special_tokens(settings))
    _check(tokenizer, listed, path, without_gaps=require_roles)
    return tokenizer


def _owner(path: Path, settings: Mapping[str, Any], pieces: Tokenizer | None) -> PreTrainedTokenizerFast | None:
    """The tokenizer that transformers makes of the folder of a vocabulary file, ``pieces`` if it is SentencePiece's;
    None if the folder names no class, or one that reads such a file as is usual. DataError: the class does not read it
    as a fast tokenizer, or not rightly."""
    from transformers import AutoTokenizer, BertTokenizer, GPT2Tokenizer, RobertaTokenizer, TokenizersBackend
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES, tokenizer_class_from_name

    name = settings.get("tokenizer_class") or TOKENIZER_MAPPING_NAMES.get(settings.get("model_type", ""))
    kind = tokenizer_class_from_name(name) if name else TokenizersBackend
    usual = {".txt": (BertTokenizer,), ".json": (GPT2Tokenizer, RobertaTokenizer)}.get(path.suffix, ())
    if kind is TokenizersBackend or (kind is not None and issubclass(kind, usual)):
        return None
    try:
        with quiet_libraries():
            owner = AutoTokenizer.from_pretrained(str(path.parent), trust_remote_code=False, local_files_only=True)
        fault = "it is written in Python" if not owner.is_fast else pieces and _cut_as(owner.backend_tokenizer, pieces)
    except Exception as error:  # of any kind, over a file that the class does not expect
        fault = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if fault:
        raise DataError(
            f"{path}: the class {name}, which the folder names, cannot read it as a fast tokenizer: {fault}. Name a "
            "folder with a tokenizer.json, or the file itself, which is then read as is usual for its kind."
        )
    return owner


def _cut_as(backend: Tokenizer, pieces: Tokenizer) -> str:
    """Let ``backend``, made by a class of a SentencePiece model, bring texts to the model's own standard form, which
    classes drop, unless its class folds case or accents before it. The fault if it cuts words otherwise than
    ``pieces``, as SentencePiece does; else nothing."""

    def differing(texts: Sequence[str]) -> int:
        cut = [each.encode_batch_fast(texts, add_special_tokens=False) for each in (pieces, backend)]
        return sum(ours.tokens != theirs.tokens for ours, theirs in zip(*cut, strict=True))

    words = sorted(token[1:] for token in pieces.get_vocab() if token.startswith(SENTENCEPIECE.space) and token[1:])
    words = words[:: len(words) // 1000 + 1]
    if (odd := differing(words)) > UNREACHABLE_SHARE * len(words):
        return f"it cuts {odd:,} of {len(words):,} words otherwise than SentencePiece"
    if not differing([*PROBE_TEXTS, CASED_TEXT]):
        backend.normalizer, backend.pre_tokenizer = pieces.normalizer, pieces.pre_tokenizer
    return ""


def _special_tokens(settings: Mapping[str, Any], *, with_roles: bool = False) -> list[AddedToken]:
    """The special tokens that a configuration names, with or without those that have a role."""
    named = [settings[name] for names in NAMES_OF_ROLE.values() for name in names if with_roles and name in settings]
    more = settings.get("additional_special_tokens") or settings.get("extra_special_tokens") or []
    more = [*more.values()] if isinstance(more, dict) else more if isinstance(more, list) else [more]
    return [_added_token(token, special=True) for token in (*named, *more)]


def _added_token(entry: str | Mapping[str, Any], *, special: bool = False) -> AddedToken:
    """A token as configurations write it: by its text alone, or with the ways in which texts are searched for it."""
    given = {"content": entry} if isinstance(entry, str) else entry
    if not isinstance(given, dict) or "content" not in given:
        raise DataError(
            f"A tokenizer's configuration names a token {str(entry)[:60]!r}, which is neither text nor a token."
        )
    flags = {name: bool(given[name]) for name in ("lstrip", "rstrip", "single_word", "normalized") if name in given}
    return AddedToken(str(given["content"]), special=bool(given.get("special", special)), **flags)


def check_ids(vocabulary: Mapping[str, int]) -> None:
    """Refuse ids that no model has rows for; the library takes minutes to write such a vocabulary."""
    last, largest = max(vocabulary.items(), key=lambda pair: pair[1], default=("", 0))
    if largest > LARGEST_ID:
        raise DataError(
            f"The tokenizer gives the token {last!r} the id {largest:,}, and vocabularies end at {LARGEST_ID:,}: the "
            "model has a row for every id up to the largest. Number the tokens without gaps."
        )


def prepare_tokenizer(tokenizer: Any, where: str) -> None:
    """:func:`prepare_backend` for a model's tokenizer as transformers made it. DataError: it is not fast, or it cuts
    texts otherwise than its ``tokenizer.json``, since a class makes tokenizers of its own kind of every file."""
    kind = type(tokenizer).__name__
    if not tokenizer.is_fast:
        raise DataError(f"The tokenizer {where}, a {kind}, is not a fast one. Name a model with a tokenizer.json.")
    prepare_backend(tokenizer.backend_tokenizer, where)
    file = Path(getattr(tokenizer, "name_or_path", "")) / FILE
    if kind not in AS_THEY_STAND and file.is_absolute() and file.is_file():
        both = Tokenizer.from_file(str(file)), tokenizer.backend_tokenizer
        both[0].no_padding()
        cut = [[each.ids for each in tool.encode_batch_fast(PROBE_TEXTS, add_special_tokens=False)] for tool in both]
        if cut[0] != cut[1] and not all(isinstance(tool.model, models.WordPiece) for tool in both):  # but for casing
            raise DataError(
                f"The tokenizer {where}: its class, {kind}, cuts texts otherwise than {file}. Write "
                f'"tokenizer_class": "PreTrainedTokenizerFast" into {SETTINGS} beside it to take the file as it is.'
            )


def prepare_backend(backend: Tokenizer, where: str) -> None:
    """Switch off saved truncation and padding, and with a warning a BPE dropout, by which equal texts have other tokens
    each time; refuse a tokenizer without tokens, and one that fails on what it does not know."""
    backend.no_truncation()
    backend.no_padding()
    if dropout := getattr(backend.model, "dropout", None):
        backend.model.dropout = None
        console.warn(
            f"The tokenizer {where} was saved with a BPE dropout of {dropout:g}, which cuts equal texts differently "
            "each time: it is switched off."
        )
    if not backend.get_vocab():
        raise DataError(f"The tokenizer {where} has an empty vocabulary. Fetch it again, or name another.")
    try:
        backend.encode_batch([*PROBE_TEXTS, UNKNOWN_TEXT])
    except Exception as error:  # the library raises bare Exception
        unknown = getattr(backend.model, "unk_token", None)
        named = f" ({unknown}, which is not in its vocabulary)" if unknown else ""
        raise DataError(
            f"The tokenizer {where} has no unknown token{named}: {error}. Add one to the vocabulary "
            "in its tokenizer.json, or name another tokenizer."
        ) from error


def _roles(backend: Tokenizer, settings: Mapping[str, Any]) -> dict[Role, str]:
    """The token of each role: as the settings name it, else as it is usually spelled."""
    roles: dict[Role, str] = {}
    for role in ROLES:
        given = [settings[name] for name in NAMES_OF_ROLE[role] if name in settings]
        named = [_added_token(token).content for token in given]
        candidates = [token for token in (*named, *SPELLINGS[role]) if backend.token_to_id(token) is not None]
        if role == "cls" and candidates and "cls_token" not in settings and backend.token_to_id("[CLS]") is not None:
            candidates.insert(0, "[CLS]")
        if candidates or named:
            roles[role] = (candidates or named)[0]
    return roles


def _from_tokenizer_json(path: Path, settings: Mapping[str, Any]) -> tuple[Tokenizer, dict[str, int]]:
    content = read_settings(path, "tokenizer")
    if wrong := beyond_bounds(content):
        raise DataError(f"{path}: {wrong}, which is no tokenizer for texts. Name another one.")
    try:
        backend = Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # the library raises bare Exception for whatever it cannot read
        raise DataError(f"{path} is not a tokenizer.json that the tokenizers library can read: {error}") from error
    vocabulary = content.get("model", {}).get("vocab", {})
    if isinstance(vocabulary, list):
        vocabulary = {token: number for number, (token, _) in enumerate(vocabulary)}
    bert = backend.normalizer
    if isinstance(bert, normalizers.BertNormalizer) and settings.get("tokenizer_class") not in AS_THEY_STAND:
        # As in transformers, the configuration has the last word about casing.
        bert.lowercase = settings.get("do_lower_case", bert.lowercase)
        bert.strip_accents = settings.get("strip_accents", bert.strip_accents)
        bert.handle_chinese_chars = settings.get("tokenize_chinese_chars", bert.handle_chinese_chars)
    return backend, vocabulary | {added["content"]: added["id"] for added in content.get("added_tokens", [])}


def _from_vocab_txt(path: Path, settings: Mapping[str, Any]) -> tuple[Tokenizer, dict[str, int]]:
    """A BERT WordPiece tokenizer from its list of tokens, one a line."""
    try:
        tokens = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: byte {error.start} cannot be read.") from error
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens):
        number, token = next((n, token) for n, token in enumerate(tokens, 1) if vocabulary[token] >= n)
        raise DataError(f"{path}: the token {token!r} is on line {number} and again on line {vocabulary[token] + 1}.")
    if len(vocabulary) < 2 or not any(spelling in vocabulary for spelling in SPELLINGS["unk"]):
        raise DataError(f"{path} is not a BERT vocabulary: it should list one token a line, including [UNK].")
    lowercase = settings.get("do_lower_case", True if _KINDS & settings.keys() else None)
    if lowercase is None:  # no token but bracketed ones needs text in upper case
        bracketed = re.compile(r"[\[<].*[\]>]")
        lowercase = all(token.lower() == token or bracketed.fullmatch(token) for token in tokens)
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token=next(t for t in SPELLINGS["unk"] if t in vocabulary)))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=_strips_accents(tokens, settings.get("strip_accents"), bool(lowercase), path),
        lowercase=bool(lowercase),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix=WORDPIECE.prefix)
    return backend, vocabulary


def _strips_accents(tokens: list[str], asked: bool | None, lowercase: bool, path: Path) -> bool:
    """Whether accents may be stripped: as asked, else with lower-casing as in BERT, and never to the loss of tokens: it
    decomposes text, Hangul syllables too."""
    if not (lowercase if asked is None else asked):
        return False
    # Not StripAccents, which strips vowel signs of Indic scripts as well. Text is not cleaned, cut or lower-cased here.
    strip = normalizers.BertNormalizer(False, False, True, False).normalize_str
    lost = sum(strip(token) != token for token in tokens)
    if lost <= UNREACHABLE_SHARE * len(tokens):
        return True
    console.warn(
        f"{path}: accents are kept, since {lost} of the {len(tokens)} tokens could not be matched without them."
    )
    return False


def _from_byte_level_files(path: Path, settings: Mapping[str, Any]) -> tuple[Tokenizer, dict[str, int]]:
    merges, vocabulary = path.with_name("merges.txt"), read_settings(path, "tokenizer")
    if not merges.is_file():
        raise DataError(f"{path} needs a merges.txt beside it.")
    if any(token.endswith(WORD_ENDS.suffix) for token in vocabulary):
        raise DataError(
            f"{path} marks the ends of words by {WORD_ENDS.suffix}: it is no byte-level BPE. Name a tokenizer.json."
        )
    try:
        backend = Tokenizer(models.BPE.from_file(str(path), str(merges)))
    except Exception as error:  # the library raises bare Exception for whatever it cannot read
        raise DataError(f"{path} and {merges.name} cannot be read as a byte-level BPE vocabulary: {error}") from error
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(settings.get("add_prefix_space", False)))
    backend.decoder = decoders.ByteLevel()
    return backend, vocabulary


def _check(tokenizer: PreTrainedTokenizerFast, listed: Mapping[str, int], path: Path, *, without_gaps: bool) -> None:
    """Refuse a tokenizer that lost part of its vocabulary, or all of its meaning, on the way from the file; if asked,
    one whose ids are not 0, 1, 2, …: an encoder has a row for each, and some would have no token. A piece that is
    listed twice has two ids."""
    vocabulary, backend = tokenizer.get_vocab(), tokenizer.backend_tokenizer
    odd = [f"{token!r} is {vocabulary.get(token)} for {n}" for token, n in listed.items() if vocabulary.get(token) != n]
    if odd:
        raise DataError(
            f"{path}: {len(odd)} of {len(listed)} tokens get other ids than its files say: {', '.join(odd[:3])}. "
            "Tokens that are added to a vocabulary must be numbered on from its end."
        )
    gone = [number for number in range(max(vocabulary.values()) + 1) if backend.id_to_token(number) is None]
    if gone and without_gaps:
        shown = ", ".join(f"{number:,}" for number in gone[:5]) + (f" and {len(gone) - 5:,} more" if gone[5:] else "")
        raise DataError(
            f"The tokenizer {path} has {len(vocabulary):,} tokens, and no token has the id {shown}. Number the tokens "
            "without gaps in its tokenizer.json, or add tokens such as [unused0] for the missing ids."
        )
    unknown = special_roles(tokenizer).get("unk")
    read = [backend.encode(text, add_special_tokens=False).ids for text in PROBE_TEXTS]
    if all(token == unknown for ids in read for token in ids):
        raise DataError(f"{path}: every word of every probe text is unknown to this tokenizer. Is the file complete?")
