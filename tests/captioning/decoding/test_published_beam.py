"""Beams in which ended captions hold their places, against naive searches with lists."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from captioning.decoding.constrained import ConstrainedBeamSearch
from captioning.decoding.machine import Machine, build_machine
from captioning.decoding.published_beam import HeldBeamSearch, restarting
from captioning.decoding.settings import SearchRequest
from tests.captioning.decoding.constrained_truth import Constraints, count_met
from tests.captioning.decoding.toy import TableStepper, random_table, run

END, SIZE, PER_NODE = 1, 4, 2
Row = tuple[float, tuple[int, ...], bool]  # score, tokens without further ends, has ended


def ending(table: torch.Tensor, *, more: float) -> torch.Tensor:
    """The same with likelier ends."""
    logits = table.clone()
    logits[:, :, END] += more
    return logits.log_softmax(-1)


def code_of(stepper: TableStepper, tokens: tuple[int, ...]) -> int:
    code = 0
    for token in (END, *tokens):
        code = stepper.next_code(code, token)
    return code


def continued(
    stepper: TableStepper, image: int, row: Row, allowed: np.ndarray, count: int
) -> list[Row]:
    """The best tokens of a row into one state; an ended row only ends again, at no cost."""
    score, tokens, has_ended = row
    if has_ended:
        return [row] if allowed[END] else []
    values = stepper.table[image, code_of(stepper, tokens)].numpy()
    best = sorted(
        (token for token in range(len(values)) if allowed[token]), key=lambda t: -values[t]
    )
    return [
        (float(np.float32(score) + values[token]), (*tokens, token), token == END)
        for token in best[:count]
    ]


def naive(stepper: TableStepper, image: int, fsm: np.ndarray, steps: int) -> dict[int, list[Row]]:
    """The beam of each state after all steps, from moves ``fsm (S, S, V) bool``."""
    beams: dict[int, list[Row]] = {0: [(0.0, (), False)]}
    for step in range(steps):
        count = PER_NODE if step else SIZE
        following: dict[int, list[Row]] = {}
        for target in range(len(fsm)):
            rows = [
                new
                for state, beam in beams.items()
                for row in beam
                for new in continued(stepper, image, row, fsm[state, target], count)
            ]
            following[target] = sorted(rows, key=lambda row: -row[0])[:SIZE]
        beams = following
    return beams


def published_moves(constraints: list[list[set[int]]], vocabulary: int) -> np.ndarray:
    """Moves as nocaps' appendix draws them: a part of a phrase is a state, failing leads back.

    A phrase's word, or what fails it, is written over the moves that were there before.
    """
    main = 2 ** len(constraints)
    parts = sum(main // 2 * (len(phrase) - 1) for phrase in constraints)
    fsm = np.zeros((main + parts, main + parts, vocabulary), dtype=bool)
    fsm[range(main), range(main)] = True
    free = main
    for number, phrase in enumerate(constraints):
        for state in [state for state in range(main) if not state >> number & 1]:
            source = state
            for place, forms in enumerate(phrase):
                target = state + 2**number if place == len(phrase) - 1 else free
                free += target == free
                words = sorted(forms)
                others = [token for token in range(vocabulary) if token not in forms]
                fsm[source, source] = False
                fsm[source, target, words] = True
                fsm[source, state, others] = True
                fsm[source, state, words] = False
                source = target
    return fsm


def drawn_constraints(generator: np.random.Generator, vocabulary: int) -> list[list[set[int]]]:
    """One to three phrases of one to three words of one or two forms; some share words."""
    return [
        [
            set(generator.integers(2, vocabulary, size=generator.integers(1, 3)).tolist())
            for _ in range(generator.choice([1, 1, 2, 3]))
        ]
        for _ in range(generator.integers(1, 4))
    ]


def phrases_of(constraints: list[list[set[int]]]) -> Constraints:
    """Every choice of forms."""
    return [
        [
            tuple(phrase)
            for phrase in np.stack(np.meshgrid(*map(list, words)), -1)
            .reshape(-1, len(words))
            .tolist()
        ]
        for words in constraints
    ]


@pytest.mark.parametrize("seed", range(6))
def test_without_constraints_the_best_after_all_steps_wins(seed: int) -> None:
    stepper = TableStepper(ending(random_table(seed, images=8, vocabulary=6), more=0.5))
    result = run(
        HeldBeamSearch, stepper, boundary=END, beam_size=SIZE, per_node_beam=PER_NODE, max_length=7
    )
    cut_off = 0
    for image in range(8):
        anywhere = np.ones((1, 1, 6), dtype=bool)
        score, tokens, has_ended = naive(stepper, image, anywhere, 7)[0][0]
        length = int(result.lengths[image, 0])
        assert tuple(result.tokens[image, 0, :length].tolist()) == tokens
        assert float(result.scores[image, 0]) == pytest.approx(score, abs=1e-5)
        cut_off += not has_ended
    assert cut_off < 8


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_constraints_are_met_as_in_the_published_search(seed: int) -> None:
    generator = np.random.default_rng(seed)
    vocabulary, steps = 12, 7
    stepper = TableStepper(random_table(seed, images=8, vocabulary=vocabulary))
    constraints = [drawn_constraints(generator, vocabulary) for _ in range(8)]
    machines = [build_machine(phrases_of(words), required=2) for words in constraints]
    result = run(
        HeldBeamSearch, stepper, machines=machines, boundary=END,
        beam_size=SIZE, per_node_beam=PER_NODE, max_length=steps,
    )  # fmt: skip
    for image, words in enumerate(constraints):
        beams = naive(stepper, image, published_moves(words, vocabulary), steps)
        enough = [s for s in range(2 ** len(words)) if s.bit_count() >= min(2, len(words))]
        best = max((beams[state][0] for state in enough if beams[state]), default=None)
        length = int(result.lengths[image, 0])
        tokens = tuple(result.tokens[image, 0, :length].tolist())
        if best is not None:
            assert (tokens, float(result.scores[image, 0])) == (
                best[1],
                pytest.approx(best[0], abs=1e-5),
            )
        met = count_met(tokens, phrases_of(words))
        assert int(result.met[image, 0]) == met
        assert bool(result.satisfied[image]) == (tokens[-1] == END and met >= min(2, len(words)))


def test_phrases_that_fail_start_again() -> None:
    """After "a a" the second "a" begins no "a b": the machine that misses nothing meets it."""
    exact = build_machine([[(2, 3)]], required=1)
    again = restarting(exact)
    assert exact.met[exact.run([2, 2, 3])] == 1
    assert again.met[again.run([2, 2, 3])] == 0
    assert again.met[again.run([2, 3])] == 1


def test_sub_words_are_refused() -> None:
    machine = build_machine([[(2, 3)]], continues=[4])
    with pytest.raises(ValueError, match="word tokenizer"):
        restarting(machine)


def test_phrases_may_go_on_as_in_constrained_search() -> None:
    """With room for all, places of ended captions cost nothing: both find the best there is."""
    stepper = TableStepper(ending(random_table(3, vocabulary=6), more=3.0))
    machines: list[Machine] = [build_machine([[(2, 3)], [(4,)]])] * 3
    options = {"machines": machines, "boundary": END, "beam_size": 2000, "max_length": 5}
    held = run(HeldBeamSearch, stepper, failed_phrases="continue", **options)
    other = run(ConstrainedBeamSearch, stepper, **options)
    ended = (other.fulfilled[:, 0] & held.fulfilled[:, 0]).tolist()
    assert any(ended)
    for image in range(3):
        if ended[image]:
            assert held.scores[image, 0] == other.scores[image, 0]


def test_captions_that_leave_free_their_places() -> None:
    """Of a beam of two, both places go on after the step in which the best caption ends."""
    log_probs = torch.full((1, 1, 4), -9.0)
    log_probs[0, 0] = torch.tensor([-9.0, -0.5, -1.5, -2.0])
    results = {
        ended: run(
            HeldBeamSearch, TableStepper(log_probs), boundary=END, beam_size=2, num_captions=2,
            max_length=3, ended=ended,
        )
        for ended in ("hold", "leave")
    }  # fmt: skip
    assert results["hold"].tokens[0].tolist() == [[1, 1], [2, 1]]
    assert results["leave"].tokens[0].tolist() == [[1, 1], [2, 1]]
    assert results["leave"].scores[0].tolist() == [-0.5, -2.0]


@pytest.mark.parametrize("unknown", [True, False])
def test_the_unknown_word_can_be_said_though_it_is_padding(unknown: bool) -> None:
    log_probs = torch.tensor([-0.1, -3.0, -4.0]).expand(1, 1, 3)
    request = SearchRequest(num_images=1, bos_id=1, eos_id=1, pad_id=0, unk_id=0)
    search = HeldBeamSearch.with_settings(beam_size=2, max_length=2, unknown=unknown)
    stepper = TableStepper(log_probs.contiguous())
    result = search(stepper, stepper.start(), request)
    assert result.tokens[0, 0].tolist() == ([0, 0] if unknown else [1])
    assert result.lengths[0, 0] == (2 if unknown else 1)


def test_no_images() -> None:
    stepper = TableStepper(random_table(0)[:0])
    result = run(HeldBeamSearch, stepper, boundary=END, beam_size=2, max_length=3)
    assert result.tokens.shape[:2] == (0, 1)
