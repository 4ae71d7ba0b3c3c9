// Elements of the page, and of a drawing in it.

// Whether less motion is wanted.
export const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// Text goes in as text: nothing from a figure's state is read as HTML.
/** @type {Make} */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// Nodes of a drawing, in its own units.
/** @type {(tag: string, attributes?: Record<string, any>, ...children: Child[]) => SVGElement} */
export function drawing(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Changes the text in place: a new text node would have the browser match `:has()` rules again.
/** @type {(node: Element, text: string) => void} */
export function write(node, text) {
  const shown = /** @type {Text | null} */ (node.firstChild);
  if (!shown) node.append(text);
  else if (shown.data !== text) shown.data = text;
}

// The symbols of formulas: √d_k, W_O, QKᵀ, a matrix or a size that ends a label or equals something,
// and the sums of tiles, whose letters would read as a 1 and as an article.
const SYMBOLS = /(√\w+|\b[A-Za-z]_[A-Za-z]\w*|\bX(?= W_)|\bQKᵀ|\bAV\b| [QKVWhnml]$|^[ml]$|\b[hn](?= = )|\b[ml](?=[ ,)])|\ba(?= \/| as |, entries)|\bs(?= − m|, more))/;

// Text whose symbols are set as in a formula, and read out by their letters.
/** @type {(text: string) => Child[]} */
export function typeset(text) {
  return text.split(SYMBOLS).flatMap((part, i) => {
    if (i % 2 === 0) return part ? [part] : [];
    return part.startsWith(" ") ? [" ", symbol(part.trim())] : [symbol(part)];
  });
}

function symbol(text) {
  const letter = (x) => (/^([A-Za-z]|AV|QK|kv)$/.test(x) ? element("var", {}, x) : x);
  const [base, below] = text.replace("√", "").split("_");
  const name = base.replace("ᵀ", "");
  const parts = [letter(name)];
  if (name !== base) parts.push(element("sup", {}, "T"));
  if (below) parts.push(element("sub", {}, letter(below)));
  const root = text.startsWith("√");
  const told = [root && "root of", ...name, name !== base && "transposed", below];
  return element(
    "span",
    { class: "live-symbol", role: "math", "aria-label": told.filter(Boolean).join(" ") },
    ...(root ? ["√", element("span", {}, ...parts)] : parts),
  );
}

// The same as one thing, where each part would be set apart.
/** @type {(text: string) => Child} */
export function phrase(text) {
  const parts = typeset(text);
  return parts.length > 1 ? element("span", {}, ...parts) : (parts[0] ?? "");
}

const set = new WeakMap();

// Changes a text that may have symbols, and says whether it was another one.
/** @type {(node: Element, text: string) => boolean} */
export function tell(node, text) {
  if (set.get(node) === text) return false;
  set.set(node, text);
  if (SYMBOLS.test(text) || node.children.length) node.replaceChildren(...typeset(text));
  else write(node, text);
  return true;
}

/** @type {(...nodes: Child[]) => HTMLElement} */
export function row(...nodes) {
  return element("div", { class: "live-row" }, ...nodes);
}

// Keeps the room of so many lines: in a wide window, on a phone, and on a narrow one.
/** @type {(node: HTMLElement, wide: number, phone?: number, narrow?: number) => HTMLElement} */
export function keepLines(node, wide, phone = wide, narrow = phone) {
  node.classList.add("live-lines");
  for (const [name, count] of Object.entries({ wide, phone, narrow })) node.style.setProperty(`--${name}`, String(count));
  return node;
}

// A sentence about what is shown, with the room of so many lines; the figure reads it out.
/** @type {(lines?: [wide: number, phone?: number, narrow?: number], kind?: string) =>
 *   Part & { say: (text: string) => void }} */
export function spoken([wide, phone, narrow] = [1], kind = "live-spoken") {
  const node = keepLines(element("p", { class: kind }), wide, phone, narrow);
  return {
    node,
    say(text) {
      if (tell(node, text)) node.dispatchEvent(new Event("said", { bubbles: true }));
    },
  };
}

// Something that has happened, for the figure to read out before its sentences.
/** @type {(node: Element, text: string) => void} */
export const report = (node, text) => {
  node.dispatchEvent(new CustomEvent("news", { bubbles: true, detail: text }));
};

// Where there is room, a fold is open.
export const roomy = () => !matchMedia("(max-width: 599px)").matches;

/** @type {(title: string, open: boolean, ...nodes: Child[]) => HTMLDetailsElement} */
export function fold(title, open, ...nodes) {
  const made = element("details", { class: "live-fold" }, element("summary", {}, ...typeset(title)), ...nodes);
  made.open = open;
  return made;
}

// What scrolls by itself takes the Tab key, as long as there is more of it than is seen.
/** @type {(node: HTMLElement) => void} */
export function byKeyboard(node) {
  new ResizeObserver(() => {
    node.tabIndex = node.scrollWidth > node.clientWidth ? 0 : -1;
  }).observe(node);
}

/** @type {() => string} */
export function unique() {
  return `live-${Math.random().toString(36).slice(2)}`;
}
