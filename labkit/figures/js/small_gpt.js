import { button, chosenPlace, plays, slider } from "./controls.js";
import { STEPS } from "./drawings.js";
import { element, fold, report, roomy, row, spoken } from "./elements.js";
import { keptRuns, read, run } from "./gpt.js";
import { chosenHead, nextWords, overview, strip } from "./gpt_parts.js";
import { loan } from "./loan.js";
import { sum } from "./mathematics.js";
import { after } from "./stories.js";
import { exampleChoice, list, storyBox } from "./story_box.js";
import { decode } from "./tensors.js";
import { show } from "./text.js";
import { View } from "./view.js";

const BROKEN = 0.2; // how far a word's probability falls where a head is missed
const PAUSE = 800; // between two words that are written, in milliseconds

/** @type {(view: View) => string[]} */
const storyOf = (view) => view.get("story").split(" ");

// What the model makes of the story, with all heads and with those left on.
function outcomes(view, model) {
  const { words: known, rules, shape } = view.get("given");
  const { state, values: stored, maps } = view.get("first");
  const all = Array.from({ length: shape[0] }, () => new Array(shape[1]).fill(true));
  const runs = keptRuns(model, known);
  const runOf = (on) => runs(storyOf(view), on);

  function compute() {
    const [before, left] = [runOf(all), runOf(view.get("heads_on"))];
    const ids = storyOf(view).map((word) => known.indexOf(word));
    const allowed = after(rules, storyOf(view));
    const said = (one) => ids.map((id, i) => (i ? one.next[i - 1][id] : 1));
    const [saidBefore, saidNow] = [said(before), said(left)];
    const [nextBefore, next] = [before, left].map(({ next: rows }) => rows[rows.length - 1]);
    return {
      maps: left.weights,
      values: {
        "next word": known.map((word, i) => [nextBefore[i], next[i], allowed[word] ?? 0]),
        "words of the story": ids.map((_, i) => [saidBefore[i], saidNow[i]]),
        weights: left.weights[view.get("layer")][view.get("head")],
      },
    };
  }

  // The first state, as it was stored.
  const isFirst = () =>
    Object.keys(state).every((trait) => JSON.stringify(state[trait]) === JSON.stringify(view.get(trait)));
  function unpack() {
    const steps = Array.from(decode(maps), (step) => step / STEPS);
    const n = storyOf(view).length;
    const cut = (numbers, length) =>
      Array.from({ length: numbers.length / length }, (_, i) =>
        numbers.slice(i * length, (i + 1) * length),
      );
    return { values: stored, maps: cut(cut(cut(steps, n), n), shape[1]) };
  }

  function now() {
    if (model()) return compute();
    return isFirst() ? unpack() : null;
  }
  return { all, now, next: () => runOf(view.get("heads_on")).next.at(-1) };
}

/** @type {(next: number[], temperature: number) => number} */
function drawWord(next, temperature) {
  const most = Math.max(...next);
  if (temperature === 0) return next.indexOf(most);
  let total = 0;
  const ends = next.map((p) => {
    total += (p / most) ** (1 / temperature);
    return total;
  });
  const place = Math.random() * total;
  return ends.findIndex((end) => place < end);
}

// Of the likeliest word, as a temperature has it drawn.
/** @type {(next: number[], temperature: number) => string} */
function drawnAs(next, temperature) {
  if (temperature === 0) return "The model now writes the likeliest word.";
  const most = Math.max(...next);
  const share = 1 / sum(next.map((p) => (p / most) ** (1 / temperature)));
  return `The likeliest word is now drawn with probability ${show(share, 2)}.`;
}

// Words that the model writes: one, or one after the other until it is told to stop.
function writer(view, { lent, next, text, told }) {
  const { words: known, most } = view.get("given");
  let timer = 0;
  const play = button("Play", () => (timer ? stop() : start()));
  play.dataset.plays = "";
  function stop() {
    clearInterval(timer);
    timer = 0;
    plays(play, false);
  }
  function start() {
    timer = setInterval(writeWord, PAUSE);
    plays(play, true);
    writeWord();
  }
  view.undo.push(stop);
  function writeWord() {
    if (!lent.model()) {
      lent.load(writeWord);
      return;
    }
    if (!text.accept(true) || storyOf(view).length >= most) {
      stop();
      if (storyOf(view).length >= most) told.say(`The story has ${most} words, as many as the model reads.`);
      return;
    }
    const word = known[drawWord(next(), view.get("temperature"))];
    text.put([...storyOf(view), word]);
    report(one, `“${word}” was written.`);
  }
  text.box.addEventListener("input", stop);
  const one = button("Write a word", () => {
    stop();
    writeWord();
  });
  return { one, play, stop };
}

// What changes the story beside its box: examples, the words to tap on, the last word taken back.
function changes(view, text, stop) {
  const { words: known, examples } = view.get("given");
  const select = exampleChoice(view, examples, text, stop);
  const tap = (word) =>
    button(word, () => {
      stop();
      text.put([...text.words(), word]);
    });
  const back = button("Take back a word", () => {
    stop();
    if (text.words().length > 1) text.put(text.words().slice(0, -1));
  });
  const taps = element(
    "details",
    { class: "live-words" },
    element("summary", {}, `The ${known.length} words`),
    element("div", { class: "live-row", role: "group", "aria-label": "Add a word" }, ...known.map(tap)),
  );
  return { select, taps, back };
}

// What is told of the next word.
/** @type {(last: string, next: string, allowed: string[]) => string} */
function sentence(last, next, allowed) {
  const law =
    allowed.length === 0
      ? "No story of the rules goes like this."
      : `The rules allow ${allowed.length > 4 ? `${allowed.length} words` : list(allowed)}.`;
  return `After “${last}” comes ${next}. ${law}`;
}

// What is told, where heads are switched, of the words that fall where some are off.
/** @type {(off: string[], lost: string[], n: number) => string} */
function loss(off, lost, n) {
  if (!off.length) return "All heads are on.";
  const which = lost.length ? `, marked ↓: ${list(lost)}` : "";
  return `Without ${off.join(", ")}, ${lost.length} of ${n} words fall by more than ${BROKEN}${which}.`;
}

// The words, their probabilities and the heads; `draw` gives what is told of them.
function parts(view) {
  const { words: known, shape } = view.get("given");
  const [next, said] = [nextWords(known), strip()];
  const small = overview(view, shape, (layer, head) => {
    view.set("layer", layer);
    view.set("head", head);
  });
  const large = chosenHead(view);
  function draw({ values, maps }) {
    const words = storyOf(view);
    const n = words.length;
    // While Python changes the story, a place may belong to another one.
    const [query, key] = ["query", "key"].map((trait) => Math.min(view.get(trait), n - 1));
    const off = view.get("heads_on").flatMap((flags, layer) =>
      flags.flatMap((on, head) => (on ? [] : [`(${layer}, ${head})`])),
    );
    const [likeliest] = next.draw(values["next word"], off.length > 0);
    const chances = values["words of the story"];
    const fell = chances.map(([before, now]) => before - now > BROKEN);
    said.draw(words, chances, fell);
    small.draw(maps, n, (weights) => {
      const best = weights[query].indexOf(Math.max(...weights[query]));
      return `from “${words[query]}” most, ${show(weights[query][best], 2)}, to “${words[best]}”`;
    });
    large.draw(values.weights, query, key);
    return {
      next: sentence(
        words[n - 1],
        `“${likeliest.word}” with ${show(likeliest.p[1], 2)}`,
        known.filter((_, i) => values["next word"][i][2] > 0),
      ),
      missed: loss(off, words.filter((_, i) => fell[i]), n),
    };
  }
  return { next, said, small, large, draw };
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "write a word");
  const lent = loan(view, (hadFocus) => {
    if (hadFocus) text.box.focus();
    draw();
  });
  const found = outcomes(view, lent.model);
  const [told, missed] = [spoken([1, 2, 3]), spoken([3, 2, 3], "live-missed")];
  const text = storyBox(view, view.get("given"), lent.loader);
  const { one, play, stop } = writer(view, { lent, next: found.next, text, told });
  const { select, taps, back } = changes(view, text, stop);
  const { next, said, small, large, draw: drawParts } = parts(view);

  /** @type {number[]} */
  let likely = []; // of the next word
  function draw() {
    const shown = found.now();
    if (!shown) {
      lent.load(() => {});
      return;
    }
    likely = shown.values["next word"].map(([, now]) => now);
    const says = drawParts(shown);
    told.say(says.next);
    missed.say(says.missed);
    // Named here, for a notebook keeps the order of what is stored by the alphabet.
    view.values({
      "next word": shown.values["next word"],
      "words of the story": shown.values["words of the story"],
      weights: shown.values.weights,
    }, {
      weights: [storyOf(view), storyOf(view)],
      "words of the story": [storyOf(view), view.get("axes")["words of the story"][1]],
    });
  }

  const half = (...nodes) => element("div", { class: "live-half" }, ...nodes);
  const words = row(next.node, half(said.title, said.node));
  const allOn = button("All heads on", () => view.set("heads_on", found.all.map((flags) => [...flags])));
  const switches = half(small.node, row(allOn, chosenPlace(view)), missed.node);
  const heads = [row(switches, ...(roomy() ? [large.node] : []))];
  text.label.classList.add("live-told");
  text.node.prepend(row(element("label", { class: "live-control" }, "A story about", select)));
  if (roomy()) text.box.rows = 2;
  const writing = row(one, play, back, slider(view, "temperature", { label: "Temperature (0: the likeliest)" }));
  writing.classList.add("live-writing");
  view.add(
    text.node,
    taps,
    writing,
    told.node,
    // On a phone the switches come first: so they stand on one screen with the story and what comes next.
    ...(roomy() ? [words, ...heads] : [...heads, words, fold("The chosen head, large", false, large.node)]),
  );
  view.follow(["temperature"], () => {
    if (likely.length) report(view.root, drawnAs(likely, view.get("temperature")));
  });
  view.follow(["story", "heads_on", "layer", "head", "query", "key"], draw);
  return view.close;
}

export default { render, read, run, after };
