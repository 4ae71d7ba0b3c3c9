// Level bars, each with a name and a number: of what is compared line by line.

import { element, write } from "./elements.js";

// A share from 0 to 1, the number that tells it, and a mark on the bar; `shade` is a CSS colour.
/** @typedef {{ name: string, share: number, text: string, shade: string, mark?: number }} Line */
/** @type {(count: number) => Part & { draw(lines: Line[], told: string): void }} */
export function meters(count) {
  const made = Array.from({ length: count }, () => {
    const [bar, mark] = [element("i"), element("b")];
    const track = element("div", {}, bar, mark);
    return { name: element("span"), bar, mark, track, text: element("span") };
  });
  const parts = made.flatMap(({ name, track, text }) => [name, track, text]);
  const node = element("div", { class: "live-meters", role: "img" }, ...parts);
  return {
    node,
    draw(lines, told) {
      node.setAttribute("aria-label", told);
      made.forEach(({ name, bar, mark, text }, i) => {
        const line = lines[i];
        write(name, line.name);
        write(text, line.text);
        bar.style.background = line.shade;
        bar.style.transform = `scaleX(${line.share})`;
        mark.hidden = line.mark === undefined;
        mark.style.left = `${100 * (line.mark ?? 0)}%`;
      });
    },
  };
}
