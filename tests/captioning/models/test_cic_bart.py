"""CIC-BART here against BART of transformers, on small random weights written to disk."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BartConfig, BartForConditionalGeneration

from captioning.decoding.greedy import GreedySearch
from captioning.models.cic_bart import CicBart
from captioning.models.layers import bart_reader
from captioning.text.tokenizers.bart import BartTokenizer
from captioning.types import Batch, Control
from tests.captioning.data.byte_pairs import write_byte_pairs
from tests.tiny import CONTROLS, FEATURE_SIZE, build, cic_bart, make_batch, only, tokenizer

SIZES = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BART with its tokenizer, in the layout of the hub's."""
    path = tmp_path_factory.mktemp("bart")
    known = write_byte_pairs(path)
    torch.manual_seed(1)
    bart = BartForConditionalGeneration(
        BartConfig(vocab_size=known, max_position_embeddings=96, **SIZES)
    )
    with torch.no_grad():
        for parameter in bart.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.4)
    bart.save_pretrained(path)
    return path


def built(folder: Path, **settings) -> CicBart:
    torch.manual_seed(2)
    return CicBart(
        feature_size=FEATURE_SIZE,
        pretrained=str(folder),
        tokenizer=BartTokenizer.of_bart(name=str(folder)),
        search=GreedySearch.with_settings(max_length=8),
        **settings,
    )


def doubled(batch: Batch) -> Batch:
    extras = {"boxes": batch.extras["boxes"].double()}
    return replace(batch, regions=batch.regions.double(), extras=extras)


def plain_inputs(model: CicBart, batch: Batch, rows: list[int], padding: int = 0) -> Tensor:
    """What VL-BART's encoder reads of a batch of one caption, written down plainly.

    Regions that fill up a batch have no features and no box, but a turn.
    """
    words, encoder, visual = model.bart.model.shared.weight, model.bart.model.encoder, model.visual
    ids = torch.tensor(model.text.ids(batch.controls[0]))
    text = words[ids] + encoder.embed_positions.weight[2 : 2 + len(ids)]
    text = functional.layer_norm(text, text.shape[-1:], *encoder.layernorm_embedding.parameters())
    regions = []
    for turn, row in enumerate([*rows, *[-1] * padding]):
        x1, y1, x2, y2 = box = batch.extras["boxes"][0, row] * (row >= 0)
        area = (x2 - x1) * (y2 - y1)
        if visual.published_area:
            area = (y1 - x1) * (y2 - x2)
        place = torch.cat([box, area[None]])
        total = visual.features(batch.regions[0, row] * (row >= 0)) + visual.places(place)
        regions.append(visual.norm(total + visual.image.weight[0] + words[len(words) - 1 - turn]))
    return torch.cat([text, torch.stack(regions)])


SHOWN = ([0, 1, 3], [0, 3, 1], [0, 1, 2, 4], [0, 2], [0], [0, 1, 2, 3, 4])


PUBLISHED = {"control_tokens_said": True, "attend_padding": True, "published_area": True}


@torch.no_grad()
@pytest.mark.parametrize("settings", [{}, {"control_tokens_said": True}, PUBLISHED], ids=len)
def test_losses_are_those_of_transformers(folder: Path, settings: dict[str, bool]) -> None:
    model = built(folder, **settings).double().eval()
    batch = doubled(make_batch(words=model.tokenizer))
    theirs = copy.deepcopy(model.bart)
    theirs.model.encoder.layernorm_embedding = nn.Identity()
    theirs.model.encoder.embed_positions.weight.zero_()
    losses = model.losses(batch)
    total, count = 0.0, 0
    for caption, rows in enumerate(SHOWN):
        single = only(batch, caption)
        labels = single.tokens[:, 1:][single.token_mask[:, 1:]].unsqueeze(0)
        padding = max(map(len, SHOWN)) - len(rows) if "attend_padding" in settings else 0
        inputs = plain_inputs(model, single, rows, padding)
        expected = theirs(inputs_embeds=inputs[None], labels=labels)
        assert losses.per_sample[caption].item() == pytest.approx(expected.loss.item(), rel=1e-9)
        total, count = total + expected.loss.item() * labels.numel(), count + labels.numel()
    assert losses.total.item() == pytest.approx(total / count, rel=1e-9)


def test_the_first_tokens_are_those_of_bart(folder: Path) -> None:
    model = built(folder)
    batch = make_batch(words=model.tokenizer)
    begin = (model.bart.config.decoder_start_token_id, model.bart.config.bos_token_id)
    assert tuple(batch.tokens[0, :2].tolist()) == begin
    assert model.text.ids(Control())[0] == model.bart.config.bos_token_id
    assert model.text.ids(Control())[-1] == model.bart.config.eos_token_id


def test_control_tokens_may_be_said_and_are_left_out_of_the_text(folder: Path) -> None:
    batch = make_batch()
    shares = []
    for said in (False, True):
        model = built(folder, control_tokens_said=said).eval()
        begin = torch.full((len(batch.image_ids),), model.tokenizer.bos_id)
        log_probs, _ = model.step(begin, model.start(batch))
        shares.append(log_probs[:, -200:].exp().sum(1))
    assert shares[0].max() == 0
    assert shares[1].min() > 1e-3
    words = model.tokenizer
    ids = [words.token_id("<vis_extra_id_1>"), *words.encode("a dog")[2:-1], len(words) - 101]
    assert words.decode([words.bos_id, words.begin_id, *ids, words.eos_id]) == "a dog"


def test_a_blank_more_before_verbs_is_a_token_of_its_own(folder: Path) -> None:
    ours, theirs = built(folder), built(folder, blank_before_verbs=True)
    control = Control(regions=(0,), num_words=6, verbs=("runs", "sits"))
    ids = ours.text.ids(control)
    place = len(ours.text.ids(Control())) - 1
    blank = ours.tokenizer.token_id("Ġ")
    assert theirs.text.ids(control) == [*ids[:place], blank, *ids[place:]]
    assert theirs.text.ids(Control(num_words=6)) == ours.text.ids(Control(num_words=6))


def test_an_image_is_encoded_once_for_captions_that_ask_the_same(monkeypatch) -> None:
    encoded = []
    monkeypatch.setattr(
        "captioning.models.cic_bart.encode",
        lambda bart, inputs, exist: encoded.append(len(inputs)) or inputs,
    )
    batch = make_batch()
    build("cic_bart").losses(batch)
    build("cic_bart_uncontrolled").losses(batch)
    assert encoded == [6, 4]


@pytest.mark.parametrize("settings", [{}, {"attend_padding": True}], ids=len)
@pytest.mark.parametrize("name", ["cic_bart", "cic_bart_uncontrolled"])
def test_padding_that_is_computed_changes_nothing(name: str, settings, monkeypatch) -> None:
    """Neither losses and gradients, nor what each sample drops."""
    batch, results, computed = make_batch(), [], []
    fed_forward = bart_reader._fed_forward
    monkeypatch.setattr(
        bart_reader,
        "_fed_forward",
        lambda layer, hidden: computed.append(len(hidden)) or fed_forward(layer, hidden),
    )
    for keeps in (False, True):
        monkeypatch.setattr(bart_reader, "keeps_padding", lambda number, device, k=keeps: k)
        torch.manual_seed(5)
        model = cic_bart(controlled=name == "cic_bart", dropout=0.3, **settings).double().train()
        losses = model.losses(doubled(batch))
        losses.total.backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        results.append((losses.per_sample, *gradients))
    for packed, padded in zip(*results, strict=True):
        torch.testing.assert_close(padded, packed, rtol=1e-9, atol=1e-12)
    packed, padded = computed[:2], computed[2:]
    assert padded[1] > packed[1], "captions have padding"
    assert padded[0] > packed[0] or settings, "so have the encoder's inputs"


def test_padding_is_computed_for_small_batches_of_a_gpu_alone() -> None:
    gpu, most = torch.device("cuda"), bart_reader.MOST_PADDED
    assert bart_reader.keeps_padding(most, gpu)
    assert not bart_reader.keeps_padding(most + 1, gpu)
    assert not bart_reader.keeps_padding(1, torch.device("cpu"))


@pytest.mark.parametrize("ordered", [True, False])
def test_order_counts_where_it_is_asked_for(ordered: bool) -> None:
    model, batch = build("cic_bart"), make_batch()
    losses = []
    for regions in ((0, 2, 1), (2, 1, 0)):
        controls = (Control(regions=regions, ordered=ordered, num_words=6), *CONTROLS[1:])
        losses.append(model.losses(replace(batch, controls=controls)).per_sample[0])
    assert torch.equal(*losses) is not ordered


@pytest.mark.parametrize(
    "other",
    [
        Control(regions=(0, 1), num_words=6),
        Control(regions=(0,), num_words=6),
        Control(regions=(0, 2), num_words=11),
        Control(regions=(0, 2), num_words=6, level=3),
        Control(regions=(0, 2), num_words=6, verbs=("runs",)),
        Control(regions=(0, 2)),
    ],
)
def test_every_part_of_a_control_is_read(other: Control) -> None:
    model, batch = build("cic_bart"), make_batch()
    loss = model.losses(batch).per_sample
    two = model.losses(replace(batch, controls=(other, *CONTROLS[1:]))).per_sample
    assert not torch.isclose(loss[0], two[0])
    assert torch.allclose(loss[1:], two[1:])
    model.controlled = False
    two = model.losses(replace(batch, controls=(other, *CONTROLS[1:]))).per_sample
    assert torch.equal(model.losses(replace(batch, controls=None)).per_sample, two)


def test_boxes_and_what_lies_in_them_are_read() -> None:
    model, batch = build("cic_bart"), make_batch()
    loss = model.losses(batch).per_sample[0]
    moved = batch.extras["boxes"].clone()
    moved[0, 3] = torch.tensor([0.1, 0.2, 0.3, 0.4])
    assert not torch.isclose(
        model.losses(replace(batch, extras={"boxes": moved})).per_sample[0], loss
    )
    for region, changes in ((3, True), (2, False)):
        regions = batch.regions.clone()
        regions[0, region] += 1
        two = model.losses(replace(batch, regions=regions)).per_sample[0]
        assert torch.isclose(loss, two).item() is not changes


def test_a_photo_without_boxes_is_described_as_a_whole() -> None:
    model, batch = build("cic_bart"), make_batch()
    mask = torch.zeros_like(batch.region_mask)
    mask[:, 0] = True
    bare = replace(batch, region_mask=mask, controls=(Control(regions=(), num_words=3),) * 6)
    losses = model.losses(bare).per_sample
    shown = replace(bare, controls=(Control(num_words=3),) * 6)
    assert torch.equal(model.losses(shown).per_sample, losses)
    assert all(prediction.caption for prediction in model.generate(bare))


def test_control_tokens_are_never_said() -> None:
    model, batch = build("cic_bart"), make_batch()
    log_probs, _ = model.step(torch.full((4,), model.tokenizer.bos_id), model.start(batch))
    assert log_probs[:, model.num_words :].max() < -5e3
    torch.testing.assert_close(log_probs[:, : model.num_words].logsumexp(1), torch.zeros(4))
    model.label_smoothing = 0.1
    assert model.losses(batch).total < 100  # not spread over what is never said


def test_greedy_captions_are_those_of_transformers(folder: Path) -> None:
    model = built(folder).eval()
    batch = make_batch(words=model.tokenizer)
    state = model.start(batch)
    theirs = model.bart.generate(
        encoder_outputs=(state.images,),
        attention_mask=(state.images_mask[:, 0, 0] == 0).long(),
        max_new_tokens=8,
        do_sample=False,
        num_beams=1,
        forced_bos_token_id=None,
        forced_eos_token_id=None,
        suppress_tokens=[1, 3],
    )
    captions = [prediction.caption for prediction in model.generate(batch)]
    assert captions == [model.tokenizer.decode(row[1:].tolist()) for row in theirs]
    assert len(set(captions)) > 1


def test_wrong_input_is_refused(folder: Path) -> None:
    model, batch = build("cic_bart"), make_batch()
    outside = (*CONTROLS[:4], Control(regions=(2,)), CONTROLS[5])
    with pytest.raises(
        ValueError, match=r"'i3': the control signal requests region 2, but the image has 2"
    ):
        model.losses(replace(batch, controls=outside))
    with pytest.raises(ValueError, match="needs regions with boxes"):
        model.losses(replace(batch, extras={}))
    with pytest.raises(ValueError, match="needs cached features or a backbone"):
        model.losses(replace(batch, regions=None))
    long = batch.tokens[:, 1:2].expand(-1, 30)
    tokens = torch.cat([batch.tokens[:, :1], long], dim=1)
    with pytest.raises(ValueError, match=r"a caption of 30 tokens.* exceeds the model's 24"):
        model.losses(replace(batch, tokens=tokens, token_mask=torch.ones_like(tokens) > 0))
    wordy = (replace(CONTROLS[0], verbs=("runs",) * 18), *CONTROLS[1:])
    with pytest.raises(ValueError, match="a control of 26 tokens"):
        model.losses(replace(batch, controls=wordy))
    state, words = model.start(batch), torch.zeros(4, dtype=torch.long)
    for _ in range(24):
        _, state = model.step(words, state)
    with pytest.raises(ValueError, match=r"exceeds the model's 24 positions: lower search\.max"):
        model.step(words, state)
    with pytest.raises(ValueError, match="tokenizer=words_control"):
        cic_bart(tokenizer=tokenizer())
