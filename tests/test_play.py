"""The labs' laboratories: the figure follows the controls, and tells what it shows."""

from __future__ import annotations

import html
import math
import re
import sys
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise, product
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from labkit import counting as reference
from labkit import (
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
    tiles,
    window_mask,
)
from labkit.labs import Wrong
from labkit.labs.bug_zoo import play as bug_zoo
from labkit.labs.causal_mask import play as causal_mask
from labkit.labs.counting import play as counting
from labkit.labs.decoding import play as decoding
from labkit.labs.guard import Answer
from labkit.labs.head_hunt import play as head_hunt
from labkit.labs.laboratory import PLOTLY, VIEW, Laboratory
from labkit.labs.multi_head_attention import play as multi_head_attention
from labkit.labs.output_projection import play as output_projection
from labkit.labs.scaling import play as scaling
from labkit.labs.story_model import standing, stories
from labkit.labs.tiles_and_ranks import play as tiles_and_ranks
from labkit.labs.your_own_gpt import ours
from labkit.labs.your_own_gpt import play as your_own_gpt
from labkit.models.encoder import load_encoder
from labkit.models.gpt import load_gpt
from labkit.models.stories import RELATIONS, VOCABULARY, decode, encode
from labkit.models.training import histories, unseen, without
from labkit.ranks import has_gloo
from labkit.softmax import softmax_jacobian
from press.labs import TOPICS, solutions, solved
from press.notebooks import code_cells, read
from tests.answers import Exercise
from tests.answers import counting as counting_answers
from tests.answers import decoding as decoding_answers
from tests.answers import head_hunt as head_hunt_answers

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


def printed(capsys: pytest.CaptureFixture) -> list[list[str]]:
    """Read the lines of a table, each as its words."""
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def softmax(scores: torch.Tensor, scale: float) -> torch.Tensor:
    return (scores * scale).softmax(dim=-1)


@pytest.mark.weekly
def test_the_root_is_what_the_model_wants(capsys: pytest.CaptureFixture):
    scaling.in_the_model(weights=softmax)
    rows = printed(capsys)[3:]
    above = {scale: float(told) for scale, _, told, *_ in rows}
    assert list(above) == list(scaling.SCALES)
    assert 0 < above["1/√d_k"] < 0.02
    assert 0.05 < above["none"] < 0.15
    assert above["1/d_k"] > 4 * above["none"]
    right = {
        scale: dict(zip(RELATIONS[1:], map(float, told), strict=True))
        for scale, _, _, *told in rows
    }
    assert min(right["1/√d_k"].values()) > 0.99
    assert min(right["none"], key=right["none"].get) == "gender"
    assert max(right["1/d_k"]["number"], right["1/d_k"]["owner"]) < 0.4 < right["1/d_k"]["surname"]


def test_a_softmax_that_reacts_is_not_yet_a_good_one(capsys: pytest.CaptureFixture):
    scaling.reaction(weights=softmax, jacobian_norm=lambda p: softmax_jacobian(p).norm(dim=(1, 2)))
    dead = {row[0]: int(row[1].rstrip("%")) for row in printed(capsys)}
    assert dead["1/d_k"] == 0 < dead["1/√d_k"] < 12 < 18 < dead["none"] < 30


def test_a_softmax_that_is_still_the_stub_gets_an_invitation(capsys: pytest.CaptureFixture):
    scaling.in_the_model(weights=stub)
    assert capsys.readouterr().out.startswith("weights is still the stub.")
    scaling.reaction(weights=softmax, jacobian_norm=unwritten)
    assert capsys.readouterr().out.startswith("jacobian_norm is still the stub.")


def test_a_switch_opens_its_place():
    painter = causal_mask.laboratory()
    assert painter.alt.startswith("21 of 36 places are open, 0 of them in the future")
    painter.controls["q0k5"].value = True
    assert painter.alt.startswith("22 of 36 places are open, 1 of them in the future")
    assert painter.controls["q0k5"].description == "1"
    assert painter.figure.data[0].z[0][5] > 0


def test_ways_that_fail_are_told():
    painter = causal_mask.laboratory()
    for key in ("q0k0", "q1k0", "q1k1"):
        painter.controls[key].value = False
    told = {}
    for way in causal_mask.WAYS:
        painter.controls["way"].value = way
        told[way] = painter.alt
    assert "sum to one: 0, 1. Rows with no key left: 2" in told["fill scores with −∞"]
    assert "hidden keys, over all rows: 2.00" in told["fill scores with −10⁹"]
    assert "sum to one: none" in told["multiply scores by the mask"]
    assert "sum to one: 0, 1, 2, 3, 4." in told["multiply weights by the mask"]


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


def not_written(*arguments):
    raise NotImplementedError


PARTS_OF_A_LAYER = {
    "project": F.linear,
    "split": split_heads,
    "attend": scaled_dot_product_attention,
    "output": lambda heads, weight, bias: F.linear(merge_heads(heads), weight, bias),
}


def rows_of(told: str) -> dict[str, list[float]]:
    """Read the rows of a printed table: what they are of, and their numbers."""
    found = re.findall(r"^(\S.*?) +((?:\d+\.\d+ *){6})$", told, re.MULTILINE)
    return {name: [float(number) for number in numbers.split()] for name, numbers in found}


@pytest.mark.weekly
def test_a_models_relations_come_alive_with_the_heads_put_in(capsys: pytest.CaptureFixture):
    multi_head_attention.put_heads_in(**PARTS_OF_A_LAYER)
    told = capsys.readouterr().out
    none, *_, last_head, own = rows_of(told).values()
    assert len(rows_of(told)) == 10
    assert last_head == pytest.approx(own, abs=0.011)
    assert none[0] > 2.5
    assert own[0] < 0.74
    by_head = {name: numbers[1:] for name, numbers in rows_of(told).items()}
    first_layer, owner, surname = (
        by_head[f"+ head {which}"] for which in ("3, layer 0", "0, layer 1", "1, layer 1")
    )
    assert min(first_layer[0], first_layer[2]) > 0.8, "grammar and gender"
    assert max(first_layer[i] for i in (1, 3, 4)) < 0.3, "number, surname, owner"
    assert min(owner[4], surname[3]) > 0.8
    assert min(by_head["the model's own"]) > 0.99
    written = [line for line in told.splitlines() if re.match("  (no|eight) head", line)]
    assert "no head      near the box" in written[0]
    assert [line[-2:] for line in written] == [" ."] * 2, "whole sentences"


def test_a_quiet_mistake_hardly_shows_in_the_model():
    def narrow(q, k, v, may):
        return scaled_dot_product_attention(q, k, v, may, scale=(q.shape[1] * q.shape[3]) ** -0.5)

    def one_view(x, h):
        return x.reshape(len(x), h, x.shape[1], -1)

    def loss(**changed):
        parts = {name: Answer(name, part) for name, part in (PARTS_OF_A_LAYER | changed).items()}
        model, layers = multi_head_attention.made_of(parts)
        for layer in layers:
            layer.sounding.update(range(4))
        return standing(model, stories(60))["loss"]

    own, none = loss(), standing(without(load_gpt(), "attention"), stories(60))["loss"]
    assert 0.01 < loss(attend=narrow) - own < 0.05
    assert loss(split=one_view) > none


def test_heads_of_a_stub_get_an_invitation(capsys: pytest.CaptureFixture):
    multi_head_attention.put_heads_in(**PARTS_OF_A_LAYER | {"attend": not_written})
    assert capsys.readouterr().out.startswith("attend is still the stub.\n")


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


def contribute(heads, W_O):
    return heads @ W_O.unflatten(0, (len(heads), -1))


def silent(weight, head, h):
    own = torch.arange(weight.shape[1]) // (weight.shape[1] // h) == head
    return weight.masked_fill(own, 0)


@pytest.mark.weekly
def test_a_models_relations_fall_with_its_heads(capsys: pytest.CaptureFixture):
    output_projection.silence_heads(contributions=contribute, silence=silent)
    told = capsys.readouterr().out
    rows = {
        name: [float(number) for number in numbers.split()]
        for name, numbers in re.findall(r"^no (head \d, layer \d) +([\d. ]+\d)", told, re.MULTILINE)
    }
    writes, loss, grammar, number, gender, surname, owner = (
        dict(zip(rows, column, strict=True)) for column in zip(*rows.values(), strict=True)
    )
    assert len(rows) == 8
    assert max(loss, key=loss.get) == "head 0, layer 0"
    assert writes["head 0, layer 1"] > writes["head 0, layer 0"]
    assert loss["head 0, layer 1"] < 0.8 < 1.2 < loss["head 0, layer 0"]
    assert {head for head in rows if grammar[head] < 0.95} == {"head 0, layer 0"}
    assert {head for head in rows if number[head] < 0.7} == {"head 1, layer 1", "head 3, layer 1"}
    assert min(owner, key=owner.get) == "head 1, layer 0"
    assert min(surname, key=surname.get) == "head 2, layer 0"
    assert min(gender.values()) > 0.9
    assert told.endswith("so you can rely on the table.\n")


def test_contributions_that_miss_something_are_noticed():
    def shares(heads, W_O):
        return contribute(heads, W_O).mean(dim=0).expand(len(heads), -1, -1)

    assert output_projection.lengths(Answer("contributions", contribute))[1]
    assert not output_projection.lengths(Answer("contributions", shares))[1]


@pytest.mark.weekly
def test_a_wrong_silence_is_judged_below_its_table(capsys: pytest.CaptureFixture):
    def rows(weight, head, h):
        return silent(weight.T, head, h).T

    output_projection.silence_heads(
        contributions=lambda heads, W_O: contribute(heads, W_O) / 2, silence=rows
    )
    told = capsys.readouterr().out
    assert "contributions is not right yet" in told
    assert "silence is not right yet" in told


@pytest.mark.weekly
def test_a_silence_not_written_gets_an_invitation(capsys: pytest.CaptureFixture):
    output_projection.silence_heads(contributions=contribute, silence=not_written)
    assert "silence is still the stub.\n" in capsys.readouterr().out


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


def stub(*arguments):
    raise NotImplementedError


def unwritten(p):
    raise NotImplementedError


def mask(n):
    return torch.ones(n, n, dtype=torch.bool).tril()


def leaks_by_cuts(network, x):
    before = network(x)
    for cut in range(1, x.shape[1]):
        other = torch.cat([x[:, :cut], torch.randn_like(x[:, cut:])], dim=1)
        if not (network(other) - before)[:, :cut].abs().max() <= 1e-5:
            return True
    return False


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
    painter.controls["q0k0"].value = False
    assert "sum to one: 0, 1, 2, 3, 4, 5. Rows with no key left: 1" in painter.alt


@pytest.mark.weekly
def test_a_mask_brings_the_loss_back_above_the_entropy_and_no_skill(capsys: pytest.CaptureFixture):
    causal_mask.in_the_model(
        causal_mask=mask, masked_weights=causal_mask.WAYS["fill scores with −∞"]
    )
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[3:]]
    told = [list(map(float, row[-8:])) for row in rows]
    cheats, masked, opened, sound = (
        dict(zip(("loss", "above", "KL", *RELATIONS[1:]), row, strict=True)) for row in told
    )
    assert cheats["loss"] == 0
    assert cheats["KL"] > 3
    assert cheats["owner"] == 1
    assert masked["above"] > 0.5
    assert masked["owner"] < 0.1 < masked["surname"] < 0.4 < masked["gender"] < 0.7
    assert opened["loss"] > 2 * sound["loss"]
    assert 0 < sound["above"] < 0.02
    assert min(list(sound.values())[3:]) > 0.99


@pytest.mark.weekly
def test_a_leak_test_finds_what_the_loss_hides(capsys: pytest.CaptureFixture):
    causal_mask.search(leaks=leaks_by_cuts)
    rows = printed(capsys)[1:]
    assert [row[-1] for row in rows] == ["False", *["True"] * 8]
    sound, *leaking = (float(row[-2]) for row in rows)
    assert sum(abs(loss - sound) < 0.006 for loss in leaking) == 6
    assert sum(loss > sound + 0.02 for loss in leaking) == 2


@pytest.mark.weekly
def test_a_map_shows_the_place_of_a_leak(capsys: pytest.CaptureFixture):
    def dependence(network, x):
        jacobian = torch.autograd.functional.jacobian(network, x)
        return jacobian.abs().amax((1, 3)) > 1e-5

    causal_mask.map_of(dependence=dependence)
    rows = [row[1:] for row in printed(capsys)[1:]]
    crosses = torch.tensor([[place == "x" for place in row] for row in rows]).view(8, 3, 8)
    for shown, diagonal in zip(crosses.unbind(1), (0, 1, 8), strict=True):
        assert torch.equal(shown, torch.ones(8, 8, dtype=torch.bool).tril(diagonal))


def test_answers_that_are_stubs_get_an_invitation_and_no_table(capsys: pytest.CaptureFixture):
    causal_mask.in_the_model(
        causal_mask=unwritten, masked_weights=causal_mask.WAYS["fill scores with −∞"]
    )
    assert capsys.readouterr().out.startswith("causal_mask is still the stub.")
    causal_mask.search(leaks=stub)
    assert capsys.readouterr().out.startswith("leaks is still the stub.")
    causal_mask.map_of(dependence=stub)
    assert capsys.readouterr().out.startswith("dependence is still the stub.")


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


def own(**answers: Exercise) -> dict[str, Callable]:
    """Give a right answer to each of some exercises, as a learner hands them over."""
    return {name: next(iter(exercise.right.values())) for name, exercise in answers.items()}


COUNTED = {
    "parameters": counting_answers.parameters,
    "multiply_adds": counting_answers.operations,
    "crossover": counting_answers.crossover,
    "weight_memory": counting_answers.memory,
    "flops": counting_answers.flops,
}


@pytest.mark.weekly
def test_counts_agree_with_the_story_model_and_products_pass_half_at_the_border(
    capsys: pytest.CaptureFixture,
):
    counting.in_the_model(**own(**COUNTED), half_at=100, all_six=50)
    told, _, _, *lines, judged, first, last = capsys.readouterr().out.splitlines()
    assert "Parameters predicted 33,280, held 33,280." in told
    assert told.endswith("predicted 16.777 MB, held 16.777 MB.")
    assert judged == "Every prediction is what is held and counted, to the last digit."
    assert first.endswith("half of the FLOPs: you bet on 100, and it is 128.")
    assert re.search(r"at 48 words, in percent: you bet on 50, and it is \d+\.$", last)
    rows = [line.split() for line in lines]
    assert all(predicted == counted for _, predicted, counted, *_ in rows)
    shares = {int(n): share for n, _, _, share, *_ in rows}
    assert shares == {48: "27.3%", 127: "49.8%", 128: "50.0%", 256: "66.7%", 1024: "88.9%"}


@pytest.mark.weekly
def test_a_wrong_count_is_seen_beside_the_story_models(capsys: pytest.CaptureFixture):
    answers = own(**COUNTED)
    right = answers["flops"]
    counting.in_the_model(**answers | {"flops": lambda *sizes: right(*sizes) / 2})
    told = capsys.readouterr().out
    assert "2,162,688    4,325,376" in told
    assert "Not what is held and counted: flops. The checks" in told
    own_sum = answers["multiply_adds"]
    counting.in_the_model(
        **answers
        | {
            "parameters": lambda *sizes: 4 * sizes[0] ** 2,
            "crossover": lambda d, causal: d,
            "multiply_adds": lambda *sizes: [2 * part for part in own_sum(*sizes)],
            "weight_memory": lambda B, h, n, size: (B * h, h * n**2 * size / 2**20),
        }
    )
    assert ": parameters, crossover, multiply_adds, weight_memory. " in capsys.readouterr().out
    with pytest.raises(Wrong, match="a length from 2 to 1,024"):
        counting.in_the_model(**answers | {"crossover": lambda d, causal: d / 3})


@pytest.mark.parametrize("bet", ["128", True])
def test_a_bet_that_is_no_number_is_refused_before_the_clock_runs(bet):
    told = re.escape(f"half_at must be a number or None; got {bet!r}; write")
    with pytest.raises(TypeError, match=told):
        counting.in_the_model(**own(**COUNTED), half_at=bet)


def test_predictions_wait_for_all_answers(capsys: pytest.CaptureFixture):
    def flops(*sizes):
        raise NotImplementedError

    counting.in_the_model(**own(**COUNTED) | {"flops": flops})
    assert capsys.readouterr().out.startswith("flops is still the stub.\n")


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


HUNTED = {
    "weight_on": head_hunt_answers.weight_on,
    "relations": head_hunt_answers.relations,
    "held_out": head_hunt_answers.held,
}


@pytest.mark.weekly
def test_a_hunt_in_the_model_finds_heads_that_carry_relations(
    capsys: pytest.CaptureFixture,
):
    head_hunt.in_the_model(**own(**HUNTED))
    looks, lost = capsys.readouterr().out.strip().split("\n\n")
    for line, heads in zip(looks.splitlines()[1:], ("3", "2", "2", "03"), strict=True):
        assert re.search(rf"\(1, [{heads}]\) +100% +100% ", line)
    assert re.search(r"surname .*\(1, 2\) 0.98, \(1, 1\) 0.85$", looks, re.MULTILINE)
    assert re.search(r"owner .*\(1, 3\) 0.98, \(1, 0\) 0.96$", looks, re.MULTILINE)
    left = {
        line[:14].strip(): [float(number) for number in re.findall(r"[01]\.\d\d", line)[-4:]]
        for line in lost.splitlines()[1:]
    }
    (nothing, number, gender, surnames, owner, owners, before) = left.values()
    assert list(left) == [
        "", "(1, 3)", "(1, 2)", "(1, 2) (1, 1)", "(1, 0)", "(1, 3) (1, 0)", "(0, 2)"
    ]  # fmt: skip
    assert min(nothing) > 0.99
    assert number[0] < 0.5
    assert min(number[1:]) > 0.95
    assert 0.9 < gender[1] < 0.95
    assert gender[2] > 0.9
    assert surnames[2] < 0.26
    assert owner[3] > 0.95
    assert owners[3] < 0.14
    assert min(before[0], before[1], before[3]) > 0.98
    assert before[2] < 0.65


def test_a_hunt_waits_for_all_answers_and_refuses_what_cannot_be_a_head(
    capsys: pytest.CaptureFixture,
):
    answers = own(**HUNTED)

    def relations(tokens):
        raise NotImplementedError

    head_hunt.in_the_model(**answers | {"relations": relations})
    assert capsys.readouterr().out.startswith("relations is still the stub.\n")
    with pytest.raises(Wrong, match="a head from 0 to 7"):
        head_hunt.in_the_model(**answers | {"held_out": lambda correct: (8, 1, 1)})


def test_a_terrarium_without_a_bug_shows_the_same_twice():
    terrarium = bug_zoo.laboratory()
    terrarium.controls["bug"].value = "none"
    for mask in bug_zoo.MASKS:
        terrarium.controls["mask"].value = mask
        assert "are numbers: 0.00. With the bug, 4 of 4 rows sum to one" in terrarium.alt
        assert terrarium.figure.data[0].z == terrarium.figure.data[1].z


@pytest.mark.weekly
def test_the_loss_of_the_book_shows_fewer_bugs_than_the_tests(capsys: pytest.CaptureFixture):
    lab, names = read(TOPICS["bug_zoo"]), {}
    for cell in code_cells(solved(lab)):
        if (
            not {"setup", "check"} & set(cell.metadata.get("tags", []))
            and "play." not in cell.source
        ):
            exec(cell.source, names)
    tests = ("weights_are_sound", "hidden_is_hidden", "past_is_kept")
    bug_zoo.in_the_model(**{test: names[test] for test in tests})
    told = capsys.readouterr().out
    assert re.search(r"^none +0\.73\d +nothing +sound", told, re.M)
    assert told.count("a bug, says") == len(bug_zoo.planted()) - 1 == 15
    assert "The loss shows 7 of 15 bugs. Of the 8 that it does not show, your tests find 8." in told


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
    for c in range(1, decoding.MOST + 1):
        writer.controls["c"].value = c
        seen[c] = "off by 0.00" not in writer.alt
    hidden = {1, 8, 9} if bug in ONLY_IN_BLOCKS else set()
    assert {c for c in seen if not seen[c]} == hidden


def test_only_a_step_that_runs_can_be_chosen():
    def raises(layer, x, cache):
        raise NotImplementedError

    for unfit in (raises, lambda layer, x, cache: None, lambda layer, x, cache: x[:, -1:, :5]):
        assert decoding.YOURS not in decoding.laboratory(unfit).controls["bug"].options


@torch.no_grad()
def test_lab_8s_example_of_pieces_is_what_the_story_model_reads_and_writes():
    cells = read(TOPICS["decoding"]).cells
    card = next(cell.source for cell in cells if "reads the prompt `ids`" in cell.source)
    c, more = map(int, re.search(r"`c = (\d+)` and `more = (\d+)`", card).groups())
    prompt, read_, returned = re.search(
        r"prompt +(.+)\nthe model reads (.+)\nreturned +(.+)\n", card
    ).groups()
    model, pieces = load_gpt(), []
    model.register_forward_pre_hook(lambda _, given: pieces.append(decode(given[0][0])))
    came = decoding_answers.by_recursion(model, encode(prompt)[None], more, c)
    assert decode(came[0]) == returned
    assert " | ".join(pieces) == read_


def run_of(
    capsys: pytest.CaptureFixture, step: object, make: type = decoding_answers.Joins
) -> tuple:
    """Give what lab 8's finale prints with a step and a cache, and the figure that it returns."""
    figure = decoding.write_story(Cache=make, step=step)
    return capsys.readouterr().out, figure


@pytest.mark.weekly
def test_a_learners_cache_writes_the_same_story(capsys: pytest.CaptureFixture):
    threads = torch.get_num_threads()
    told, figure = run_of(capsys, decoding_answers.stepped())
    assert told.startswith("the map suits mia lake .\nthe box suits tom hill .\nthe key suits ann")
    assert told.count("the map mia lake has is new .") == 4
    assert "changes no word: all 400 are those written without it, and those of labkit's" in told
    assert "Positions read: 84,600 for 400 words without your cache, 411 for 400 with it." in told
    assert "holds 420,864 bytes of 411 positions" in told
    without, kept, held = figure.data
    assert without.y[-1] > 4 * kept.y[-1], "and grows"
    assert without.y[-1] > 4 * without.y[0]
    assert list(held.y) == pytest.approx(list(kept.x), abs=1), "a KiB for each position"
    assert torch.get_num_threads() == threads


def test_a_story_tells_of_the_upper_left_corner(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(decoding, "LONG", 30)
    told, _ = run_of(capsys, decoding_answers.step_by_flag)
    assert "the key suits suits suits suits" in told
    assert max(map(len, told.splitlines())) < 100, "though the text has no full stop"
    assert "Written with your cache, only the first 3 of 30 words are those of labkit's" in told
    assert "It is your step" in told


def test_a_story_tells_of_a_window_that_both_ways_share(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(decoding, "LONG", 60)
    step = decoding_answers.stepped(lambda m, n: window_mask(m, n, 8))
    told, _ = run_of(capsys, step)
    assert re.search(r"only the first \d+ of 60 words are those of labkit's own layer", told)
    assert "It is your step" in told


def test_a_story_tells_of_a_cache_that_mixes(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    class MixesValues(decoding_answers.Joins):
        def append(self, k, v):
            k, v = super().append(k, v)
            return k, v.roll(1, dims=2)

    monkeypatch.setattr(decoding, "LONG", 30)
    told, _ = run_of(capsys, decoding_answers.stepped(), MixesValues)
    assert "It is your cache: with labkit's in its place" in told


def test_a_story_says_that_projections_can_only_be_called(capsys: pytest.CaptureFixture):
    def step(layer, x, cache):
        return F.linear(x, layer.w_q.weight)

    with pytest.raises(Wrong, match=r"w_q and w_k rotate here, so they have no weight: call them"):
        run_of(capsys, step)


def test_a_story_that_takes_too_long_ends(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(decoding, "WITHIN", 1e-9)
    told, figure = run_of(capsys, decoding_answers.stepped())
    assert "no more words were begun without your cache" in told
    assert [len(line.x) for line in figure.data] == [1, 1, 1]


def test_a_story_by_stubs_is_an_invitation(capsys: pytest.CaptureFixture):
    assert run_of(capsys, stub)[0].startswith("step is still the stub")


def off(laboratory: Laboratory, **settings: object) -> bool:
    """Say whether an output is wrong with these settings."""
    with laboratory.at_once():
        for name, value in settings.items():
            laboratory.controls[name].value = value
    return ". 0 of " not in laboratory.alt


@pytest.mark.weekly
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


def test_outputs_none_of_which_is_a_number_are_off_by_nothing():
    laboratory = tiles_and_ranks.laboratory()
    off(laboratory, bug="the largest score is not taken off", scores="3,200 higher")
    assert laboratory.alt.endswith("8 of 8 outputs are wrong: none is a number.")


def test_outputs_that_are_right_beside_some_that_are_no_numbers_are_not_off():
    laboratory = tiles_and_ranks.laboratory()
    off(laboratory, bug="nothing and nothing make NaN")
    told = r"[1-7] of 8 outputs are wrong: no number came there, and all others are right\.$"
    assert re.search(told, laboratory.alt)


def test_every_bug_of_tiles_is_tried():
    assert {bug for bug, *_ in HIDES_TILES} == set(tiles_and_ranks.BUGS) - {"none"}


def test_only_tiles_and_merges_that_run_can_be_chosen():
    def raises(*arguments):
        raise NotImplementedError

    for unfit in (raises, lambda *arguments: None, lambda *arguments: torch.zeros(1, 2)):
        options = tiles_and_ranks.laboratory(unfit, unfit).controls["bug"].options
        assert not {tiles_and_ranks.YOURS, tiles_and_ranks.YOUR_MERGE} & set(options)


def of_tiles_and_ranks(name: str) -> Callable[..., Any]:
    """Run the lab's own solution."""
    names = {"torch": torch, "tiles": tiles}
    solution = next(s for s in solutions(read(TOPICS["tiles_and_ranks"])) if f"def {name}(" in s)
    exec(solution, names)
    return names[name]


@pytest.mark.weekly
def test_tiles_in_the_story_gpt_leave_its_loss_and_hold_no_square(capsys, monkeypatch):
    monkeypatch.setattr(tiles_and_ranks, "ROUNDS", 1)
    tiles_and_ranks.tiles_in_the_model(tiled_attention=of_tiles_and_ranks("tiled_attention"))
    told, _, table = capsys.readouterr().out.partition("\n\n")
    usual, own, entropy = map(float, re.findall(r"(?:: |is )(0\.7\d+)", told))
    assert usual == pytest.approx(own, abs=2e-4)
    assert 0 < usual - entropy < 0.01
    rows = [line.replace(",", "").split() for line in table.splitlines()[3:]]
    assert [int(row[0]) for row in rows] == [256, 512, 1024, 2048]
    square, tile = ([float(row[i]) for row in rows] for i in (3, 4))
    assert all(3.9 < b / a < 4.1 for a, b in pairwise(square))
    assert tile[-1] < 2 * tile[0] < square[-1] / 50


@pytest.mark.weekly
@pytest.mark.skipif(not has_gloo(), reason="without gloo the ring is not tried")
def test_a_ring_in_the_story_gpt_leaves_its_loss_and_draws_its_messages(capsys):
    right = of_tiles_and_ranks("ring_attention")
    tiles_and_ranks.ring_in_the_model(ring_attention=lambda *given: right(*given).double())
    told, words, drawn = capsys.readouterr().out.split("\n\n")
    usual, own, _ = map(float, re.findall(r"(?:: |is )(0\.7\d+)", told))
    assert usual == pytest.approx(own, abs=2e-4)
    assert [line.split(":")[0] for line in words.splitlines()] == [f"rank {r}" for r in range(4)]
    assert len(re.findall(r"[kv] of \d", drawn)) == 24
    assert len(re.findall(r"\([kv] of \d\)", drawn)) == 12
    assert "k of 3 " not in drawn
    assert "handed on 18,432 bytes; " in drawn
    assert drawn.endswith(" = 18,432.\n")


def test_a_ring_that_fails_in_the_story_gpt_or_has_no_gloo_says_so(capsys, monkeypatch):
    def fails(rank, q, k, v):
        return v if rank.world == 1 else 1 / 0

    if has_gloo():
        tiles_and_ranks.ring_in_the_model(ring_attention=fails)
        assert "did not come to its end: rank" in capsys.readouterr().out
    monkeypatch.setattr(tiles_and_ranks, "has_gloo", lambda: False)
    tiles_and_ranks.ring_in_the_model(ring_attention=fails)
    assert "without the engine gloo" in capsys.readouterr().out


def test_what_tiles_and_ranks_hand_on_is_named_in_any_layout():
    k, v, other = torch.randn(3, 1, 2, 3, 4)
    blocks = [(other, 2 * other), (k, v)]
    for t, what in (
        (k.transpose(1, 2), "k of 1"),
        (v.contiguous(), "v of 1"),
        (torch.stack([v, k]), "k, v of 1"),
        (torch.cat([k, v], -1), "k, v of 1"),
    ):
        assert tiles_and_ranks.named(t, blocks) == (what, 1)
    assert tiles_and_ranks.named(k + 1, blocks) == ("(1, 2, 3, 4)", -1)


@pytest.mark.weekly
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
    with pytest.raises(Wrong, match="came the class"):
        your_own_gpt.decoding(ours.GPT, ours.step)


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
