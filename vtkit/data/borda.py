"""Rankings of several systems made one by Borda's count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence


def borda_count(rankings: Sequence[Sequence[int]], first: int, depth: int | None = None) -> list[int]:
    """The ``first`` documents by the sum of their points: each ranking gives ``depth`` points to the document in its
    first place, one less to the one in the second, and so on; none to a document that it does not have.

    Borda (1781), as metasearch uses it (Aslam and Montague 2001, doi:10.1145/383952.384007; they share out the points
    that are left among the documents that a system does not return, which changes no order where all return as many).

    Args:
        rankings: of one query, one of each system: document numbers, best first, -1 for none. Only the first ``depth``
            of each count.
        first: documents wanted.
        depth: None: as many as the longest ranking has.

    Returns:
        Document numbers, most points first; of documents with as many points the one that stands higher in any ranking,
        then the one with the lower number.
    """
    listed = [[document for document in ranking if document >= 0] for ranking in rankings]
    depth = max(map(len, listed), default=0) if depth is None else depth
    points: dict[int, int] = defaultdict(int)
    best: dict[int, int] = {}
    for ranking in listed:
        for place, document in enumerate(ranking[:depth]):
            points[document] += depth - place
            best[document] = min(place, best.get(document, place))
    return sorted(points, key=lambda document: (-points[document], best[document], document))[:first]
