"""Public collections: a record each, with the repositories of the Hugging Face hub that hold its files, and their
revisions. A repository without a revision is read at its newest."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vtkit.data.parts import PARTS, Part


@dataclass(frozen=True)
class Repository:
    """A data set of the hub, and the parts of a collection to read from it."""

    id: str
    revision: str | None = None
    parts: tuple[Part, ...] = PARTS
    files: Mapping[Part, str] = field(default_factory=dict)
    """Pattern of the files of each part, if no README's head names them; ``{config}`` stands for the configuration."""


@dataclass(frozen=True)
class Subset:
    """One language, or one member, of a public collection."""

    sources: tuple[tuple[Repository, ...], ...]
    """Groups of repositories that together have its parts, with the same content. The first group in the cache is read,
    else the first whose terms were accepted."""

    splits: tuple[str, ...]  # the published judgements; the first are the default
    config: str = ""  # the configuration in its repositories; "" if they have only one
    own_documents: bool = False  # whether queries are documents of the same ids (RetrievalSet.own_documents)


@dataclass(frozen=True)
class PublicCollection:
    """A judged collection of the Hugging Face hub, called ``NAME:SUBSET`` in recipes; ``NAME`` for a subset ""."""

    name: str
    title: str  # its name as written by its authors, for messages
    subsets: Mapping[str, Subset]
    example: str  # the subset that messages use as an example
    sampled: str | None = None
    """Why its figures cannot be compared with those of the whole collection; None if it is whole."""

    @property
    def names(self) -> list[str]:
        """The names of its subsets in recipes."""
        return [f"{self.name}:{subset}" if subset else self.name for subset in self.subsets]


def _subsets(
    names: str, *sources: tuple[Repository, ...], splits: tuple[str, ...], lacking: Mapping[str, str] | None = None
) -> dict[str, Subset]:
    """Subsets that are configurations of the same repositories; ``lacking`` gives a split that a subset does not
    have."""
    absent = lacking or {}
    return {
        name: Subset(sources, tuple(split for split in splits if absent.get(name) != split), name)
        for name in names.split()
    }


_MIRACL_LANGUAGES = "ar bn de en es fa fi fr hi id ja ko ru sw te th yo zh"
_MIRACL_QUERIES: Mapping[Part, str] = {
    "queries": "miracl-v1.0-{config}/topics/*",
    "qrels": "miracl-v1.0-{config}/qrels/*",
}
_MIRACL_CORPUS = Repository("miracl/miracl-corpus", files={"corpus": "miracl-corpus-v1.0-{config}/*"})

_WEBFAQ_LANGUAGES = (
    "ara aze ben bul cat ces dan deu ell eng est fas fin fra heb hin hrv hun ind isl ita jpn kat kaz kor lav lit mar "
    "msa nld nor pol por ron rus slk slv spa sqi srp swe tgl tha tur ukr urd uzb vie zho"
)

_MMARCO_LANGUAGES = {
    "ar": "arabic",
    "de": "german",
    "en": "english",
    "es": "spanish",
    "fr": "french",
    "hi": "hindi",
    "id": "indonesian",
    "it": "italian",
    "ja": "japanese",
    "nl": "dutch",
    "pt": "portuguese",
    "ru": "russian",
    "vi": "vietnamese",
    "zh": "chinese",
}
_MMARCO = Repository(
    "unicamp-dl/mmarco",
    files={
        "corpus": "data/google/collections/{config}_collection.tsv",
        "queries": "data/google/queries/dev/{config}_queries.dev*.tsv",
        "qrels": "data/qrels.dev*.tsv",
    },
)

_BEIR = {
    "arguana": ("arguana", "c22ab2a51041ffd869aaddef7af8d8215647e41a", "test"),
    "climate-fever": ("climate-fever", "47f2ac6acb640fc46020b02a5b59fdda04d39380", "test"),
    "cqadupstack-android": ("CQADupstackAndroidRetrieval", "9be4c0e46342e8e3aff577a89b9a1ec9bc6b4af3", "test"),
    "cqadupstack-english": ("cqadupstack-english", "ad9991cb51e31e31e430383c75ffb2885547b5f0", "test"),
    "cqadupstack-gaming": ("cqadupstack-gaming", "4885aa143210c98657558c04aaf3dc47cfb54340", "test"),
    "cqadupstack-gis": ("cqadupstack-gis", "5003b3064772da1887988e05400cf3806fe491f2", "test"),
    "cqadupstack-mathematica": ("cqadupstack-mathematica", "90fceea13679c63fe563ded68f3b6f06e50061de", "test"),
    "cqadupstack-physics": ("cqadupstack-physics", "79531abbd1fb92d06c6d6315a0cbbbf5bb247ea4", "test"),
    "cqadupstack-programmers": ("cqadupstack-programmers", "6184bc1440d2dbc7612be22b50686b8826d22b32", "test"),
    "cqadupstack-stats": ("cqadupstack-stats", "65ac3a16b8e91f9cee4c9828cc7c335575432a2a", "test"),
    "cqadupstack-tex": ("cqadupstack-tex", "46989137a86843e03a6195de44b09deda022eec7", "test"),
    "cqadupstack-unix": ("cqadupstack-unix", "6c6430d3a6d36f8d2a829195bc5dc94d7e063e53", "test"),
    "cqadupstack-webmasters": ("cqadupstack-webmasters", "160c094312a0e1facb97e55eeddb698c0abe3571", "test"),
    "cqadupstack-wordpress": ("cqadupstack-wordpress", "4ffe81d471b1924886b33c7567bfb200e9eec5c4", "test"),
    "dbpedia-entity": ("dbpedia", "c0f706b76e590d620bd6618b3ca8efdd34e2d659", "test dev"),
    "fever": ("fever", "bea83ef9e8fb933d90a2f1d5515737465d613e12", "test dev train"),
    "fiqa": ("fiqa", "27a168819829fe9bcd655c2df245fb19452e8e06", "test dev train"),
    "hotpotqa": ("hotpotqa", "ab518f4d6fcca38d87c25209f94beba119d02014", "test dev train"),
    "nfcorpus": ("nfcorpus", "ec0fa4fe99da2ff19ca1214b7966684033a58814", "test dev train"),
    "nq": ("nq", "b774495ed302d8c44a3a7ea25c90dbce03968f31", "test"),
    "quora": ("quora", "e4e08e0b7dbe3c8700f0daef558ff32256715259", "test dev"),
    "scidocs": ("scidocs", "f8c2fcf00f625baaa80f62ec5bd9e1fff3b8ae88", "test"),
    "scifact": ("scifact", "d56462d0e63a25450459c4f213e49ffdb866f7f9", "test train"),
    "trec-covid": ("trec-covid", "bb9466bac8153a0349341eb1b22e06409e78ef4e", "test"),
    "webis-touche2020": ("touche2020", "a34f9a33db75fa0cbb21bb5cfc3dae8dc8bec93f", "test"),
}
"""BEIR's name -> mteb's copy, which has a pinned revision, and the judgements."""

_NANOBEIR = {
    "arguana": ("ArguAna", "8f4a982d470a32c45817738b9d29042ca55d75ad"),
    "climate-fever": ("ClimateFEVER", "96741bfa30b9f56db8c9eb7d08e775ed6474f206"),
    "dbpedia-entity": ("DBPedia", "438f1c25129f05db6238699b5afdc9c6b58d2096"),
    "fever": ("FEVER", "a8bfdf1bf15181167a7e22e69cf8754bdea9b4c8"),
    "fiqa": ("FiQA2018", "4163ba032953d5044a7a6244261413f609c14342"),
    "hotpotqa": ("HotpotQA", "d79c0cdda980aba54842756770928035e1b61a51"),
    "msmarco": ("MSMARCO", "7b8ff22f2771dc65ac5b439f222eb19a1f56abda"),
    "nfcorpus": ("NFCorpus", "dd542a7efb9ad2136b9e00768b60fca9038f8156"),
    "nq": ("NQ", "77540146379abf95df8326a3c5bb9eb21c7146c3"),
    "quora": ("QuoraRetrieval", "2ab2d73e6c862026282808b913a34f4136928545"),
    "scidocs": ("SCIDOCS", "484eb90549fc3f0b9c42b3551e80ceb999515537"),
    "scifact": ("SciFact", "309f1d1ae3ae2e092444a8a0c25bed59b82318bc"),
    "webis-touche2020": ("Touche2020", "0d2f26ed8c5ad309f95c7f9499c70a40e140fccd"),
}

OWN_DOCUMENTS = frozenset({"arguana", "quora"})
"""Collections of BEIR whose queries are documents: BEIR and MTEB leave a query's own document out of its results."""

_MSMARCO = ("mteb/msmarco", "c5a29a104738b98a9e76336939199e264163d4a0")


def _beir(name: str, copy: str, revision: str, splits: str) -> Subset:
    repository = Repository(f"BeIR/{name}", files={"corpus": "corpus.jsonl.gz", "queries": "queries.jsonl.gz"})
    beside = Repository(f"BeIR/{name}-qrels", parts=("qrels",), files={"qrels": "*.tsv"})
    groups = (Repository(f"mteb/{copy}", revision),), (repository, beside)
    return Subset(groups, tuple(splits.split()), own_documents=name in OWN_DOCUMENTS)


def _deep_learning(year: int, revision: str) -> Subset:
    """A TREC Deep Learning track: its own queries and judgements, the passages of MS MARCO."""
    judged = Repository(f"whybe-choi/trec-dl-{year}", revision, parts=("queries", "qrels"))
    return Subset(((Repository(*_MSMARCO, parts=("corpus",)), judged),), ("test",))


PUBLIC: tuple[PublicCollection, ...] = (
    PublicCollection(
        "miracl",
        title="MIRACL",
        example="ko",
        subsets=_subsets(
            _MIRACL_LANGUAGES,
            (Repository("miracl/miracl", parts=("queries", "qrels"), files=_MIRACL_QUERIES), _MIRACL_CORPUS),
            (Repository("macavaney/miracl-noauth", parts=("queries", "qrels"), files=_MIRACL_QUERIES), _MIRACL_CORPUS),
            splits=("dev", "train"),
            lacking={"de": "train", "yo": "train"},
        ),
    ),
    PublicCollection(
        "miracl-hard",
        title="MIRACL with hard negatives (MTEB)",
        example="ko",
        subsets=_subsets(
            _MIRACL_LANGUAGES,
            (Repository("mteb/MIRACLRetrievalHardNegatives", "d7d94fa4b946cec4a27c84653aa0cf6b33f74a3c"),),
            splits=("dev",),
        ),
        sampled="sampled: only documents that one of three systems ranked in its first 250",
    ),
    PublicCollection(
        "webfaq",
        title="WebFAQ",
        example="kor",
        subsets=_subsets(
            _WEBFAQ_LANGUAGES,
            (Repository("PaDaS-Lab/webfaq-retrieval", "c3262adb1c32ac0c3ea8de6393a44366edaa62e1"),),
            splits=("test", "train"),
        ),
    ),
    PublicCollection(
        "beir", title="BEIR", example="scifact", subsets={name: _beir(name, *record) for name, record in _BEIR.items()}
    ),
    PublicCollection(
        "nanobeir",
        title="NanoBEIR",
        example="scifact",
        subsets={
            name: Subset(
                ((Repository(f"zeta-alpha-ai/Nano{copy}", revision),),),
                ("train",),
                own_documents=name in OWN_DOCUMENTS,
            )
            for name, (copy, revision) in _NANOBEIR.items()
        },
        sampled="sampled: 50 queries and some thousand documents of each collection",
    ),
    PublicCollection(
        "msmarco",
        title="MS MARCO (passages)",
        example="",
        subsets={
            "": Subset(
                (
                    (Repository(*_MSMARCO),),
                    (
                        Repository("BeIR/msmarco", files={"corpus": "corpus.jsonl.gz", "queries": "queries.jsonl.gz"}),
                        Repository("BeIR/msmarco-qrels", parts=("qrels",), files={"qrels": "*.tsv"}),
                    ),
                ),
                ("dev", "train"),
            ),
            "dl19": _deep_learning(2019, "cbb055c2528c544edf84db8ec6aef1885ec8cfda"),
            "dl20": _deep_learning(2020, "83d7d3532f3fa653f132da188bbaa852d959d6f9"),
        },
    ),
    PublicCollection(
        "mmarco",
        title="mMARCO",
        example="ja",
        subsets={
            code: Subset(((_MMARCO,),), ("dev.small", "dev"), language) for code, language in _MMARCO_LANGUAGES.items()
        },
    ),
    PublicCollection(
        "chemteb",
        title="ChemTEB",
        example="nq",
        subsets={
            "hotpotqa": Subset(
                ((Repository("BASF-AI/ChemHotpotQARetrieval", "1840e8a5ac6ec752bbdd97d543ead0189bc7c25b"),),), ("test",)
            ),
            "nq": Subset(
                ((Repository("BASF-AI/ChemNQRetrieval", "5d958fb6b31055495347724d46431ba41309b03a"),),), ("test",)
            ),
        },
    ),
)
"""All public collections. The READMEs of mteb's copies of BEIR and MS MARCO name their files."""
