"""Metrics of novel objects in captions: F1 of mentions, COF1, scores by class and by domain.

A caption *mentions* a class if it contains one of the class's word forms as whole words. An image
*shows* a class if one of its reference captions mentions it or, with object labels as truth,
if a label names it. It is *out-of-domain* if it shows any class, else *in-domain*. *F1* of a class
compares the images whose caption mentions the class with those that show it, over all given images,
and is averaged over classes. So are *out-of-domain* caption scores, with each class scored on the
images that show it. A class that no image shows is left out of every mean, and listed.
Sources and differences from published scores: ``docs/cards/scores_novel.md``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from statistics import fmean
from typing import Any, Literal, get_args

from captioning.metrics.coco import MetricResult, evaluate_captions
from captioning.metrics.tokenizer import tokenize_python

Forms = Mapping[str, Sequence[str]]

# The eight classes held out of COCO (Hendricks et al., 2016), with their word forms.
HELD_OUT_FORMS: dict[str, tuple[str, ...]] = {
    "bottle": ("bottle", "bottles"),
    "bus": ("bus", "buses", "busses"),
    "couch": ("couch", "couches", "sofa", "sofas"),
    "microwave": ("microwave", "microwaves"),
    "pizza": ("pizza", "pizzas"),
    "racket": ("racket", "rackets", "racquet", "racquets", "tennis racket"),  # COCO's label
    "suitcase": ("suitcase", "suitcases", "luggage", "luggages"),
    "zebra": ("zebra", "zebras"),
}
_SINGULAR = "child foot goose half knife leaf loaf mouse person scarf shelf tooth wolf"
_PLURAL = "children feet geese halves knives leaves loaves mice people scarves shelves teeth wolves"
_IRREGULAR = dict(zip(_SINGULAR.split(), _PLURAL.split(), strict=True))


def word_forms(
    classes: Iterable[str], overrides: Forms | None = None
) -> dict[str, tuple[str, ...]]:
    """Return each class's word forms: its ``overrides``, else its name with plurals.

    Plurals of the last word follow rules: some are not words ("pianoes") and never match. List
    synonyms in ``overrides``.

    Raises:
        ValueError: ``overrides`` for an unknown class.
    """
    names, overrides = list(classes), overrides or {}
    unknown = sorted(overrides.keys() - set(names))
    if unknown:
        raise ValueError(f"overrides must belong to the given classes: got {unknown}")
    return {name: tuple(overrides.get(name, (name, *_plurals(name)))) for name in names}


def _plurals(noun: str) -> list[str]:
    first, gap, last = noun.rpartition(" ")
    after_vowel = last[-2:-1] in "aeiou"
    plurals = [last + ("es" if last.endswith(("s", "x", "z", "ch", "sh")) else "s")]
    if last.endswith("y") and not after_vowel:
        plurals = [last[:-1] + "ies"]
    plurals += [last + "es"] if last.endswith("o") and not after_vowel else []
    plurals += [last[:-3] + "men"] if last.endswith("man") else []
    plurals += [_IRREGULAR[last]] if last in _IRREGULAR else []
    return [first + gap + word for word in plurals]


Source = Literal["references", "labels"]
Frequencies = Literal["all", "group"]

CIDER = "CIDEr-D"
_IN_DOMAIN = "in-domain"
NOCAPS_DOMAINS = ("in", "near", "out")
COF_BETAS = {"COF1": 1.0, "COF1.5": 1.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassMentions:
    """Precision and recall of captions' mentions of one class, in [0, 1].

    Attributes:
        precision: share of the mentions that are correct; 0 without mentions.
        recall: share of the images that show the class and whose caption mentions it.
        f1: harmonic mean of precision and recall; 0 without a correct mention.
        images: number of images that show the class.
        num_mentions: number of captions that mention the class.
        num_hits: number of these captions whose image shows the class.
    """

    precision: float
    recall: float
    f1: float
    images: tuple[str, ...]
    num_mentions: int
    num_hits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MentionScores:
    """Mention scores of several classes.

    Attributes:
        f1: mean over ``by_class``, in [0, 1].
        by_class: scores of the classes that some image shows, in the order of the forms.
        left_out: the other classes, with reasons.
    """

    f1: float
    by_class: dict[str, ClassMentions]
    left_out: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NovelScores:
    """Scores of one set of captions on held-out classes.

    Attributes:
        out_of_domain: macro-averages over classes: caption scores and ``F1``; with CIDEr-D
            also ``COF1`` and ``COF1.5``.
        in_domain: scores of the images that show none of the classes; None without such images.
        by_class: scores of the images of each class.
        mentions: see `score_mentions`.
        settings: source of the truth, word forms, and numbers of images.
    """

    out_of_domain: dict[str, float]
    in_domain: MetricResult | None
    by_class: dict[str, MetricResult]
    mentions: MentionScores
    settings: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def find_mentions(captions: Mapping[str, Sequence[str]], forms: Forms) -> dict[str, frozenset[str]]:
    """Find the images whose captions mention each class.

    Captions and forms are tokenized in the same way (`tokenize_python`: lower case, no punctuation,
    "dog's" is two words). Of overlapping forms only the longest counts, from the left: "hot dog"
    mentions no dog. A form of two classes mentions both.

    Args:
        captions: raw captions of each image, any number per image.
        forms: word forms of each class, with one word or several.

    Returns:
        Ids of the images whose captions mention the class, by class.

    Raises:
        TypeError: captions of an image that are not a list of texts.
        ValueError: no classes, a class without forms, or a form without words.
    """
    classes_of = _classes_by_form(forms)
    longest = max(form.count(" ") + 1 for form in classes_of)
    for image_id, texts in captions.items():
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"captions of image {image_id!r} must be a list of texts: got {texts}")
    images_of: dict[str, set[str]] = {name: set() for name in forms}
    tokenized = iter(tokenize_python(list(chain.from_iterable(captions.values()))))
    for image_id, texts in captions.items():
        forms_in_caption = [
            form for _ in texts for form in _scan(next(tokenized), classes_of, longest)
        ]
        for name in chain.from_iterable(classes_of[form] for form in forms_in_caption):
            images_of[name].add(image_id)
    return {name: frozenset(images) for name, images in images_of.items()}


def _classes_by_form(forms: Forms) -> dict[str, list[str]]:
    if not forms:
        raise ValueError("forms must hold at least one class: got none")
    classes_of: dict[str, list[str]] = {}
    for name, words in forms.items():
        tokenized = [] if isinstance(words, str) else tokenize_python(list(words))
        if not tokenized or not all(tokenized):
            raise ValueError(f"forms of class {name!r} must be a list of words: got {words!r}")
        for form in dict.fromkeys(tokenized):
            classes_of.setdefault(form, []).append(name)
    return classes_of


def _scan(text: str, forms: Collection[str], longest: int) -> Iterator[str]:
    """Yield the forms in a tokenized caption, leftmost and longest first, without overlaps."""
    tokens, start = text.split(), 0
    while start < len(tokens):
        spans = (" ".join(tokens[start : start + size]) for size in range(longest, 0, -1))
        form = next((span for span in spans if span in forms), None)
        if form is not None:
            yield form
        start += 1 if form is None else form.count(" ") + 1


def images_by_class(
    image_ids: Iterable[str],
    forms: Forms,
    truth: Mapping[str, Sequence[str]],
    *,
    source: Source = "references",
) -> dict[str, frozenset[str]]:
    """Find the images that show each class.

    Args:
        image_ids: ids of the images to consider.
        forms: word forms of each class.
        truth: reference captions of at least these images, or names of their annotated
            objects: an object shows a class if it has the class's name or one of its forms.
        source: kind of ``truth``: ``"references"`` or ``"labels"``.

    Raises:
        TypeError: references or labels of an image that are not a list of texts.
        ValueError: an unknown ``source``, invalid forms, or an image missing in ``truth``.
    """
    if source not in ("references", "labels"):
        raise ValueError(f"source must be 'references' or 'labels': got {source!r}")
    ids = list(image_ids)
    missing = [image_id for image_id in ids if image_id not in truth]
    if missing:
        raise ValueError(
            f"{len(missing)} images have no {source}, not even an empty list, such as "
            f"{missing[0]!r}; do they belong to another dataset or split?"
        )
    chosen = {image_id: truth[image_id] for image_id in ids}
    mentions = find_mentions(chosen, forms)  # checks the labels' types, too
    if source == "references":
        return mentions
    names = {name: {name, *words} for name, words in forms.items()}
    return {name: frozenset(i for i in ids if names[name] & set(chosen[i])) for name in forms}


def score_mentions(
    candidates: Mapping[str, str],
    truth: Mapping[str, Sequence[str]],
    forms: Forms,
    *,
    source: Source = "references",
) -> MentionScores:
    """Compute F1 of mentions by class and on average, over the images of the candidates.

    Args:
        candidates: one caption per image; an empty one mentions nothing. Images of ``truth``
            without a candidate are ignored: pass ``""`` for missing captions that should count.
        truth, forms, source: see `images_by_class`.

    Raises:
        ValueError: no image shows any class, or an error of `images_by_class`.
    """
    shown = images_by_class(candidates, forms, truth, source=source)
    if not any(shown.values()):
        raise ValueError(f"none of the {len(candidates)} images shows any of {list(forms)}")
    mentioned = find_mentions({i: [caption] for i, caption in candidates.items()}, forms)
    scores = {name: _compare(mentioned[name], shown[name]) for name in forms if shown[name]}
    return MentionScores(
        f1=fmean(score.f1 for score in scores.values()),
        by_class=scores,
        left_out={name: "no image shows this class" for name in forms if name not in scores},
    )


def _compare(mentioned: frozenset[str], shown: frozenset[str]) -> ClassMentions:
    hits = len(mentioned & shown)
    return ClassMentions(
        precision=hits / len(mentioned) if mentioned else 0.0,
        recall=hits / len(shown),
        f1=2 * hits / (len(mentioned) + len(shown)),
        images=tuple(sorted(shown)),
        num_mentions=len(mentioned),
        num_hits=hits,
    )


def cof(*, cider: float, f1: float, beta: float = 1.0) -> float:
    """Return the F-beta score of out-of-domain CIDEr and F1 (Bujimalla et al.).

    ``(1 + beta²) · cider · f1 / (beta² · f1 + cider)``: the paper gives no equation, but says
    that ``beta`` above 1 favours CIDEr; this formula reproduces its tables. Both scores need the
    same unit.

    Raises:
        ValueError: a negative or non-finite score, or ``beta`` not above 0.
    """
    if not (0 <= cider < float("inf") and 0 <= f1 < float("inf") and 0 < beta < float("inf")):
        raise ValueError(f"scores must be at least 0, beta above 0: got {cider}, {f1}, {beta}")
    return (1 + beta**2) * cider * f1 / (beta**2 * f1 + cider) if cider and f1 else 0.0


def check_frequencies(frequencies: str) -> None:
    """Raise an error unless `score_groups` supports these document frequencies.

    Raises:
        ValueError: the value is neither ``"all"`` nor ``"group"``.
    """
    if frequencies not in get_args(Frequencies):
        raise ValueError(f"frequencies must be 'all' or 'group': got {frequencies!r}")


def score_groups(
    candidates: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    groups: Mapping[str, Collection[str]],
    *,
    frequencies: Frequencies = "all",
    **options: Any,
) -> dict[str, MetricResult]:
    """Score the captions of several groups of images, which may overlap.

    Args:
        candidates: caption of each image.
        references: captions of at least these images.
        groups: image ids by name.
        frequencies: source of CIDEr-D's document frequencies: references of ``"all"`` candidates,
            or of each ``"group"``. Group scores are not comparable across groups: a class name
            has little weight if all images show the class.
        options: options of `evaluate_captions`.

    Raises:
        ValueError: an unknown ``frequencies``, an empty group, or an image without candidate.
    """
    check_frequencies(frequencies)
    results = {}
    for name, ids in groups.items():
        if not ids or not candidates.keys() >= set(ids):
            raise ValueError(f"group {name!r} must hold images, each with a candidate")
        captions = {image_id: candidates[image_id] for image_id in sorted(set(ids))}
        results[name] = evaluate_captions(captions, references, **options)
    if frequencies == "group" or not any(CIDER in result.corpus for result in results.values()):
        return results
    cider_options: Any = {**options, "metrics": [CIDER]}
    images = evaluate_captions(candidates, references, **cider_options).per_image
    return {name: _with_cider(result, images) for name, result in results.items()}


def _with_cider(
    result: MetricResult, cider_by_image: Mapping[str, Mapping[str, float]]
) -> MetricResult:
    """Replace CIDEr-D in a result by the mean of ``cider_by_image`` over its images."""
    per_image = {i: {**scores, **cider_by_image[i]} for i, scores in result.per_image.items()}
    corpus = result.corpus | {CIDER: fmean(scores[CIDER] for scores in per_image.values())}
    return replace(result, corpus=corpus, per_image=per_image)


def macro_average(results: Mapping[str, MetricResult]) -> dict[str, float]:
    """Average every corpus score that all groups have."""
    columns = [result.corpus for result in results.values()]
    shared = [name for name in columns[0] if all(name in corpus for corpus in columns)]
    return {name: fmean(corpus[name] for corpus in columns) for name in shared}


def score_novel(
    candidates: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    *,
    forms: Forms,
    labels: Mapping[str, Sequence[str]] | None = None,
    frequencies: Frequencies = "all",
    **options: Any,
) -> NovelScores:
    """Compute all scores of a held-out split, as in the tables of Bujimalla et al.

    Args:
        candidates: caption of each image of the split, in-domain and out-of-domain.
        references: captions of at least these images.
        forms: word forms of the held-out classes, such as `HELD_OUT_FORMS`.
        labels: names of annotated objects by image, used as truth instead of the references.
        frequencies, options: see `score_groups`; errors as in `score_groups` and `score_mentions`.
    """
    truth, source = (references, "references") if labels is None else (labels, "labels")
    mentions = score_mentions(candidates, truth, forms, source=source)
    groups = {name: score.images for name, score in mentions.by_class.items()}
    outside = set(chain.from_iterable(groups.values()))
    inside = [image_id for image_id in candidates if image_id not in outside]
    groups |= {_IN_DOMAIN: inside} if inside else {}
    results = score_groups(candidates, references, groups, frequencies=frequencies, **options)
    in_domain = results.pop(_IN_DOMAIN, None)
    means = macro_average(results) | {"F1": mentions.f1}
    if CIDER in means:
        for name, beta in COF_BETAS.items():
            means[name] = cof(cider=means[CIDER], f1=mentions.f1, beta=beta)
    return NovelScores(
        out_of_domain=means,
        in_domain=in_domain,
        by_class=results,
        mentions=mentions,
        settings={
            "truth": source,
            "cider_frequencies": frequencies,
            "forms": {name: list(words) for name, words in forms.items()},
            "num_images": len(candidates),
            "num_out_of_domain": len(outside),
            "num_without_caption": len(truth.keys() - candidates.keys()),
        },
    )


def score_nocaps(
    candidates: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    domains: Mapping[str, str],
    **options: Any,
) -> dict[str, MetricResult]:
    """Compute scores of nocaps' domains (Agrawal et al., 2019): in, near, out, overall.

    ``overall`` scores all images together, not the mean of domains; empty domains are absent.

    Args:
        candidates, references, options: see `score_groups`.
        domains: domain of each image, from `captioning.data.readers.nocaps.read_domains`.

    Raises:
        ValueError: an image without a domain, or an error of `score_groups`.
    """
    for i in candidates:
        if domains.get(i) not in NOCAPS_DOMAINS:
            raise ValueError(f"domain of {i!r} must be in, near or out: got {domains.get(i)!r}")
    groups = {d: ids for d in NOCAPS_DOMAINS if (ids := [i for i in candidates if domains[i] == d])}
    return score_groups(candidates, references, groups | {"overall": list(candidates)}, **options)
