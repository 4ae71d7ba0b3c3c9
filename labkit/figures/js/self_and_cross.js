import { choice, slider } from "./controls.js";
import { shade } from "./drawings.js";
import { element, row, spoken, write } from "./elements.js";
import { matmul, softmax, transpose } from "./mathematics.js";
import { coloured } from "./tables.js";
import { show } from "./text.js";
import { View } from "./view.js";

/** @type {(matrix: Matrix) => string} */
const shape = (matrix) => `(${matrix.length}, ${matrix[0].length})`;

// What a sentence is there for, in letters and not by colour alone.
function role(asks, asked) {
  if (asks) return asked ? "gives Q, K, V" : "gives Q";
  return asked ? "gives K, V" : "is not used";
}

// All words of a sentence. Those beyond its length keep their room, so that nothing moves.
/** @type {(view: View, trait: string) => Part & { draw(asks: boolean, asked: boolean): void }} */
function strip(view, trait) {
  const words = view.get("given").words[trait];
  const chips = words.map((word) => element("li", {}, word));
  const told = element("span", { class: "live-control" });
  const label = { translation: "Translation", source: "Source" }[trait];
  const list = element("ul", { class: "live-strip" }, ...chips);
  return {
    node: row(slider(view, trait, { label }), list, told),
    draw(asks, asked) {
      write(told, role(asks, asked));
      chips.forEach((chip, i) => {
        chip.hidden = i >= view.get(trait);
        chip.classList.toggle("live-asks", asks);
        chip.classList.toggle("live-asked", asked);
      });
    },
  };
}

function kind(asking, asked, n_q, n_k) {
  if (asking === asked) {
    return `Self-attention: the ${asking} asks itself. The scores are square at any length.`;
  }
  const square = n_q === n_k ? " They are square only because both have as many words." : "";
  return `Cross-attention: the ${asking} asks the ${asked}.${square}`;
}

/** @type {Render} */
function render({ model, el }) {
  const view = new View({ model, el }, "choose who asks");
  const { words, vectors, projections } = model.get("given");
  const strips = ["translation", "source"].map((trait) => ({ trait, ...strip(view, trait) }));
  const [scoresTable, weightsTable, outputsTable] = [coloured(), coloured(), coloured()];
  const told = spoken();

  function draw() {
    const [asking, asked] = [view.get("queries_from"), view.get("keys_from")];
    for (const { trait, draw: redraw } of strips) redraw(trait === asking, trait === asked);
    const [X, C] = [asking, asked].map((trait) => vectors[trait].slice(0, view.get(trait)));
    const [Q, K, V] = [[X, "Q"], [C, "K"], [C, "V"]].map(([x, at]) => matmul(x, projections[at]));
    const root = Math.sqrt(Q[0].length);
    const scores = matmul(Q, transpose(K)).map((line) => line.map((score) => score / root));
    const weights = scores.map(softmax);
    const outputs = matmul(weights, V);
    const rows = words[asking].slice(0, X.length);
    const columns = words[asked].slice(0, C.length);
    const text = (matrix) => (i, j) => show(matrix[i][j], 2);
    scoresTable.draw({ label: `Scores ${shape(scores)}`, rows, columns, text: text(scores) });
    weightsTable.draw({
      label: `Weights ${shape(weights)}`,
      rows,
      columns,
      text: text(weights),
      fill: (i, j) => shade(weights[i][j]),
    });
    const entries = ["thing", "event"];
    const label = `Outputs ${shape(outputs)}`;
    outputsTable.draw({ label, rows, columns: entries, text: text(outputs) });
    const product = `Q ${shape(Q)} times Kᵀ ${shape(transpose(K))} gives scores ${shape(scores)}`;
    const sums = `weights ${shape(weights)} times V ${shape(V)} gives outputs ${shape(outputs)}`;
    told.say(`${kind(asking, asked, X.length, C.length)} ${product}; ${sums}.`);
    view.values({
      "shape of the scores": [X.length, C.length],
      "scaled scores": scores,
      weights,
      outputs,
    });
  }

  view.add(
    ...strips.map(({ node }) => node),
    row(
      choice(view, "queries_from", { label: "Queries from" }),
      choice(view, "keys_from", { label: "Keys and values from" }),
    ),
    told.node,
    row(scoresTable.node, weightsTable.node, outputsTable.node),
  );
  view.follow(["translation", "source", "queries_from", "keys_from"], draw);
  return view.close;
}

export default { render };
