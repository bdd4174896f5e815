"""Begin tokens of buckets: what a captioner reads first says how far the caption is to be trusted.

Captions of bucket 0, the most trusted, begin with the usual begin token. So a captioner that was
trained on buckets writes as in the best one without being told.
"""

from __future__ import annotations

from captioning.interfaces import AbstractTokenizer

NAMES = ("<bucket{}>", "[unused{}]")
"""Names of the tokens: words of our vocabularies, and places that BERT's leaves free."""


def begin_token(tokenizer: AbstractTokenizer, bucket: int) -> int:
    """Id of the token that captions of a bucket begin with.

    Raises:
        ValueError: the vocabulary has no token for it.
    """
    if bucket == 0:
        return tokenizer.bos_id
    ids = (tokenizer.token_id(name.format(bucket)) for name in NAMES)
    found = next((token for token in ids if token is not None), None)
    if found is None or tokenizer.encode("a")[0] != tokenizer.bos_id:
        raise ValueError(
            f"{type(tokenizer).__name__} has no begin token for bucket {bucket}, which "
            "curation=condition needs: choose tokenizer=words with model=updown or cos_cvae, or "
            "model=blip"
        )
    return found
