"""The labs' laboratories: the figure follows the controls, and tells what it shows."""

from __future__ import annotations

import html
import math
import re
import sys
from importlib import import_module
from itertools import product

import pytest
import torch

from labkit import counting as reference
from labkit import tiles
from labkit.labs.bug_zoo import play as bug_zoo
from labkit.labs.causal_mask import play as causal_mask
from labkit.labs.counting import play as counting
from labkit.labs.decoding import play as decoding
from labkit.labs.head_hunt import play as head_hunt
from labkit.labs.laboratory import PLOTLY, VIEW, Laboratory
from labkit.labs.multi_head_attention import play as multi_head_attention
from labkit.labs.output_projection import play as output_projection
from labkit.labs.scaling import play as scaling
from labkit.labs.tiles_and_ranks import play as tiles_and_ranks
from labkit.labs.your_own_gpt import ours
from labkit.labs.your_own_gpt import play as your_own_gpt
from labkit.models.encoder import load_encoder
from labkit.models.stories import VOCABULARY
from labkit.models.training import histories, unseen
from press.labs import TOPICS

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def without_print(capsys: pytest.CaptureFixture):
    """Keep what ipywidgets prints outside of a notebook to itself."""
    yield
    capsys.readouterr()


def test_the_numbers_follow_the_controls():
    laboratory = scaling.laboratory()
    before = laboratory.alt
    laboratory.controls["scale"].value = "none"
    laboratory.controls["d_k"].value = 4096
    assert laboratory.alt != before
    assert laboratory.alt in html.unescape(laboratory.told.value)
    assert "d_k = 4096" in laboratory.figure.layout.title.text


def test_the_numbers_are_those_of_the_shown_draws():
    laboratory = scaling.laboratory()
    scores = scaling.draw_scores(64, 10, seed=0) / 8
    under = (scores.softmax(dim=1).amax(dim=1) < 0.30).double().mean()
    assert f"{under:.0%} have a largest weight under 0.30" in laboratory.alt
    assert sum(laboratory.figure.data[1].y) == pytest.approx(1, abs=0.01)
    assert sum(laboratory.figure.data[0].y) == pytest.approx(1, abs=0.01)


def test_draws_repeat_with_their_seed():
    first, again = (scaling.draw_scores(8, 5, seed=3) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, scaling.draw_scores(8, 5, seed=4))


def test_a_switch_opens_its_place():
    painter = causal_mask.laboratory()
    assert painter.alt.startswith("21 of 36 places are open, 0 of them in the future")
    painter.controls["q1k6"].value = True
    assert painter.alt.startswith("22 of 36 places are open, 1 of them in the future")
    assert painter.controls["q1k6"].description == "1"
    assert painter.figure.data[0].z[0][5] > 0


def test_ways_that_fail_are_told():
    painter = causal_mask.laboratory()
    for key in ("q1k1", "q2k1", "q2k2"):
        painter.controls[key].value = False
    told = {}
    for way in causal_mask.WAYS:
        painter.controls["way"].value = way
        told[way] = painter.alt
    assert "sum to one: 1, 2. Rows with no key left: 2" in told["fill scores with −∞"]
    assert "hidden keys, over all rows: 2.00" in told["fill scores with −10⁹"]
    assert "sum to one: none" in told["multiply scores by the mask"]
    assert "sum to one: 1, 2, 3, 4, 5." in told["multiply weights by the mask"]


PARTS = {
    "split": "one view",
    "softmax": "over the queries",
    "scale": "1/√d_model",
    "merge": "join as it lies",
    "w_o": "forgotten",
}


def test_a_sound_layer_gives_what_pytorchs_gives():
    bench = multi_head_attention.laboratory()
    for h in (1, 2, 4, 8):
        bench.controls["h"].value = h
        assert "from PyTorch's layer: 0.00. Later inputs" in bench.alt
        assert "hears from: 0 of 6 pairs" in bench.alt


@pytest.mark.parametrize("part", PARTS)
def test_a_broken_part_is_told_and_the_shape_does_not_tell(part: str):
    bench = multi_head_attention.laboratory()
    bench.controls[part].value = PARTS[part]
    assert "has the shape (1, 4, 8); it should be (1, 4, 8)" in bench.alt
    assert "from PyTorch's layer: 0.00" not in bench.alt
    leaks = "hears from: 0 of 6 pairs" not in bench.alt
    assert leaks == (part in ("split", "softmax", "merge"))


def test_two_wrong_views_hide_each_others_leak():
    bench = multi_head_attention.laboratory()
    bench.controls["split"].value = PARTS["split"]
    bench.controls["merge"].value = PARTS["merge"]
    assert "hears from: 0 of 6 pairs" in bench.alt
    assert "from PyTorch's layer: 0.00" not in bench.alt
    assert all(x == 0 for row in bench.figure.data[0].z[2:] for x in row[:2]), "half is not heard"


@pytest.mark.parametrize(
    ("h", "d_v", "shared", "floor"),
    [
        (4, 2, "nothing", 0.0),
        (4, 2, "W_Q, W_K", 0.0),
        (4, 2, "W_Q, W_K, W_V", 0.75),
        (1, 2, "nothing", 0.75),
        (1, 8, "nothing", 0.0),
    ],
)
def test_training_ends_on_the_floor_that_the_directions_set(
    h: int, d_v: int, shared: str, floor: float
):
    figure = output_projection.draw(h, d_v, shared, seed=0)
    assert floor - 0.01 <= figure.data[0].y[-1] < floor + 0.05
    assert figure.layout.shapes[0].y0 == floor
    assert f"below {floor:.2f}, the dotted line" in figure.layout.meta["alt"]


def test_the_copying_task_asks_for_the_token_before():
    x, y = output_projection.copying(3)
    assert torch.equal(y[:, 1:], x[:, :-1, :8])
    assert torch.equal(y[:, 0], x[:, -1, :8])
    assert torch.equal(x[1, :, 8:], torch.eye(4))


def test_training_leaves_the_learners_numbers_and_threads_alone():
    torch.manual_seed(5)
    expected, threads = torch.rand(3), torch.get_num_threads()
    torch.manual_seed(5)
    output_projection.train(1, 2, "nothing", seed=1)
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads


def test_several_changes_are_drawn_once():
    painter, drawn = causal_mask.laboratory(), []
    draw = painter.draw
    painter.draw = lambda **values: drawn.append(values) or draw(**values)
    with painter.at_once():
        painter.controls["q1k2"].value = True
        painter.controls["q1k3"].value = True
    assert len(drawn) == 1


def stub(scores, may):
    raise NotImplementedError


UNFIT = {
    "raises": stub,
    "returns nothing": lambda scores, may: None,
    "returns one row": lambda scores, may: scores[0],
    "returns a list": lambda scores, may: scores.tolist(),
}


def test_a_written_answer_can_be_chosen():
    own = causal_mask.laboratory(causal_mask.WAYS["fill scores with −∞"]).controls["way"]
    assert own.value == causal_mask.YOURS
    for unfit in UNFIT.values():
        assert causal_mask.YOURS not in causal_mask.laboratory(unfit).controls["way"].options


@pytest.mark.parametrize("mistake", UNFIT)
def test_an_answer_that_fails_in_some_rows_draws_no_number(mistake: str):
    def own(scores, may):
        return may / may.sum(dim=-1) if may.any(dim=-1).all() else UNFIT[mistake](scores, may)

    painter = causal_mask.laboratory(own)
    assert painter.controls["way"].value == causal_mask.YOURS
    painter.controls["q1k1"].value = False
    assert "sum to one: 1, 2, 3, 4, 5, 6. Rows with no key left: 1" in painter.alt


@pytest.mark.parametrize("topic", TOPICS)
def test_a_page_gets_the_figure_and_colab_the_controls(topic: str, monkeypatch: pytest.MonkeyPatch):
    laboratory = import_module(f"labkit.labs.{topic}.play").laboratory()
    assert laboratory.controls
    assert laboratory.alt in html.unescape(laboratory.told.value)
    assert {PLOTLY, VIEW, "text/plain"} == set(laboratory._repr_mimebundle_())
    monkeypatch.setitem(sys.modules, "google.colab", object())
    assert {VIEW, "text/plain"} == set(laboratory._repr_mimebundle_())


def test_a_model_sets_its_sizes_and_they_can_be_changed():
    calculator = counting.laboratory()
    model = calculator.box.children[0].children[0]
    for name, sizes in counting.STARTS.items():
        model.value = name
        d_model, h, d_k, layers, _ = sizes
        assert calculator.alt.startswith(
            f"{layers} layers of width {d_model:,} with {h} heads of width {d_k} have "
        )
    before = calculator.alt
    calculator.controls["h"].value += 1
    assert calculator.alt != before


def test_the_calculator_adds_up():
    sizes = {"d_model": 768, "h": 12, "d_k": 64, "layers": 12, "n": 1024, "B": 2}
    figure = counting.draw(**sizes, number="bfloat16")
    flops, memory = (dict(zip(bars.y, bars.x, strict=True)) for bars in figure.data)
    whole = 12 * 2 * reference.attention_flops(1024, 768, 12) / 1e9
    assert sum(flops.values()) == pytest.approx(whole, rel=1e-3)
    assert memory["parameters"] == pytest.approx(12 * 4 * 768**2 * 2 / 1e6, rel=1e-3)
    assert memory["keys, values"] == pytest.approx(12 * 2 * 2 * 1024 * 768 * 2 / 1e6, rel=1e-3)
    weights = reference.weight_bytes(12, 1024, B=2, dtype=torch.bfloat16)
    assert memory["weights"] == pytest.approx(12 * weights / 1e6, rel=1e-3)


@pytest.mark.parametrize(
    ("amount", "words"),
    [(999, "999 "), (2_359_296, "2.359 M"), (999_960, "1000 k"), (0, "0 "), (1.3e21, "1.3 Z")],
)
def test_numbers_are_told_with_a_prefix(amount: float, words: str):
    assert counting.told(amount) == words


def weights_of(sentence: str, layer: int, head: int) -> torch.Tensor:
    return load_encoder().encode([sentence]).sentence(0)[1][layer, head]


def test_the_shown_head_is_the_chosen_one():
    reader = head_hunt.laboratory()
    reader.controls["layer"].value, reader.controls["head"].value = 0, 2
    reader.controls["sentence"].value = "She lost her keys."
    shown = torch.tensor(reader.figure.data[0].z)
    assert torch.allclose(shown, weights_of("She lost her keys.", 0, 2), atol=0.006)
    assert reader.figure.data[0].y[2] == "2 lost"
    assert "Head (0, 2), on average over the tokens: 1.00 to the token before" in reader.alt
    assert "keeps a cosine of 1.000" in reader.alt


def test_the_largest_weight_between_words_is_told():
    A = weights_of(head_hunt.FIRST, 3, 1)
    told = f"Its largest weight between words: {A[1:-1, 1:-1].max():.2f} from it to animal."
    assert told in head_hunt.laboratory().alt


@pytest.mark.parametrize("silenced", head_hunt.SILENT)
def test_silencing_turns_the_vector_but_not_what_a_layer_reads(silenced: str):
    reader = head_hunt.laboratory()
    before = reader.figure.data[0].z
    reader.controls["silenced"].value = silenced
    assert f"Silenced: {silenced}." in reader.alt
    assert ("cosine of 1.000" in reader.alt) == (silenced == "nothing")
    same = reader.figure.data[0].z == before
    assert same == (silenced != "all heads of earlier layers")


@pytest.mark.parametrize(("sentence", "told"), [(" ", "a word"), ("very " * 60, "40 tokens")])
def test_a_sentence_that_cannot_be_shown_is_told(sentence: str, told: str):
    reader = head_hunt.laboratory()
    reader.controls["sentence"].value = sentence
    assert reader.alt.startswith("Nothing to show: ")
    assert told in reader.alt
    reader.controls["sentence"].value = "Rain fell."
    assert reader.alt.startswith("Head (3, 1)")


def test_a_terrarium_without_a_bug_shows_the_same_twice():
    terrarium = bug_zoo.laboratory()
    terrarium.controls["bug"].value = "none"
    for mask in bug_zoo.MASKS:
        terrarium.controls["mask"].value = mask
        assert "are numbers: 0.00. With the bug, 4 of 4 rows sum to one" in terrarium.alt
        assert terrarium.figure.data[0].z == terrarium.figure.data[1].z


HIDDEN_BY = {
    ("scale of the whole model", "h", 1),
    ("one softmax for all heads", "h", 1),
    ("scale forgotten", "d_k", 1),
    ("mask after the softmax", "mask", "none"),
    ("mask added as 1 and 0", "mask", "none"),
    ("mask along the queries", "mask", "none"),
}


@pytest.mark.parametrize("bug", [bug for bug in bug_zoo.BUGS if bug != "none"])
def test_a_bug_is_seen_unless_its_input_hides_it(bug: str):
    terrarium = bug_zoo.laboratory()
    terrarium.controls["bug"].value = bug
    unseen = "are numbers: 0.00. With the bug, 4 of 4 rows"
    assert unseen not in terrarium.alt
    settings = (("h", 1), ("d_k", 1), ("mask", "none"))
    for name, value in settings:
        before = terrarium.controls[name].value
        terrarium.controls[name].value = value
        assert (unseen in terrarium.alt) == ((bug, name, value) in HIDDEN_BY)
        terrarium.controls[name].value = before


def test_a_sound_step_writes_what_the_whole_text_gives():
    writer = decoding.laboratory(decoding.step)
    assert "12 are those of a sound decoder" in writer.alt, "and yet the first bug is chosen"
    assert "off by 0.00" not in writer.alt
    for bug in ("none", decoding.YOURS):
        writer.controls["bug"].value = bug
        for c in (1, 4, decoding.MOST):
            writer.controls["c"].value = c
            assert "off by 0.00 at most, at no position of 0 to 20" in writer.alt


ONLY_IN_BLOCKS = ("a block hears itself alone", "no mask once there is a past")


@pytest.mark.parametrize("bug", [bug for bug in decoding.BUGS if bug != "none"])
def test_a_bug_of_decoding_is_seen_in_the_logits(bug: str):
    writer = decoding.laboratory()
    writer.controls["bug"].value = bug
    seen = {}
    for c in (1, 4, decoding.MOST):
        writer.controls["c"].value = c
        seen[c] = "off by 0.00" not in writer.alt
    assert seen == {1: bug not in ONLY_IN_BLOCKS, 4: True, 9: bug not in ONLY_IN_BLOCKS}


def test_only_a_step_that_runs_can_be_chosen():
    def raises(layer, x, cache):
        raise NotImplementedError

    for unfit in (raises, lambda layer, x, cache: None, lambda layer, x, cache: x[:, -1:, :5]):
        assert decoding.YOURS not in decoding.laboratory(unfit).controls["bug"].options


def off(laboratory: Laboratory, **settings: object) -> bool:
    """Say whether an output is wrong with these settings."""
    with laboratory.at_once():
        for name, value in settings.items():
            laboratory.controls[name].value = value
    return ". 0 of " not in laboratory.alt


def test_sound_tiles_are_right_on_all_inputs():
    sound = tiles_and_ranks.laboratory(tiles_and_ranks.tiled, tiles.merge)
    assert off(sound), "the first bug is chosen"
    for way, scores, n_q, block in product(
        ("none", tiles_and_ranks.YOURS, tiles_and_ranks.YOUR_MERGE),
        tiles_and_ranks.SCORES,
        tiles_and_ranks.QUERIES,
        (1, 5, 12),
    ):
        assert not off(sound, bug=way, scores=scores, n_q=n_q, block_q=3, block_k=block)


# A bug of tiles, a setting in which it is seen, and one change that hides it.
HIDES_TILES = (
    ("the old output is not scaled down", {}, {"scores": "falling"}),
    ("the old output is not scaled down", {}, {"scores": "all equal"}),
    ("the old output is not scaled down", {}, {"block_k": 12}),
    ("the largest score is not taken off", {"scores": "3,200 higher"}, {"scores": "rising"}),
    ("the last, smaller tile is left out", {}, {"block_k": 4}),
    ("the mask begins in the upper left corner", {}, {"n_q": 12}),
    ("the mask begins in the upper left corner", {}, {"values": "all ones"}),
    ("the mask begins anew in every tile", {}, {"values": "all ones"}),
    ("the first tile is not masked", {"n_q": 12}, {"n_q": 8}),
    ("the first tile is not masked", {"block_k": 6}, {"block_k": 5}),
    ("the first tile is not masked", {"n_q": 12, "block_k": 2}, {"block_k": 1}),
    ("the tiles are averaged", {}, {"values": "all ones"}),
    ("nothing and nothing make NaN", {}, {"block_k": 12}),
)


@pytest.mark.parametrize(("bug", "shown", "hidden"), HIDES_TILES)
def test_a_bug_of_tiles_is_seen_unless_its_input_hides_it(bug: str, shown: dict, hidden: dict):
    laboratory = tiles_and_ranks.laboratory()
    assert off(laboratory, bug=bug, **shown)
    assert not off(laboratory, **hidden)


def test_every_bug_of_tiles_is_tried():
    assert {bug for bug, *_ in HIDES_TILES} == set(tiles_and_ranks.BUGS) - {"none"}


def test_only_tiles_and_merges_that_run_can_be_chosen():
    def raises(*arguments):
        raise NotImplementedError

    for unfit in (raises, lambda *arguments: None, lambda *arguments: torch.zeros(1, 2)):
        options = tiles_and_ranks.laboratory(unfit, unfit).controls["bug"].options
        assert not {tiles_and_ranks.YOURS, tiles_and_ranks.YOUR_MERGE} & set(options)


def test_a_gpt_is_judged_beside_the_books(capsys: pytest.CaptureFixture):
    told = str(your_own_gpt.judge(ours.trained(), ours.kl))
    assert "loss 0.734 0.734" in re.sub(" +", " ", told)
    assert "KL, all words 0.005 0.005" in re.sub(" +", " ", told)
    assert "right in owner 0.999 0.999" in re.sub(" +", " ", told)
    assert your_own_gpt.judge(None, ours.kl) is None
    assert "your_model is still the stub" in capsys.readouterr().out


def test_a_gpt_writes_the_same_words_with_a_cache(capsys: pytest.CaptureFixture):
    your_own_gpt.decoding(ours.trained(), ours.step)
    told = capsys.readouterr().out
    assert "Without a cache 17,808 words are read, with it 752.\nThe same words: yes." in told
    your_own_gpt.decoding(ours.trained(), None)
    assert "step is still the stub" in capsys.readouterr().out


def says(laboratory: Laboratory, text: str) -> dict[str, float]:
    laboratory.controls["text"].value = text
    bars = laboratory.figure.data[0]
    return dict(zip(bars.x, bars.y, strict=True))


def test_a_story_goes_on_as_the_lab_says():
    laboratory = your_own_gpt.laboratory()
    known = "the map suits mia lake . "
    assert says(laboratory, f"{known}the key suits ben hill . the key")["ben"] > 0.99
    assert (
        says(laboratory, "the map suits ben lake . the key suits mia hill . the map")["ben"] > 0.99
    )
    verbs = says(laboratory, f"{known}the dogs near the cow")
    assert all(0.2 < verbs[verb] < 0.3 for verb in ("run", "sleep", "jump", "eat"))
    assert says(laboratory, f"{known}the hat")["suits"] > 0.99
    assert max(says(laboratory, f"{known}mia hill").values()) < 0.3
    assert "The rules say nothing here" in laboratory.alt
    assert says(laboratory, f"{known}mia hill sings and she is sad . mia")["lake"] > 0.99
    laboratory.controls["text"].value = "a whale"
    assert laboratory.alt.startswith("The stories do not have the words whale. They have: the,")
    laboratory.controls["text"].value = ""
    assert laboratory.alt.startswith("No text.")
    assert "by your model" in your_own_gpt.laboratory(ours.trained()).alt


def test_the_patients_did_what_their_cards_say():
    runs, floor = histories(), unseen().floor

    def last(run: str) -> list:
        return [runs[f"{run} {seed}"][-1] for seed in range(5)]

    assert round(floor, 2) == 0.73
    assert {round(run.loss, 2) for run in last("heads not moved back")} == {0.05, 0.06}
    assert min(run.loss for run in last("heads not moved back, asked honestly")) > 1.75
    assert round(math.log(math.e + 55) - 1, 2) == 3.06
    assert {round(run.loss, 2) for run in last("one layer")} == {0.81}
    told = {"number": (1.00,), "gender": (1.00,), "surname": (0.59,), "owner": (0.49, 0.50, 0.52)}
    for relation, values in told.items():
        assert {round(run.right[relation], 2) for run in last("one layer")} == set(values)


def test_a_watched_training_is_drawn(capsys: pytest.CaptureFixture):
    model = ours.trained()
    assert your_own_gpt.curves(model) is None
    assert "Call play.watch(your_model) before you train it" in capsys.readouterr().out
    your_own_gpt.watch(model)
    ours.train(model, 3, seed=0)
    assert (
        your_own_gpt.curves(model)
        .layout.meta["alt"]
        .endswith("first: number at step 0, gender at step 0, surname at step 0, owner at step 0.")
    )
    untrained = ours.GPT(len(VOCABULARY), 64, 4, 2)
    your_own_gpt.watch(untrained)
    ours.train(untrained, 3, seed=0)
    assert "number at no step" in your_own_gpt.curves(untrained).layout.meta["alt"]
    assert your_own_gpt.curves(None) is None
