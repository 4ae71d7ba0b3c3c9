"""labkit's GPT: against GPT-2, with caches against the whole pass, positions, errors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from labkit import KVCache, counting
from labkit import positions as labkit_positions
from labkit.models.gpt import GPT, load_gpt, save_gpt
from labkit.positions import sinusoids
from tests.refusing import check_refusal

POSITIONS = ("rotary", "learned", "sinusoidal", "none")
EACH = pytest.mark.parametrize("positions", POSITIONS)
N = 8


def make_model(positions="rotary", **options) -> GPT:
    """A model in float64 with biases other than 0."""
    torch.manual_seed(0)
    sizes = {"d_model": 8, "h": 2, "layers": 3} | options
    model = GPT(11, positions=positions, **sizes).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def draw_ids(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(11, shape, generator=torch.Generator().manual_seed(seed))


def assert_same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


# Against GPT-2


def test_gpt2_has_124_439_808_parameters():
    with torch.device("meta"):
        model = GPT(50_257, 768, 12, 12, positions="learned", max_length=1024, tied=True)
    assert counting.count_parameters(model) == 124_439_808


def copy_of_gpt2(theirs) -> GPT:
    """Copy a transformers.GPT2LMHeadModel. Its matrices are the transposes of ours."""
    config, parts = theirs.config, theirs.transformer
    ours = GPT(
        config.vocab_size,
        config.n_embd,
        config.n_head,
        config.n_layer,
        d_ff=config.n_inner,
        positions="learned",
        max_length=config.n_positions,
        tied=True,
    ).to(parts.wte.weight.dtype)
    pairs = [(ours.words, parts.wte), (ours.places, parts.wpe), (ours.norm, parts.ln_f)]
    turned = []
    for mine, block in zip(ours.blocks, parts.h, strict=True):
        pairs += [(mine.attention_norm, block.ln_1), (mine.feed_forward_norm, block.ln_2)]
        turned += [
            (mine.attention.w_qkv, block.attn.c_attn),
            (mine.attention.w_o, block.attn.c_proj),
            (mine.feed_forward.expand, block.mlp.c_fc),
            (mine.feed_forward.contract, block.mlp.c_proj),
        ]
    for mine, other in pairs:
        mine.load_state_dict(other.state_dict())
    for mine, other in turned:
        mine.load_state_dict({"weight": other.weight.T, "bias": other.bias})
    return ours


@pytest.mark.slow
@pytest.mark.parametrize("n_inner", [None, 10])
@torch.no_grad()
def test_logits_equal_those_of_transformers(n_inner):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_embd=12, n_head=3, n_layer=2, n_inner=n_inner, n_positions=N, vocab_size=11
    )
    theirs = GPT2LMHeadModel(config).double().eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.5)
    ours, ids = copy_of_gpt2(theirs), draw_ids(2, N)
    expected = theirs(ids, use_cache=True)
    assert_same(ours(ids), expected.logits)
    caches = ours.caches()
    ours(ids, caches=caches)
    for cache, layer in zip(caches, expected.past_key_values.layers, strict=True):
        assert_same(cache.k, layer.keys)
        assert_same(cache.v, layer.values)


# What a position sees


@EACH
@torch.no_grad()
def test_no_word_sees_those_that_come(positions):
    model, ids = make_model(positions), draw_ids(2, N)
    logits = model(ids)
    for i in range(1, N):
        other = ids.clone()
        other[:, i:] = (other[:, i:] + 1) % 11
        changed = (~model(other).isclose(logits)).any(-1)
        assert not changed[:, :i].any()
        assert changed[:, i:].all()


@EACH
@pytest.mark.parametrize("blocks", [[1] * N, [3, 1, 4], [N]], ids=["one by one", "uneven", "all"])
@pytest.mark.parametrize("h_kv", [4, 2, 1])
@torch.no_grad()
def test_caches_equal_the_whole_pass(h_kv, positions, blocks):
    model, ids = make_model(positions, h=4, h_kv=h_kv), draw_ids(2, N)
    whole, whole_weights = model(ids, return_weights=True)
    caches, start = model.caches(), 0
    for n in blocks:
        end = start + n
        logits, weights = model(ids[:, start:end], caches=caches, return_weights=True)
        assert_same(logits, whole[:, start:end])
        assert_same(weights, whole_weights[..., start:end, :end])
        start = end
    assert [cache.n for cache in caches] == [N] * 3
    assert [cache.k.shape for cache in caches] == [(2, h_kv, N, 2)] * 3


@torch.no_grad()
def test_a_pass_makes_its_rotary_tables_once(monkeypatch):
    model, ids, made, angles = make_model(), draw_ids(2, N), [], labkit_positions._angles
    monkeypatch.setattr(
        labkit_positions, "_angles", lambda *given: (made.append(given), angles(*given))[1]
    )
    model(ids)
    assert len(made) == 1
    caches = model.caches()
    model(ids, caches=caches)
    model(ids[:, :1], caches=caches)
    assert len(made) == 3
    model.stack()[1].attention.rotary_scaling = 2.0  # a layer may have others
    model(ids)
    assert len(made) == 5


@torch.no_grad()
def test_positions_that_are_scaled_are_those_of_a_shorter_text(tmp_path):
    """Twice as many words, each second one unseen: the rest has the angles of a text as long."""
    plain, scaled, ids = make_model(), make_model(rotary_scaling=2.0), draw_ids(2, 2 * N)
    may = torch.arange(2 * N) % 2 == 0
    assert_same(scaled(ids, may)[:, ::2], plain(ids[:, ::2]))
    assert not torch.allclose(plain(ids, may)[:, ::2], plain(ids[:, ::2]))
    caches = scaled.caches()
    parts = [scaled(part, caches=caches) for part in ids.split([3, 1, 2 * N - 4], 1)]
    assert_same(torch.cat(parts, 1), scaled(ids))
    save_gpt(scaled, tmp_path / "a")
    save_gpt(plain, tmp_path / "b")
    kept = [load_gpt(tmp_path / name).stack()[0].attention.rotary_scaling for name in "ab"]
    assert kept == [2.0, 1.0]


@EACH
@torch.no_grad()
def test_caches_go_on_after_a_cut(positions):
    model, ids = make_model(positions), draw_ids(2, N)
    caches = model.caches()
    model(torch.cat([ids[:, :3], draw_ids(2, 4, seed=1)], 1), caches=caches)
    for cache in caches:
        cache.crop(3)
    assert_same(model(ids[:, 3:], caches=caches), model(ids)[:, 3:])


@pytest.mark.parametrize("positions", ["rotary", "none"])
@torch.no_grad()
def test_padding_on_the_left_changes_nothing_where_positions_are_relative(positions):
    model, ids = make_model(positions), draw_ids(2, N)
    may = (torch.arange(N) >= 3)[None, None, None]
    whole, caches = model(ids[:, 3:]), model.caches()
    assert_same(model(ids, may)[:, 3:], whole)
    model(ids[:, :5], may[..., :5], caches)
    assert_same(model(ids[:, 5:], may, caches), whole[:, 2:])


@torch.no_grad()
def test_weights_are_those_of_all_layers():
    model = make_model()
    logits, weights = model(draw_ids(2, 5), return_weights=True)
    assert logits.shape == (2, 5, 11)
    assert weights.shape == (3, 2, 2, 5, 5)
    assert_same(model(draw_ids(2, 5)[1]), logits[1])  # a single text, without its batch
    assert not weights.triu(1).any()
    assert_same(weights.sum(-1), torch.ones(3, 2, 2, 5).double())
    x = torch.ones(2, 5, 8).double()
    stream, none = model.blocks[0](x)
    assert none is None
    assert_same(stream, model.blocks[0](x, return_weights=True)[0])


# Positions


@EACH
@torch.no_grad()
def test_a_model_knows_the_order_of_the_past_where_it_is_told(positions):
    # One layer: from two on, a causal mask lets a layer see how much another one saw.
    model, ids = make_model(positions, layers=1), torch.tensor([[1, 2, 3, 4]])
    same = torch.allclose(model(ids)[:, -1], model(ids[:, [2, 0, 1, 3]])[:, -1])
    assert same == (positions == "none")


@torch.no_grad()
def test_vectors_of_positions_are_added_to_those_of_words():
    added = {
        "learned": make_model("learned", max_length=5).places.weight,
        "none": torch.zeros(5, 8),
    }
    added["sinusoidal"] = sinusoids(5, 8)
    ids, inputs = draw_ids(1, 5), {}
    for positions, expected in added.items():
        model = make_model(positions, max_length=5)
        model.blocks[0].register_forward_pre_hook(
            lambda _, args, name=positions: inputs.update({name: args[0]})
        )
        model(ids)
        assert_same(inputs[positions], model.words(ids) + expected.double())


def test_each_kind_has_the_parameters_it_needs():
    with torch.device("meta"):
        count = {
            kind: counting.count_parameters(GPT(11, 8, 2, 1, positions=kind, max_length=5))
            for kind in POSITIONS
        }
    assert count["learned"] - 5 * 8 == count["none"] == count["rotary"] == count["sinusoidal"]
    assert GPT(11, 8, 2, 1, rotary_base=7.0).blocks[0].attention.rotary_base == 7.0
    assert GPT(11, 8, 2, 1).blocks[0].attention.rotary_base == 1_000.0
    assert GPT(11, 8, 2, 1, positions="learned").places.num_embeddings == 1_024


def test_a_tied_model_has_one_matrix_of_words():
    model = make_model(tied=True)
    assert model.next_word.weight is model.words.weight
    assert counting.count_parameters(make_model()) - counting.count_parameters(model) == 11 * 8


def test_every_parameter_gets_a_gradient():
    model = make_model("learned", max_length=N)
    model(draw_ids(4, N)).logsumexp(-1).sum().backward()
    unused = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert unused == []


# Errors

IDS = draw_ids(1, 2)


def with_caches(change, positions="rotary") -> Tensor:
    model = make_model(positions, max_length=4)
    caches = model.caches()
    model(IDS, caches=caches)
    return model(IDS, caches=change(caches))


ERRORS = {
    "no words": (lambda: GPT(0, 8, 2, 1), ValueError, ["vocabulary", "at least 1", "0"]),
    "no width": (lambda: GPT(5, 0, 2, 1), ValueError, ["d_model", "at least 1", "0"]),
    "heads that do not fit": (lambda: GPT(5, 8, 3, 1), ValueError, ["d_model=8", "h=3"]),
    "heads of keys that do not fit": (
        lambda: GPT(5, 8, 4, 1, h_kv=3),
        ValueError,
        ["h_kv must divide h", "h=4", "h_kv=3"],
    ),
    "no layers": (lambda: GPT(5, 8, 2, 0), ValueError, ["layers", "at least 1", "0"]),
    "half a layer": (lambda: GPT(5, 8, 2, 1.5), TypeError, ["layers", "whole", "1.5"]),
    "no inner width": (lambda: GPT(5, 8, 2, 1, d_ff=0), ValueError, ["d_ff", "at least 1", "0"]),
    "no longest text": (
        lambda: GPT(5, 8, 2, 1, positions="learned", max_length=0),
        ValueError,
        ["max_length", "at least 1"],
    ),
    "other positions": (
        lambda: GPT(5, 8, 2, 1, positions="alibi"),
        ValueError,
        ["positions", "rotary, learned, sinusoidal, none", "'alibi'"],
    ),
    "rotation of an odd width": (lambda: GPT(5, 6, 2, 1), ValueError, ["d_k", "even", "3"]),
    "sinusoids of an odd width": (
        lambda: GPT(11, 5, 1, 1, positions="sinusoidal")(IDS),
        ValueError,
        ["d_model", "even", "5"],
    ),
    "ids a list": (lambda: make_model()([[1, 2]]), TypeError, ["ids", "(B, n)", "list"]),
    "one id": (lambda: make_model()(torch.tensor(1)), ValueError, ["ids", "(B, n)", "()"]),
    "a text too long": (
        lambda: make_model("learned", max_length=4)(draw_ids(1, 5)),
        ValueError,
        ["up to 4", "5", "larger max_length"],
    ),
    "a mask of another shape": (
        lambda: make_model()(IDS, torch.ones(3, 3, dtype=torch.bool)),
        ValueError,
        ["(1, 2, 2, 2)", "(3, 3)"],
    ),
    "no cache in the list": (
        lambda: with_caches(lambda caches: []),
        ValueError,
        ["3 blocks", "got 0", "model.caches()"],
    ),
    "a cache too few": (
        lambda: with_caches(lambda caches: caches[:2]),
        ValueError,
        ["3 blocks", "got 2", "model.caches()"],
    ),
    "one cache for all": (
        lambda: with_caches(lambda caches: [KVCache()] * 3),
        ValueError,
        ["of its own", "got 3, of which 1 different"],
    ),
    "something else in the list": (
        lambda: with_caches(lambda caches: [*caches[:2], None]),
        TypeError,
        ["labkit.KVCache", "NoneType", "model.caches()"],
    ),
    "caches out of step": (
        lambda: with_caches(lambda caches: [*caches[:2], KVCache()]),
        ValueError,
        ["same positions", "[0, 2]", "Crop"],
    ),
}


@pytest.mark.parametrize(("call", "error", "says"), ERRORS.values(), ids=ERRORS)
def test_error_says_what_was_expected_what_came_and_what_to_do(call, error, says):
    check_refusal(call, error, says)


def test_a_text_that_grows_too_long_leaves_the_caches_as_they_were():
    model, ids = make_model("learned", max_length=4), draw_ids(2, 4)
    caches = model.caches()
    model(ids[:, :3], caches=caches)
    with pytest.raises(ValueError, match="positions are learned up to 4; got a text of 5"):
        model(ids[:, :2], caches=caches)
    assert [cache.n for cache in caches] == [3] * 3
    assert_same(model(ids[:, 3:], caches=caches), model(ids)[:, 3:])
