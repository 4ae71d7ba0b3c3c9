import { choice, slider } from "./controls.js";
import { shade } from "./drawings.js";
import { drawing, element, row, spoken } from "./elements.js";
import { matmul, softmax, transpose } from "./mathematics.js";
import { place } from "./stage_labels.js";
import { coloured } from "./tables.js";
import { show } from "./text.js";
import { View } from "./view.js";

const [QUESTIONS, ITSELF, OWN] = ["who does what", "the note itself", "your own query"];
const WIDE = 400; // of the drawing of both texts
const SIDE = 320; // of the plane
const MIDDLE = SIDE / 2;
const FEWEST = 0.02; // a weight below this has no line

// The vectors that ask, their queries, their names; a query of the reader's has no vector.
function asking(view, memory, words) {
  const { questions, W_Q, asks, length } = view.get("given");
  if (view.get("asking") === QUESTIONS) return { X: questions, Q: matmul(questions, W_Q), rows: asks };
  if (view.get("asking") === ITSELF) return { X: memory, Q: matmul(memory, W_Q), rows: words };
  const angle = (view.get("turn") * Math.PI) / 180;
  return { X: [[0, 0]], Q: [[length * Math.cos(angle), length * Math.sin(angle)]], rows: ["you"] };
}

function attend(view) {
  const { names, words: vectors, W_K, W_V, U } = view.get("given");
  const words = view.get("note").split(" ");
  const memory = words.map((word) => vectors[names.indexOf(word)]);
  const { X, Q, rows } = asking(view, memory, words);
  const [K, V] = [W_K, W_V].map((W) => matmul(memory, W));
  const scores = matmul(Q, transpose(K)).map((line) => line.map((score) => score / Math.SQRT2));
  const weights = scores.map(softmax);
  const outputs = matmul(weights, V);
  const after = X.map((x, i) => x.map((part, c) => part + outputs[i][c]));
  return { words, rows, Q, K, scores, weights, outputs, answers: matmul(after, U).map(softmax) };
}

const best = (line) => line.indexOf(Math.max(...line));
const across = (i, count) => (WIDE * (i + 0.5)) / count;

// A text as a row of boxes.
function boxes(words, y, kind) {
  return words.flatMap((word, i) => {
    const x = across(i, words.length);
    return [
      drawing("rect", { class: `cross-box cross-${kind}`, x: x - 34, y, width: 68, height: 28, rx: 14 }),
      drawing("text", { class: "cross-word", x, y: y + 19 }, word),
    ];
  });
}

// Both texts, the one that asks above, and a line for each weight that can be seen.
function texts() {
  const node = drawing("svg", { class: "cross-texts", viewBox: `0 0 ${WIDE} 164`, role: "img" });
  return {
    node,
    draw({ words, rows, weights }, said) {
      const lines = weights.flatMap((line, i) =>
        line.map((weight, j) => {
          const [x, end] = [across(i, rows.length), across(j, words.length)];
          const path = drawing("path", { class: "cross-arc", d: `M${x} 54C${x} 100 ${end} 84 ${end} 130` });
          path.style.strokeWidth = `${1 + 8 * weight}px`;
          path.style.strokeOpacity = weight < FEWEST ? "0" : String(0.45 + 0.55 * weight);
          return path;
        }),
      );
      const told = said.map((text, i) => drawing("text", { class: "cross-said", x: across(i, rows.length), y: 17 }, text));
      node.replaceChildren(...lines, ...boxes(rows, 26, "query"), ...boxes(words, 130, "key"), ...told);
      node.setAttribute("aria-label", `${rows.join(" ")} asks ${words.join(" ")}`);
    },
  };
}

// Keys as points, queries as arrows from the origin.
function plane() {
  const node = drawing("svg", { class: "stage-plane", viewBox: `0 0 ${SIDE} ${SIDE}`, role: "img" });
  function draw({ words, rows, Q, K }) {
    const range = 1.18 * Math.max(4, ...[...Q, ...K].flat().map(Math.abs));
    const at = ([x, y]) => [MIDDLE + (MIDDLE * x) / range, MIDDLE - (MIDDLE * y) / range];
    const spots = K.map(at);
    const tips = Q.map(at);
    const names = [...rows, ...words].map((word, i) => {
      const kind = i < rows.length ? "stage-name stage-query-name" : "stage-name";
      return drawing("text", { class: kind }, word === "." ? "full stop" : word);
    });
    const wanted = names.map((name, i) => {
      const spot = i < rows.length ? tips[i] : spots[i - rows.length];
      return { node: name, spot, words: [name.textContent], must: true };
    });
    const dots = [...spots, ...tips].map((spot) => ({ spot, radius: 6 }));
    place(wanted, dots, SIDE, 14, (one, spot) => {
      const [x, y] = spot ?? one.spot;
      one.node.style.transform = `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px)`;
    });
    const points = spots.map(([cx, cy]) => drawing("circle", { class: "cross-key-dot", cx, cy, r: 6 }));
    const arrows = tips.flatMap(([x, y]) => [
      drawing("path", { class: "stage-query", d: `M${MIDDLE} ${MIDDLE}L${x} ${y}` }),
      drawing("circle", { class: "stage-knob", cx: x, cy: y, r: 6 }),
    ]);
    node.replaceChildren(
      drawing("rect", { class: "stage-frame", x: 1, y: 1, width: SIDE - 2, height: SIDE - 2, rx: 8 }),
      drawing("path", { class: "stage-axes", d: `M4 ${MIDDLE}H${SIDE - 4}M${MIDDLE} 4V${SIDE - 4}` }),
      ...arrows, ...points, ...names,
    );
    node.setAttribute("aria-label", "The plane: keys as points, queries as arrows");
  }
  return { node, draw };
}

// What comes of it, in a sentence.
function tell(view, { words, rows, weights, answers }, shape) {
  const names = view.get("given").answers;
  const found = weights.map((line, i) => `${rows[i]} → ${words[best(line)]} ${show(Math.max(...line), 2)}`);
  if (view.get("asking") === QUESTIONS) {
    const told = answers.map((line, i) => `${rows[i]} → ${names[best(line)]}`);
    return `Cross-attention, weights of shape ${shape}. Answers: ${told.join(", ")}.`;
  }
  if (view.get("asking") === ITSELF) {
    return `Self-attention, weights of shape ${shape}. Nobody trained these words to ask, so the map means nothing.`;
  }
  return `Your query: most weight to ${found[0].slice(6)}.`;
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "choose a note and who asks");
  const [scene, map, table, told] = [texts(), plane(), coloured(), spoken([2])];
  const turn = slider(view, "turn", { label: "Turn your own query" });

  function draw() {
    const found = attend(view);
    const { words, rows, Q, K, scores, weights, outputs, answers } = found;
    const names = view.get("given").answers;
    const asks = view.get("asking");
    turn.classList.toggle("live-idle", asks !== OWN);
    turn.querySelectorAll("input").forEach((input) => (input.disabled = asks !== OWN)); // nothing would move
    scene.draw(found, asks === QUESTIONS ? answers.map((line) => `“${names[best(line)]}”`) : []);
    map.draw(found);
    table.node.style.setProperty("--rows", String(rows.length));
    const shape = `(${Q.length}, ${K.length})`;
    table.draw({
      label: `Weights ${shape}`,
      rows,
      columns: words,
      text: (i, j) => show(weights[i][j], 2),
      fill: (i, j) => shade(0.8 * weights[i][j], "weight"),
    });
    told.say(tell(view, found, shape));
    view.values({
      "shape of the weights": [Q.length, K.length],
      queries: Q, keys: K, "scaled scores": scores, weights, outputs, answers,
    });
  }

  view.add(
    row(choice(view, "note", { label: "Note" }), choice(view, "asking", { label: "Asked by" }), turn),
    element(
      "div", { class: "cross" },
      scene.node, told.node, map.node, table.node,
    ),
  );
  view.follow(["note", "asking", "turn"], draw);
  return view.close;
}

export default { render };
