import {
  View, button, buttonGrid, coloured, complaint, counter, decode, element, linear, maskOf, pick,
  readTensors, roomFor, row, show, slider, softmax, spoken, unique, weightMap, write,
} from "./shared.js";

const EPS = 1e-5; // of LayerNorm
const LIKELIEST = 8; // next words that are shown
const BROKEN = 0.2; // how far a word's probability falls where a head is missed
const PAUSE = 800; // between two words that are written, in milliseconds
const STEPS = 255; // of a weight that is drawn small
/** @type {Colour[]} */
const COLOURS = ["blue", "orange", "green"]; // all heads, the heads left on, the rules
const [LEAST, STEP, HALF] = [240, 12, 340]; // of the large map: its least side, its cells', and when it takes a row

// ---------------------------------------------------------------- the model

/** @typedef {{ h: number, layers: number, base: number, at: Record<string, Tensor> }} GPT */
// For each position the next word's probabilities; weights by layer, head, query and key.
/** @typedef {{ next: number[][], weights: number[][][][] }} Run */

// The file of labkit/gpt.py.
/** @type {(file: DataView) => GPT} */
function read(file) {
  const { about, at } = readTensors(file);
  const layers = Object.keys(at).filter((name) => name.endsWith("w_qkv.weight")).length;
  return { h: Number(about.h), layers, base: Number(about.rotary_base), at };
}

/** @type {(x: Rows, gain: Tensor, shift: Tensor) => Rows} */
function layerNorm(x, gain, shift) {
  return x.map((row) => {
    const mean = row.reduce((sum, one) => sum + one, 0) / row.length;
    const variance = row.reduce((sum, one) => sum + (one - mean) ** 2, 0) / row.length;
    const spread = Math.sqrt(variance + EPS);
    return row.map((one, i) => ((one - mean) / spread) * gain.numbers[i] + shift.numbers[i]);
  });
}

/** @type {(x: number) => number} */
const gelu = (x) => (x / 2) * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));

// Features 2i and 2i + 1 are turned by an angle that grows with the position.
/** @type {(x: Float64Array<ArrayBuffer>, position: number, base: number) => Float64Array} */
function rotate(x, position, base) {
  const turned = new Float64Array(x.length);
  for (let i = 0; i < x.length; i += 2) {
    const angle = position * base ** (-i / x.length);
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    turned[i] = x[i] * cos - x[i + 1] * sin;
    turned[i + 1] = x[i] * sin + x[i + 1] * cos;
  }
  return turned;
}

/** @type {(a: Rows, b: Rows) => Rows} */
const add = (a, b) => a.map((row, i) => row.map((one, j) => one + b[i][j]));

// What the heads find, side by side, and their weights. A head that is off leaves zeros.
/** @type {(qkv: Rows, gpt: GPT, on: boolean[]) => { found: Rows, weights: number[][][] }} */
function attend(qkv, { h, base }, on) {
  const d_model = qkv[0].length / 3;
  const d_k = d_model / h;
  const found = qkv.map(() => new Float64Array(d_model));
  const weights = on.map((isOn, head) => {
    const part = (which) => (row) => {
      const start = which * d_model + head * d_k;
      return row.subarray(start, start + d_k);
    };
    const [q, k] = [0, 1].map((which) =>
      qkv.map((row, i) => rotate(part(which)(row), i, base)),
    );
    const v = qkv.map(part(2));
    return q.map((query, i) => {
      const scores = k.slice(0, i + 1).map((key) => {
        let sum = 0;
        for (let c = 0; c < d_k; c += 1) sum += query[c] * key[c];
        return sum / Math.sqrt(d_k);
      });
      const line = softmax(scores);
      if (isOn) {
        for (let c = 0; c < d_k; c += 1) {
          found[i][head * d_k + c] = line.reduce((sum, weight, j) => sum + weight * v[j][c], 0);
        }
      }
      return [...line, ...new Array(q.length - i - 1).fill(0)];
    });
  });
  return { found, weights };
}

/** @type {(gpt: GPT, ids: number[], on: boolean[][]) => Run} */
function run(gpt, ids, on) {
  const { numbers: words, shape } = gpt.at["words.weight"];
  let x = ids.map((id) => words.slice(id * shape[1], (id + 1) * shape[1]));
  const weights = on.map((flags, layer) => {
    const own = (part) => ["weight", "bias"].map((kind) => gpt.at[`blocks.${layer}.${part}.${kind}`]);
    const through = (part, input) => linear(input, own(part)[0], own(part)[1]);
    const norm = (part) => layerNorm(x, own(part)[0], own(part)[1]);
    const { found, weights: seen } = attend(
      through("attention.w_qkv", norm("attention_norm")), gpt, flags,
    );
    x = add(x, through("attention.w_o", found));
    const wide = through("feed_forward.expand", norm("feed_forward_norm"));
    x = add(x, through("feed_forward.contract", wide.map((row) => row.map(gelu))));
    return seen;
  });
  const last = layerNorm(x, gpt.at["norm.weight"], gpt.at["norm.bias"]);
  const logits = linear(last, gpt.at["next_word.weight"]);
  return { next: logits.map((row) => softmax([...row])), weights };
}

// ---------------------------------------------------------------- the rules of the stories

/** @type {(words: string[], weight?: number) => Record<string, number>} */
const equal = (words, weight = 1) =>
  Object.fromEntries(words.map((word) => [word, weight / words.length]));

// A story without end, as labkit/stories.py tells it: gives what may come, and takes what came.
function* tell(rules) {
  const people = new Map(); // the surname and the thing of each
  while (true) {
    const names = [...people.keys()];
    const owners = new Map(names.map((name) => [people.get(name).thing, name]));
    const { deed, ...kinds } = rules.kinds;
    if (names.length === 0) kinds.look = kinds.animals = 0;
    if (names.length === rules["most people"]) kinds.introduction = 0;
    const starts = Object.values(kinds).reduce((sum, weight) => sum + weight, 0);
    const first = yield { the: starts, ...equal(names, deed) };
    if (people.has(first)) {
      yield { [people.get(first).surname]: 1 };
      yield equal(rules.deeds);
      yield { and: 1 };
      yield { [rules.people[first]]: 1 };
      yield { is: 1 };
      yield equal(rules.moods);
    } else {
      const noun = yield {
        ...equal(rules.things.filter((thing) => !owners.has(thing)), kinds.introduction),
        ...equal([...owners.keys()], kinds.look),
        ...equal(Object.keys(rules.animals), kinds.animals),
      };
      if (noun in rules.animals) {
        yield { near: 1 };
        yield { the: 1 };
        yield equal(Object.keys(rules.animals));
        yield equal(rules.animals[noun]);
      } else if (owners.has(noun)) {
        const owner = owners.get(noun);
        yield { [owner]: 1 };
        yield { [people.get(owner).surname]: 1 };
        yield { has: 1 };
        yield { is: 1 };
        yield equal(rules.looks);
      } else {
        yield { suits: 1 };
        const name = yield equal(Object.keys(rules.people).filter((one) => !people.has(one)));
        people.set(name, { thing: noun, surname: yield equal(rules.surnames) });
      }
    }
    yield { ".": 1 };
  }
}

// The probability of each word that may come after these; none where they broke the rules.
/** @type {(rules: object, words: string[]) => Record<string, number>} */
function after(rules, words) {
  const teller = tell(rules);
  let options = teller.next("").value ?? {};
  for (const word of words) {
    if (!options[word]) return {};
    options = teller.next(word).value ?? {};
  }
  const total = Object.values(options).reduce((sum, weight) => sum + weight, 0);
  return Object.fromEntries(Object.entries(options).map(([word, x]) => [word, x / total]));
}

// ---------------------------------------------------------------- parts

// All heads as small maps, which are buttons, each with a box that switches the head on and off.
function overview(view, [layers, h], choose) {
  const blank = (count) => new Array(count).fill("");
  const { node, buttons } = buttonGrid({
    label: "All heads",
    rows: blank(layers),
    columns: blank(h),
    press: choose,
  });
  node.classList.add("live-heads", "live-switched");
  node.style.maxWidth = `${6 * h}rem`;
  const cells = buttons.map((line, layer) =>
    line.map((made, head) => {
      const [map, place] = [element("i"), element("span", {}, `${layer}, ${head}`)];
      made.append(map, place);
      const box = element("input", {
        type: "checkbox",
        "aria-label": `layer ${layer}, head ${head} is on`,
        "data-trait": "heads_on",
        "data-place": JSON.stringify([layer, head]),
        onchange() {
          const next = view.get("heads_on").map((flags) => [...flags]);
          next[layer][head] = box.checked;
          view.set("heads_on", next);
        },
      });
      made.after(element("label", { class: "live-control" }, box, "on"));
      return { made, map, box };
    }),
  );
  return {
    node,
    // `told` says of a head's weights what the map shows.
    draw(maps, n, told) {
      cells.forEach((line, layer) =>
        line.forEach(({ made, map, box }, head) => {
          const weights = maps[layer][head];
          map.style.maskImage = maskOf(weights.flat().map((x) => Math.round(STEPS * x)), n);
          box.checked = view.get("heads_on")[layer][head];
          made.classList.toggle("live-off", !box.checked);
          const chosen = layer === view.get("layer") && head === view.get("head");
          made.setAttribute("aria-pressed", String(chosen));
          made.setAttribute("aria-label", `layer ${layer}, head ${head}: ${told(weights)}`);
        }),
      );
    },
  };
}

// The words of the story, each with the probability that it had.
function strip() {
  const list = element("ol", { class: "live-strip live-said" });
  return {
    node: list,
    draw(words, said, fell) {
      while (list.children.length > words.length) list.lastElementChild?.remove();
      words.forEach((word, i) => {
        const [all, left] = said[i];
        const chip = list.children[i] ?? element("li", {}, element("b"), element("span"));
        if (!chip.isConnected) list.append(chip);
        const [before, now] = [show(all, 2), show(left, 2)];
        const both = now === before ? before : `${fell[i] ? "↓ " : ""}${before} → ${now}`;
        write(chip.children[0], word);
        write(chip.children[1], i ? both : "given");
        chip.classList.toggle("live-fell", fell[i]);
      });
    },
  };
}

// A cell that is filled as far as its share goes.
/** @type {(share: number, colour: Colour) => string} */
function filled(share, colour) {
  const tint = `color-mix(in srgb, var(--live-${colour}) 40%, transparent)`;
  return `linear-gradient(${tint} 0 0) 0 / ${(100 * share).toFixed(1)}% 100% no-repeat padding-box`;
}

/** @type {(text: string) => string[]} */
const wordsOf = (text) => text.toLowerCase().replaceAll(".", " . ").split(/\s+/).filter(Boolean);

const cut = (word) => (word.length > 15 ? `${word.slice(0, 14)}…` : word);
const list = (words) => words.map((word) => `“${word}”`).join(", ");

// The story as text. What is no story is told beside it and left as it is; the old story stays.
function textBox(view, { words: known, most }) {
  const id = unique();
  const error = complaint();
  error.line.classList.add("live-kept");
  const box = element("textarea", {
    id,
    rows: 3,
    "data-trait": "story",
    autocapitalize: "none",
    autocomplete: "off",
    spellcheck: "false",
    oninput: () => accept(false),
    onchange: () => accept(true),
  });

  function wrongWith(words, leaving) {
    const strange = [...new Set(words.filter((word) => !known.includes(word)))];
    // A word that is still being typed at the end may become one that is known.
    const unfinished = !leaving && !/[\s.]$/.test(box.value) ? words.at(-1) : undefined;
    const begun = strange.filter(
      (word) => word === unfinished && known.some((one) => one.startsWith(word)),
    );
    if (strange.length > begun.length) {
      const told = strange.filter((word) => !begun.includes(word)).slice(0, 2);
      return `${list(told.map(cut))}: not among the ${known.length} words it knows.`;
    }
    if (words.length > most) return `The model reads ${most} words, and here are ${words.length}.`;
    return words.length === 0 && leaving ? "A story needs a word." : "";
  }

  // Says whether what stands there is a story now.
  function accept(leaving) {
    const words = wordsOf(box.value);
    const told = wrongWith(words, leaving);
    error.tell(box, told && `${told} The story before stays.`);
    const whole = words.length > 0 && words.every((word) => known.includes(word));
    if (told || !whole) return false;
    if (words.join(" ") !== view.get("story")) change(words);
    return true;
  }

  // No place may lie outside the story, and a query at its end stays there.
  function change(words) {
    const [before, last] = [view.get("story").split(" ").length, words.length].map((n) => n - 1);
    const follows = view.get("query") === before;
    for (const trait of ["query", "key"]) {
      if (view.get(trait) > last) view.set(trait, last);
    }
    view.set("story", words.join(" "));
    if (follows && last > before) view.set("query", last);
  }

  function put(words) {
    box.value = words.join(" ");
    return accept(true);
  }

  view.follow(["story"], () => {
    if (wordsOf(box.value).join(" ") !== view.get("story")) put(view.get("story").split(" "));
  });
  return {
    node: element("div", {}, element("label", { for: id }, "Story"), box, error.line),
    box,
    accept,
    put,
    words: () => wordsOf(box.value),
  };
}

// ---------------------------------------------------------------- the figure

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

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "change the story");
  const { words: known, examples, rules, most, shape, bytes } = view.get("given");
  const story = () => view.get("story").split(" ");

  // ---- the model, which is asked for when it is first needed
  /** @type {GPT | null} */
  let gpt = null;
  let asked = false;
  let waiting = () => {};
  const size = `${Math.round(bytes / 1000)} KB`;
  const loader = button(`Load the model, ${size}`, () => load(() => {}));

  function load(then) {
    waiting = then;
    if (asked) return;
    asked = true;
    write(loader, `Loading the model, ${size}`);
    view.model.send({ ask: "parcel" });
  }

  function hear(content, buffers) {
    if (content?.answer !== "parcel" || gpt) return;
    if (!buffers?.length) {
      asked = false;
      write(loader, "The model did not come: try again");
      return;
    }
    gpt = read(buffers[0]);
    if (document.activeElement === loader) text.box.focus();
    loader.remove();
    draw();
    waiting();
  }
  view.model.on("msg:custom", hear);
  view.undo.push(() => view.model.off("msg:custom", hear));

  // ---- what it makes of the story
  const all = Array.from({ length: shape[0] }, () => new Array(shape[1]).fill(true));
  const made = new Map(); // the last runs
  function runOf(on) {
    const key = JSON.stringify([view.get("story"), on]);
    if (!made.has(key)) {
      if (made.size > 3) made.clear();
      made.set(key, run(/** @type {GPT} */ (gpt), story().map((word) => known.indexOf(word)), on));
    }
    return made.get(key);
  }

  function compute() {
    const [before, left] = [runOf(all), runOf(view.get("heads_on"))];
    const ids = story().map((word) => known.indexOf(word));
    const allowed = after(rules, story());
    const said = (one) => ids.map((id, i) => (i ? one.next[i - 1][id] : 1));
    const [saidBefore, saidNow] = [said(before), said(left)];
    const [nextBefore, next] = [before.next.at(-1), left.next.at(-1)];
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
  const { state, values: stored, maps } = view.get("first");
  const isFirst = () =>
    Object.keys(state).every((trait) => JSON.stringify(state[trait]) === JSON.stringify(view.get(trait)));
  function unpack() {
    const steps = Array.from(decode(maps), (step) => step / STEPS);
    const n = story().length;
    const cut = (numbers, length) =>
      Array.from({ length: numbers.length / length }, (_, i) =>
        numbers.slice(i * length, (i + 1) * length),
      );
    return { values: stored, maps: cut(cut(cut(steps, n), n), shape[1]) };
  }

  // ---- writing
  let timer = 0;
  const told = spoken();
  const text = textBox(view, { words: known, most });
  const play = button("Play", () => (timer ? stop() : start()));
  play.dataset.plays = "";
  function stop() {
    clearInterval(timer);
    timer = 0;
    write(play, "Play");
  }
  function start() {
    timer = setInterval(writeWord, PAUSE);
    write(play, "Pause");
    writeWord();
  }
  view.undo.push(stop);
  function writeWord() {
    if (!gpt) {
      load(writeWord);
      return;
    }
    if (!text.accept(true) || story().length >= most) {
      stop();
      if (story().length >= most) told.say(`The story has ${most} words, as many as the model reads.`);
      return;
    }
    const { next } = runOf(view.get("heads_on"));
    text.put([...story(), known[drawWord(next.at(-1), view.get("temperature"))]]);
  }
  text.box.addEventListener("input", stop);

  const names = Object.keys(examples);
  const select = element(
    "select",
    {
      onchange() {
        stop();
        const chosen = examples[names[select.selectedIndex]];
        if (chosen) text.put(chosen.split(" "));
      },
    },
    ...[...names, "your own"].map((name) => element("option", {}, name)),
  );
  view.follow(["story"], () => {
    const at = names.findIndex((name) => examples[name] === view.get("story"));
    select.selectedIndex = at < 0 ? names.length : at;
  });
  const tap = (word) =>
    button(word, () => {
      stop();
      text.put([...text.words(), word]);
    });
  const back = button("Take back a word", () => {
    stop();
    if (text.words().length > 1) text.put(text.words().slice(0, -1));
  });

  // ---- drawing
  const nextTable = coloured();
  nextTable.node.classList.add("live-next");
  const said = strip();
  const small = overview(view, shape, (layer, head) => {
    view.set("layer", layer);
    view.set("head", head);
  });
  const place = spoken();
  const beside = element("div", { class: "live-half" });
  const large = element("div", {
    class: "live-large live-scroll",
    role: "region",
    "aria-label": "The chosen head's weights",
    tabindex: 0,
  });
  let drawn = "";
  let big;
  let line = [];

  const pickWord = (trait) =>
    pick(view, trait, {
      label: { query: "From", key: "To" }[trait] ?? "",
      texts: () => story().map((word, i) => `${i + 1} ${word}`),
      follow: ["story"],
      choose: (i) => view.set(trait, i),
    });
  const at = (i) => story()[i];
  const weightText = (i, j) => `From “${at(i)}” (${i + 1}) to “${at(j)}” (${j + 1}): `;
  function point(i, j) {
    write(pointed, j > i ? `${weightText(i, j)}a later word, hidden` : weightText(i, j) + show(line[i][j]));
  }
  const pointed = element("p", { class: "live-pointed" });

  function drawNext(next, off) {
    const columns = off ? [0, 1, 2] : [0, 2];
    const likely = known
      .map((word, i) => ({ word, p: next[i], most: Math.max(next[i][0], next[i][1]) }))
      .sort((a, b) => b.most - a.most)
      .slice(0, LIKELIEST);
    const heads = ["all heads", "heads left on", "the rules"];
    nextTable.draw({
      label: "The next word",
      rows: likely.map(({ word }) => word),
      columns: columns.map((column) => heads[column]),
      text: (i, j) => show(likely[i].p[columns[j]], 2),
      fill: (i, j) => filled(likely[i].p[columns[j]], COLOURS[columns[j]]),
    });
    return likely;
  }

  function draw() {
    const shown = gpt ? compute() : isFirst() ? unpack() : null;
    if (!shown) {
      load(() => {});
      return;
    }
    const { values, maps: heads } = shown;
    const words = story();
    const n = words.length;
    // While Python changes the story, a place may belong to another one.
    const [query, key] = ["query", "key"].map((trait) => Math.min(view.get(trait), n - 1));
    const off = view.get("heads_on").flatMap((flags, layer) =>
      flags.flatMap((on, head) => (on ? [] : [`(${layer}, ${head})`])),
    );
    const likely = drawNext(values["next word"], off.length > 0);
    const chances = values["words of the story"];
    const fell = chances.map(([before, now]) => before - now > BROKEN);
    said.draw(words, chances, fell);
    small.draw(heads, n, (weights) => {
      const best = weights[query].indexOf(Math.max(...weights[query]));
      return `from “${words[query]}” most, ${show(weights[query][best], 2)}, to “${words[best]}”`;
    });
    line = values.weights;
    if (drawn !== view.get("story")) {
      drawn = view.get("story");
      const [side, room] = [Math.max(LEAST, STEP * n), roomFor(words)];
      beside.style.flexBasis = side + room > HALF ? "100%" : "";
      big = weightMap(words, {
        side,
        room,
        select: (trait, i) => view.set(trait, i),
        point,
      });
      large.replaceChildren(big.node);
    }
    big.draw(line, query, key);
    const named = `Head (${view.get("layer")}, ${view.get("head")})`;
    big.node.setAttribute("aria-label", `${named} on: ${words.join(" ")}`);
    const best = line[query].indexOf(Math.max(...line[query]));
    place.say(
      `${named}, from “${words[query]}” (${query + 1}): ${show(line[query][key])} to ` +
        `“${words[key]}” (${key + 1}), and most, ${show(line[query][best])}, to “${words[best]}” ` +
        `(${best + 1}).`,
    );
    write(pointed, "");
    const allowed = known.filter((_, i) => values["next word"][i][2] > 0);
    const law =
      allowed.length === 0
        ? "No story of the rules goes like this."
        : `The rules allow ${allowed.length > 4 ? `${allowed.length} words` : list(allowed)}.`;
    const lost = words.filter((_, i) => fell[i]);
    const missed = off.length
      ? ` Without ${off.join(", ")}, ${lost.length} of ${n} words fall by more than ${BROKEN}` +
        `${lost.length ? `, marked ↓: ${list(lost)}` : ""}.`
      : "";
    told.say(`Next comes “${likely[0].word}” with ${show(likely[0].p[1], 2)}. ${law}${missed}`);
    // Named here, for a notebook keeps the order of what is stored by the alphabet.
    view.values({
      "next word": values["next word"],
      "words of the story": chances,
      weights: line,
    });
  }

  view.add(
    row(element("label", { class: "live-control" }, "A story about", select), loader),
    text.node,
    element(
      "details",
      { class: "live-words" },
      element("summary", {}, `The ${known.length} words`),
      element("div", { class: "live-row", role: "group", "aria-label": "Add a word" }, ...known.map(tap)),
    ),
    row(
      button("Write a word", () => {
        stop();
        writeWord();
      }),
      play,
      back,
      slider(view, "temperature", { label: "Temperature (0: the likeliest)" }),
    ),
    told.node,
    row(nextTable.node, element("div", { class: "live-half" }, element("p", { class: "live-side-title" }, "Each word's probability"), said.node)),
    row(
      button("All heads on", () => view.set("heads_on", all.map((flags) => [...flags]))),
      counter(view, "layer", { label: "Layer" }),
      counter(view, "head", { label: "Head" }),
    ),
    row(element("div", { class: "live-half" }, small.node), beside),
  );
  beside.append(row(...["query", "key"].map(pickWord)), place.node, large, pointed);
  view.follow(["story", "heads_on", "layer", "head", "query", "key"], draw);
  return view.close;
}

export default { render, read, run, after };
