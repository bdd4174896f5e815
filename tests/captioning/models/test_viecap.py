"""ViECap beside plain code around transformers; what is drawn, what trains, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from captioning.decoding.beam import BeamSearch
from captioning.models.viecap import EMBEDDINGS, ENTITIES, ViECap, with_noise
from captioning.text.entities import hard_prompt
from captioning.text.entity_index import EntityIndex
from captioning.text.tokenizers.sentences import SentenceTokenizer
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Batch
from tests.causal_folder import POSITIONS, save_causal
from tests.tiny import CAPTIONS, FEATURE_SIZE, MODELS, NUM_IMAGES, make_batch

NAMES = ("dog", "bird", "tree", "cat")
SIZES = {"num_projected": 2, "num_learned": 3, "projector_layers": 2, "projector_heads": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_causal(tmp_path_factory.mktemp("gpt2"))


def index() -> EntityIndex:
    vectors = torch.randn(len(NAMES), FEATURE_SIZE, generator=torch.Generator().manual_seed(3))
    return EntityIndex(names=NAMES, embeddings=normalize(vectors, dim=-1))


def build(folder: Path, **settings) -> ViECap:
    torch.manual_seed(5)
    settings = {"entities": index(), "temperature": 0.3, "threshold": 0.25} | settings
    search = BeamSearch.with_settings(beam_size=3, max_length=8, length_penalty=1.0, exact=False)
    model = ViECap(
        feature_size=FEATURE_SIZE,
        pretrained=str(folder),
        tokenizer=SentenceTokenizer.of_causal(name=str(folder)),
        search=search,
        **SIZES,
        **settings,
    )
    with torch.no_grad():
        for parameter in model.projector.parameters():
            parameter.normal_(0, 0.4)
    return model.eval()


def photos(model: ViECap) -> Batch:
    """One embedding a photo."""
    batch = make_batch(words=model.tokenizer)
    return replace(batch, regions=batch.regions[:, :1], region_mask=None)


def texts(model: ViECap) -> Batch:
    """Captions alone, the names they hold in their order."""
    entity_ids = [[NAMES.index(w) for w in c.split() if w in NAMES] for c in CAPTIONS]
    width = max(map(len, entity_ids))
    return replace(
        photos(model),
        regions=None,
        extras={
            EMBEDDINGS: torch.randn(len(CAPTIONS), FEATURE_SIZE).half(),
            ENTITIES: torch.tensor([[*row, *[-1] * (width - len(row))] for row in entity_ids]),
        },
    )


def plain_nll(model: ViECap, embedding: Tensor, prompt: str, caption: str) -> Tensor:
    """Mean over a caption's tokens, by transformers' own forward with labels, alone."""
    words = model.network.get_input_embeddings()
    soft = model.projector(normalize(embedding[None].float(), dim=-1))
    hard = model.tokenizer.encode(prompt)[1:] if prompt else []
    caption_ids = model.tokenizer.encode(caption)[1:]
    tokens = torch.tensor([hard + caption_ids])
    labels = torch.tensor([[-100] * (soft.shape[1] + len(hard)) + caption_ids])
    vectors = torch.cat([soft, words(tokens)], dim=1)
    return model.network(inputs_embeds=vectors, labels=labels).loss


@torch.no_grad()
def test_losses_of_captions_alone_are_those_of_transformers(folder: Path) -> None:
    model = build(folder)
    batch = texts(model)
    prompts = ["dog", "", "bird, tree", "dog", "cat", "tree, bird"]
    prompts = [f"There are {names or 'something'} in image." for names in prompts]
    expected = torch.stack(
        [
            plain_nll(model, embedding, prompt, caption)
            for embedding, prompt, caption in zip(
                batch.extras[EMBEDDINGS], prompts, CAPTIONS, strict=True
            )
        ]
    )
    losses = model.losses(batch)
    torch.testing.assert_close(losses.per_sample, expected)
    lengths = batch.token_mask.sum(1) - 1
    torch.testing.assert_close(losses.total, (expected * lengths).sum() / lengths.sum())


@torch.no_grad()
def test_losses_of_pairs_are_those_of_transformers(folder: Path) -> None:
    model = build(folder, entities=None)
    batch = photos(model)
    expected = [
        plain_nll(model, batch.regions[image, 0], "", caption)
        for image, caption in zip(batch.image_index.tolist(), CAPTIONS, strict=True)
    ]
    torch.testing.assert_close(model.losses(batch).per_sample, torch.stack(expected))


def beam_without_cache(model: ViECap, embedding: Tensor, prompt: str, width: int, longest: int):
    """The same search on one photo in lists; every hypothesis is read anew at every step."""
    words = model.network.get_input_embeddings()
    soft = model.projector(normalize(embedding[None].float(), dim=-1))
    start = torch.cat([soft, words(torch.tensor([model.tokenizer.encode(prompt)[1:]]))], 1)
    ended, alive = [], [((), 0.0)]
    for length in range(1, longest + 1):
        finished = []
        for tokens, score in alive:
            vectors = torch.cat([start, words(torch.tensor([tokens], dtype=torch.long))], 1)
            log_probs = model.network(inputs_embeds=vectors).logits[0, -1].log_softmax(-1)
            log_probs[model.tokenizer.bos_id] = -torch.inf
            finished += [((*tokens, t), score + s) for t, s in enumerate(log_probs.tolist())]
        finished.sort(key=lambda entry: -entry[1])
        best = finished[: 2 * width]
        is_end = [tokens[-1] == model.tokenizer.eos_id for tokens, _ in best]
        pairs = list(zip(best, is_end, strict=True))
        ended += [(entry[1] / length, entry[0]) for entry, end in pairs[:width] if end]
        alive = [entry for entry, end in pairs if not end][:width]
        if len(ended) >= width and sorted(ended)[-width][0] >= alive[0][1] / length:
            break
    if len(ended) < width:
        ended += [(score / longest, tokens) for tokens, score in alive]
    return max(ended, key=lambda entry: entry[0])


@torch.no_grad()
def test_batched_captions_are_those_of_one_photo_at_a_time_without_cache(folder: Path) -> None:
    model = build(folder)
    batch = photos(model)
    _, entity_ids = model._embeddings_and_entities(batch)
    assert len({tuple(row) for row in entity_ids.tolist()}) > 1  # prompts of different lengths
    predictions = model.generate(batch)
    for number in range(NUM_IMAGES):
        prompt = hard_prompt(
            [NAMES[entity] for entity in entity_ids[number].tolist() if entity >= 0]
        )
        score, tokens = beam_without_cache(model, batch.regions[number, 0], prompt, 3, 8)
        assert predictions[number].caption == model.tokenizer.decode(tokens)
        assert predictions[number].score == pytest.approx(score, rel=1e-4)
    assert len({entity.caption for entity in predictions}) > 1


def test_entities_are_those_of_the_greatest_shares_above_the_threshold(folder: Path) -> None:
    model = build(folder, num_entities=2, threshold=0.2, temperature=0.4)
    embeddings = torch.randn(30, FEATURE_SIZE)
    cosines = normalize(embeddings, dim=-1) @ index().embeddings.T
    shares = (cosines / 0.4).exp() / (cosines / 0.4).exp().sum(1, keepdim=True)
    numbers = set()
    for row, entity_ids in zip(shares, model.find_entities(embeddings).tolist(), strict=True):
        order = sorted(range(len(NAMES)), key=lambda name: -row[name])[:2]
        expected = [name for name in order if row[name] > 0.2]
        assert [entity for entity in entity_ids if entity >= 0] == expected
        numbers.add(len(expected))
    assert numbers == {1, 2}


def test_entities_are_the_same_in_half_precision(folder: Path) -> None:
    model = build(folder, num_entities=2, threshold=0.2, temperature=0.01)
    embeddings = torch.randn(1000, FEATURE_SIZE)
    with torch.autocast("cpu", torch.bfloat16):
        in_half = model.find_entities(embeddings)
    assert torch.equal(in_half, model.find_entities(embeddings))


@torch.no_grad()
def test_captions_keep_their_names_where_photos_have_others(folder: Path) -> None:
    model = build(folder)
    expected = model.losses(texts(model)).per_sample
    photo_names = EntityIndex(
        names=("cow", "tree"), embeddings=index().embeddings[:2], caption_names=NAMES
    )
    other = build(folder, entities=photo_names)
    torch.testing.assert_close(other.losses(texts(other)).per_sample, expected, rtol=0, atol=0)
    _, entity_ids = other._embeddings_and_entities(photos(other))
    assert entity_ids is not None
    named = {name for row in entity_ids.tolist() for name in other._entity_names(row)}
    assert named <= {"cow", "tree"}


def test_a_finished_model_finds_other_entities(folder: Path) -> None:
    model = build(folder, threshold=0.9)
    embeddings = torch.randn(30, FEATURE_SIZE)
    model.use_entities(threshold=0.2, num_entities=2, temperature=0.4)
    same = build(folder, threshold=0.2, num_entities=2, temperature=0.4)
    assert model.find_entities(embeddings).tolist() == same.find_entities(embeddings).tolist()
    vectors = index().embeddings[[2, 0, 1]]
    other = EntityIndex(names=("tree", "dog", "bird"), embeddings=vectors, caption_names=NAMES)
    model.use_entities(other)
    assert model.names == ("tree", "dog", "bird")
    assert model.find_entities(vectors)[:, 0].tolist() == [0, 1, 2]
    assert model._entity_names([1, 3]) == ("dog", "dog")
    with pytest.raises(ValueError, match="trained without entities"):
        build(folder, entities=None).use_entities(other)


def test_names_that_the_vocabulary_lacks_are_never_named() -> None:
    words = WordTokenizer.build(
        CAPTIONS, min_count=1, extra_words=("there", "are", "something", "in", "image")
    )
    model = ViECap(
        feature_size=FEATURE_SIZE,
        entities=EntityIndex(names=("unicorn", "dog"), embeddings=torch.eye(2, FEATURE_SIZE)),
        tokenizer=words,
        search=BeamSearch.with_settings(beam_size=1, max_length=4),
        hidden_size=8,
        num_layers=1,
        num_heads=2,
        **SIZES,
    )
    assert model.find_entities(torch.eye(1, FEATURE_SIZE)).tolist() == [[1, -1]]
    assert model._entity_names([0, 1]) == ("dog",)
    assert words.decode(model._prompt(("dog",))) == "there are dog in image"


@pytest.mark.long
def test_a_share_of_the_entities_is_left_out_in_training_alone(folder: Path) -> None:
    model = build(folder, masking=0.4)
    prompts: list[Tensor] = []
    original = model._hard_prompts

    def watched(entity_ids: Tensor, number: int) -> tuple[Tensor, Tensor]:
        prompts.append(entity_ids)
        return original(entity_ids, number)

    model._hard_prompts = watched
    batch = texts(model)
    there = (batch.extras[ENTITIES] >= 0).sum().item()
    torch.manual_seed(0)
    model.train()
    with torch.no_grad():
        for _ in range(200):
            model.losses(batch)
    share_left = sum((entity_ids >= 0).sum().item() for entity_ids in prompts) / (200 * there)
    assert share_left == pytest.approx(0.6, abs=0.04)
    prompts.clear()
    model.eval().losses(batch)
    assert torch.equal(prompts[0], batch.extras[ENTITIES])


def test_noise_is_drawn_for_texts_in_training_alone(folder: Path) -> None:
    model = build(folder)
    batch = texts(model)
    assert torch.equal(
        model._embeddings_and_entities(batch)[0],
        normalize(batch.extras[EMBEDDINGS].float(), dim=-1),
    )
    model.train()
    torch.manual_seed(7)
    embeddings = model._embeddings_and_entities(batch)[0]
    number = int(torch.randint(2**31, (), generator=torch.Generator().manual_seed(7)))
    keys = [(number, row) for row in batch.rows.tolist()]
    torch.testing.assert_close(
        embeddings, with_noise(batch.extras[EMBEDDINGS].float(), 0.016, keys)
    )
    of_photos = photos(model)
    expected = normalize(of_photos.regions[:, 0], dim=-1)
    assert torch.equal(model._embeddings_and_entities(of_photos)[0], expected)


def test_everything_trains_but_the_entities(folder: Path) -> None:
    model = build(folder).train()
    model.losses(texts(model)).total.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert not model.entities.requires_grad
    assert "entities" in model.state_dict()
    model.zero_grad()
    model.network.requires_grad_(False)  # ClipCap's other form: the projector alone
    model.losses(texts(model)).total.backward()
    assert all(parameter.grad is None for parameter in model.network.parameters())
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.projector.parameters())


def test_half_precision_is_near(folder: Path) -> None:
    model = build(folder)
    batch = photos(model)
    exact = model.losses(batch).per_sample
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(
            model.losses(batch).per_sample.float(), exact, rtol=0.05, atol=0.1
        )
        assert len(model.generate(batch)) == NUM_IMAGES


def test_other_entities_are_refused_on_loading(folder: Path) -> None:
    checkpoint: dict = {}
    build(folder).on_save_checkpoint(checkpoint)
    build(folder).on_load_checkpoint(checkpoint)
    with pytest.raises(ValueError, match="trained with 4 entities, but this run has 0"):
        build(folder, entities=None).on_load_checkpoint(checkpoint)


def test_parts_that_do_not_fit_are_refused(folder: Path) -> None:
    parts = {
        "feature_size": FEATURE_SIZE,
        "search": BeamSearch.with_settings(beam_size=1, max_length=4),
        **SIZES,
    }
    words = WordTokenizer.build(CAPTIONS, min_count=1)
    with pytest.raises(ValueError, match=r"has \d+ tokens, but the tokenizer \d+: .*causal"):
        ViECap(pretrained=str(folder), tokenizer=words, **parts)
    small = {"hidden_size": 8, "num_layers": 1, "num_heads": 2, "tokenizer": words, **parts}
    with pytest.raises(ValueError, match=r"lacks words of the prompt .*tokenizer\.extra_words="):
        ViECap(entities=index(), **small)
    wide = EntityIndex(names=("dog",), embeddings=torch.eye(1, 5))
    with pytest.raises(ValueError, match=r"5 dimensions, but photos have 12"):
        ViECap(entities=wide, **small)
    with pytest.raises(ValueError, match="need distinct names with one embedding each"):
        EntityIndex(names=("dog", "dog"), embeddings=torch.eye(2))


def test_checkpointing_keeps_less_and_changes_no_gradient() -> None:
    kept, gradients = [], []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        model = MODELS["viecap_soft"](checkpointing=checkpointing, dropout=0.0).train()
        sizes: list[int] = []
        hooks = torch.autograd.graph.saved_tensors_hooks

        def count(tensor: Tensor, sizes: list[int] = sizes) -> Tensor:
            sizes.append(tensor.numel())
            return tensor

        with hooks(count, lambda tensor: tensor):
            total = model.losses(make_batch()).total
        total.backward()
        kept.append(sum(sizes))
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert kept[1] < kept[0] / 2
    for plain, other in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, other)


def test_batches_that_do_not_fit_are_refused(folder: Path) -> None:
    model = build(folder)
    batch = texts(model)
    alone = {EMBEDDINGS: batch.extras[EMBEDDINGS]}
    with pytest.raises(ValueError, match=r"needs the captions' entities: set model\.texts\.parser"):
        model.losses(replace(batch, extras=alone))
    narrow = {**batch.extras, EMBEDDINGS: torch.randn(len(batch), 5)}
    with pytest.raises(ValueError, match="have 5 dimensions, but photos have 12"):
        model.losses(replace(batch, extras=narrow))
    long = batch.tokens[:, 1:2].expand(-1, POSITIONS)
    tokens = torch.cat([batch.tokens[:, :1], long, batch.tokens[:, -1:]], dim=1)
    with pytest.raises(ValueError, match=f"more than the language model's context of {POSITIONS}"):
        model.losses(replace(batch, tokens=tokens, token_mask=torch.ones_like(tokens) > 0))
