"""What every policy promises, for every selector with every amender."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from captioning.data.roster import CurationView, build_roster
from captioning.types import Sample
from curation import amend, select
from curation.amend.condition import Condition
from curation.amend.down_weight import DownWeight
from curation.amend.mask_words import MaskWords
from curation.amend.model_caption import CapFilt, ModelCaption
from curation.amend.remove import Remove
from curation.amend.replace import ReplaceBoth, ReplaceCaption, ReplaceImage
from curation.amend.replace_word import ReplaceWord
from curation.amend.sentences import MaskSentences, RemoveSentences, ReplaceSentences
from curation.base import Amender, Context, Selector
from curation.loop.policy import Policy, Schedule
from curation.select.above import Above
from curation.select.mixture import Mixture
from curation.select.random import Random
from curation.select.share import Share
from curation.select.sigma import Sigma
from curation.select.top import Top
from curation.select.unmatched import Unmatched
from tests.curation.toy_captions import ToyCaptions, ToyFit
from tests.curation.toy_source import ToySource
from tests.curation.toy_words import ToySentences, ToyWords

NUM_IMAGES, NUM_CAPTIONS = 12, 4
SELECTORS = {
    "top": lambda: Top(ratio=0.2),
    "sigma": lambda: Sigma(num_std=0.5),
    "random": lambda: Random(ratio=0.2),
    "above": lambda: Above(threshold=5),
    "mixture": lambda: Mixture(),
    "share": lambda: Share(ratio=0.4),
    "unmatched": lambda: Unmatched(pairs=ToyFit(word=1), threshold=0.05),
}
WRITTEN = {str(image): [f"new {k} of {image}" for k in range(3)] for image in range(0, 12, 2)}
TOY_SENTENCES = ToySentences({f"caption {k}": k for k in range(NUM_CAPTIONS)})
AMENDERS = {
    "remove": Remove,
    "replace_caption": ReplaceCaption,
    "capfilt": lambda: CapFilt(source=ToyCaptions(WRITTEN)),
    "model_caption": lambda: ModelCaption(source=ToyCaptions(WRITTEN)),
    "condition": Condition,
    "down_weight": DownWeight,
    "mask_words": lambda: MaskWords(score=ToyWords({"caption": ("photo", 0.9)})),
    "replace_word": lambda: ReplaceWord(score=ToyWords({"caption": ("photo", 0.9)})),
    "mask_sentences": lambda: MaskSentences(score=TOY_SENTENCES, emptied="remove"),
    "remove_sentences": lambda: RemoveSentences(score=TOY_SENTENCES, emptied="remove"),
    "replace_sentences": lambda: ReplaceSentences(score=TOY_SENTENCES, source=ToyCaptions(WRITTEN)),
    "replace_image": lambda: ReplaceImage(source=ToySource(refuses=("caption 3 of 1",))),
    "replace_both": lambda: ReplaceBoth(source=ToySource(refuses=("caption 3 of 1",))),
}
pairings = pytest.mark.parametrize("amend", AMENDERS)
selectors = pytest.mark.parametrize("select", SELECTORS)


def make_policy(select: str, amend: str, **schedule) -> Policy:
    return Policy(
        select=SELECTORS[select](),
        amend=AMENDERS[amend](),
        schedule=Schedule(**schedule),
        name=f"{amend} by {select}",
    )


def make_context(view: CurationView | None = None, *, epoch: int = 0, seed: int = 0) -> Context:
    """Losses in two heaps, with ties and unseen samples among them."""
    if view is None:
        samples = [
            Sample(
                row=0,
                sample_id=f"{image}#{k}",
                image_id=str(image),
                image_path=Path(f"{image}.jpg"),
                caption=f"caption {k} of {image}",
            )
            for image in range(NUM_IMAGES)
            for k in range(NUM_CAPTIONS)
        ]
        view = CurationView(roster=build_roster("contract", samples))
    rng = np.random.default_rng([epoch, 7])
    losses = torch.from_numpy(rng.integers(0, 8, len(view.roster)).astype(np.float32))
    losses[::5] += 20
    losses[::9] = torch.nan
    live = [sample.row for sample in view.samples()]
    gone = torch.ones(len(losses), dtype=torch.bool)
    gone[live] = False
    losses[gone] = torch.nan
    return Context(view=view, losses=losses, history=losses[None], epoch=epoch, seed=seed)


def test_every_selector_and_amender_is_tested_here():
    # what takes all looks at no losses, what writes captions needs a captioner
    for package, base, makers, others in (
        (select, Selector, SELECTORS, {"All", "Origin"}),
        (amend, Amender, AMENDERS, {"PseudoLabel"}),
    ):
        tested = {type(make()).__name__ for make in makers.values()} | others
        assert concrete_classes(package, base) == tested


def concrete_classes(package: ModuleType, base: type) -> set[str]:
    """Names of the classes of a kind that a package's modules define."""
    modules = [
        importlib.import_module(f"{package.__name__}.{module.name}")
        for module in pkgutil.iter_modules(package.__path__)
    ]
    return {
        name
        for module in modules
        for name, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, base)
        and found.__module__ == module.__name__
        and not name.startswith("Abstract")
    }


@selectors
@pairings
def test_the_same_context_gives_the_same_edits(select, amend):
    context = make_context()
    policy = make_policy(select, amend)
    first = policy.decide(context)
    assert first
    assert policy.decide(context) == first
    assert make_policy(select, amend).decide(make_context()) == first


@selectors
@pairings
def test_only_live_samples_are_edited_once_over_many_epochs(select, amend):
    view = make_context().view
    policy = make_policy(select, amend)
    for epoch in range(6):
        context = make_context(view, epoch=epoch)
        decision = policy.deliberate(context)
        ids = [candidate.sample.sample_id for candidate in decision.selected]
        live = {sample.sample_id for sample in view.samples()}
        assert set(ids) <= live
        assert len(set(ids)) == len(ids)
        edited = dict.fromkeys(edit.sample_id for edit in decision.edits)
        assert sorted(ids) == sorted([*edited, *decision.unchanged])
        view = view.apply(decision.edits)
    assert view.journal


@selectors
@pairings
def test_edits_are_signed_and_explained(select, amend):
    policy = make_policy(select, amend)
    for edit in policy.decide(make_context(epoch=3)):
        assert (edit.policy, edit.epoch) == (policy.name, 3)
        assert len(edit.reason) > 10


@pytest.mark.parametrize("select", sorted(SELECTORS.keys() - {"random", "share"}))
def test_the_order_of_the_roster_plays_no_part_in_ties(select):
    """Ties break by ``sample_id``: the reversed roster gives the same selection.

    Not so for random draws, which go by row.
    """
    context = make_context()
    samples = context.view.roster.samples[::-1]
    view = CurationView(roster=build_roster("reversed", samples))
    turned = Context(
        view=view, losses=context.losses.flip(0), history=context.history.flip(1), epoch=0
    )
    expected = [candidate.sample.sample_id for candidate in SELECTORS[select]().select(context)]
    assert [
        candidate.sample.sample_id for candidate in SELECTORS[select]().select(turned)
    ] == expected


@selectors
def test_unknown_losses_select_nothing(select):
    context = make_context()
    unknown = torch.full_like(context.losses, torch.nan)
    blind = Context(view=context.view, losses=unknown, history=unknown[None], epoch=0)
    selected = SELECTORS[select]().select(blind)
    assert bool(selected) == (select in ("random", "share", "unmatched"))


@selectors
def test_scores_rank_what_is_selected_first(select):
    context, selector = make_context(), SELECTORS[select]()
    scores = selector.scores(context)
    assert scores.shape == context.losses.shape
    chosen = [float(scores[candidate.sample.row]) for candidate in selector.select(context)]
    assert chosen == sorted(chosen, reverse=True)
    rest = scores[~torch.isnan(scores)].sort(descending=True).values[len(chosen) :]
    assert not len(rest) or chosen[-1] >= rest[0]


@pairings
@pytest.mark.parametrize("selector", [Top, Random])
def test_ratio_zero_gives_nothing(selector, amend):
    policy = Policy(select=selector(ratio=0), amend=AMENDERS[amend](), name="none")
    assert policy.decide(make_context()) == []


def test_a_policy_that_would_empty_the_set_is_refused():
    policy = Policy(select=Random(ratio=1), amend=Remove(), name="all")
    refused = (
        "would remove all 48 samples at the end of epoch 0: lower curation.select.ratio, or set "
        r"curation.schedule.until_epoch\Z"
    )
    with pytest.raises(ValueError, match=refused):
        policy.decide(make_context())


@pytest.mark.parametrize("select", SELECTORS)
def test_each_selector_names_a_setting_of_its_own_for_fewer(select):
    selector = SELECTORS[select]()
    match = re.fullmatch(r"(lower|raise) curation\.select\.(\w+)", selector.for_fewer)
    assert match is not None
    assert match[2] in inspect.signature(type(selector)).parameters


@pytest.mark.parametrize("selector", [Top, Random])
@pytest.mark.parametrize("ratio", [-0.01, 1.01, float("nan"), "5%", None, True])
def test_a_ratio_that_is_no_fraction_is_refused_at_once(selector, ratio):
    with pytest.raises(ValueError, match=r"ratio must be a fraction in \[0, 1\]"):
        selector(ratio=ratio)


@pytest.mark.parametrize("num_std", [-1, float("inf"), "2", False])
def test_a_distance_that_is_no_number_is_refused(num_std):
    with pytest.raises(ValueError, match="num_std must be"):
        Sigma(num_std=num_std)


def test_the_epoch_and_the_seed_change_random_choices():
    policy = make_policy("random", "remove")
    chosen = {
        tuple(edit.sample_id for edit in policy.decide(make_context(epoch=epoch, seed=seed)))
        for epoch in range(3)
        for seed in range(3)
    }
    assert len(chosen) == 9


@pytest.mark.parametrize(
    ("schedule", "due"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"from_epoch": 2}, [2, 3, 4, 5]),
        ({"until_epoch": 1}, [0, 1]),
        ({"from_epoch": 1, "until_epoch": 1}, [1]),
        ({"from_epoch": 1, "every_n_epochs": 2}, [1, 3, 5]),
    ],
)
def test_schedules(schedule, due):
    policy = make_policy("top", "remove", **schedule)
    assert [epoch for epoch in range(6) if policy.decide(make_context(epoch=epoch))] == due


@pytest.mark.parametrize(
    "schedule",
    [
        *(
            {"from_epoch": value}
            for value in (-2, float("nan"), float("inf"), 1.0, "2", True, None)
        ),
        *({"until_epoch": value} for value in (float("inf"), float("nan"), 2.5, False)),
        *({"every_n_epochs": value} for value in (0, 1.5, None)),
        {"from_epoch": 3, "until_epoch": 2},
    ],
)
def test_impossible_schedules_are_refused(schedule):
    with pytest.raises(ValueError, match=next(reversed(schedule))):
        Schedule(**schedule)


def test_parts_take_keyword_arguments_alone():
    for part in (Policy, Schedule, Top, Sigma, Random):
        kinds = {p.kind for p in inspect.signature(part).parameters.values()}
        assert kinds == {inspect.Parameter.KEYWORD_ONLY}
