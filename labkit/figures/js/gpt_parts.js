// What the figure of the small GPT is put together from: words with what they get, heads as maps.

import { pick } from "./controls.js";
import { STEPS, maskOf, roomFor, weightMap } from "./drawings.js";
import { byKeyboard, element, roomy, row, spoken, write } from "./elements.js";
import { range } from "./mathematics.js";
import { buttonGrid, coloured } from "./tables.js";
import { show } from "./text.js";

const [LIKELIEST, ON_A_PHONE] = [6, 4]; // next words that are shown
/** @type {Colour[]} */
const KINDS = ["blue", "orange", "green"]; // all heads, the heads left on, the rules
const SIDE = 240; // of the large map

// All heads as small maps, which are buttons, each with a box that switches the head on and off.
export function overview(view, [layers, h], choose) {
  const { node, buttons } = buttonGrid({
    label: "Each head’s weights (layer, head)",
    rows: range(layers).map((layer) => `layer ${layer}`),
    columns: range(h).map((head) => `head ${head}`),
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
        "aria-label": `on: layer ${layer}, head ${head}`,
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
          const steps = weights.flat().map((x) => Math.round(STEPS * x));
          map.style.setProperty("--map", maskOf(steps, n));
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
export function strip() {
  const title = element("p", { class: "live-side-title" });
  const list = element("ol", { class: "live-strip live-said", "aria-label": "Each word's probability" });
  return {
    title,
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
      // Of a story longer than its room the end is shown, and the keyboard scrolls to the rest.
      list.scrollTop = list.scrollHeight;
      write(title, `Each word's probability${list.scrollTop ? "; scroll up for the first" : ""}`);
      if (list.scrollTop) list.tabIndex = 0;
      else list.removeAttribute("tabindex");
    },
  };
}

// A cell that is filled as far as its share goes.
/** @type {(share: number, colour: Colour) => string} */
function filled(share, colour) {
  const tint = `color-mix(in srgb, var(--live-${colour}) 40%, transparent)`;
  return `linear-gradient(${tint} 0 0) 0 / ${(100 * share).toFixed(1)}% 100% no-repeat padding-box`;
}

// The likeliest next words. Where all heads are on, these and those left on are the same.
export function nextWords(known) {
  const { node, draw } = coloured();
  node.classList.add("live-next");
  const heads = ["all heads", "heads left on", "the rules"];
  return {
    node,
    // Gives the words that are shown, the likeliest first.
    draw(next, someOff) {
      const columns = someOff ? [0, 1, 2] : [0, 2];
      const likely = known
        .map((word, i) => ({ word, p: next[i], most: Math.max(next[i][0], next[i][1]) }))
        .sort((a, b) => b.most - a.most)
        .slice(0, roomy() ? LIKELIEST : ON_A_PHONE);
      draw({
        label: "The next word",
        rows: likely.map(({ word }) => word),
        columns: columns.map((column) => heads[column]),
        text: (i, j) => show(likely[i].p[columns[j]], 2),
        fill: (i, j) => filled(likely[i].p[columns[j]], KINDS[columns[j]]),
      });
      return likely;
    },
  };
}

// The chosen head's weights, large, with the words from which and to which one of them is chosen.
export function chosenHead(view) {
  const words = () => view.get("story").split(" ");
  const [place, pointed] = [spoken([2, 2, 3]), element("p", { class: "live-pointed" })];
  const node = element("div", { class: "live-half" });
  const room = roomFor(view.get("given").words); // the same for every story
  const large = element("div", {
    class: "live-large live-scroll",
    role: "region",
    "aria-label": "The chosen head's weights",
  });
  byKeyboard(large);
  let drawn = "";
  let map;
  let weights = [];

  function point(i, j) {
    const at = `From “${words()[i]}” (${i + 1}) to “${words()[j]}” (${j + 1}): `;
    write(pointed, at + (j > i ? "a later word, hidden" : show(weights[i][j])));
  }

  function drawAnew() {
    const select = (trait, i) => view.set(trait, i);
    map = weightMap(words(), { side: SIDE, room, select, point });
    large.replaceChildren(map.node);
  }

  const pickWord = (trait, label) =>
    pick(view, trait, {
      label,
      texts: () => words().map((word, i) => `${i + 1} ${word}`),
      follow: ["story"],
      choose: (i) => view.set(trait, i),
    });
  node.append(row(pickWord("query", "From"), pickWord("key", "To")), place.node, large, pointed);
  return {
    node,
    draw(given, query, key) {
      weights = given;
      if (drawn !== view.get("story")) {
        drawn = view.get("story");
        drawAnew();
      }
      map.draw(weights, query, key);
      const named = `Head (${view.get("layer")}, ${view.get("head")})`;
      map.node.setAttribute("aria-label", `${named} on: ${words().join(" ")}`);
      const best = weights[query].indexOf(Math.max(...weights[query]));
      place.say(
        `${named}, from “${words()[query]}” (${query + 1}): ${show(weights[query][key])} to ` +
          `“${words()[key]}” (${key + 1}), and most, ${show(weights[query][best])}, to ` +
          `“${words()[best]}” (${best + 1}).`,
      );
      write(pointed, "");
    },
  };
}
