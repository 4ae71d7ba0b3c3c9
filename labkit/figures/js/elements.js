// Elements of the page, and of a drawing in it.

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

/** @type {(...nodes: Child[]) => HTMLElement} */
export function row(...nodes) {
  return element("div", { class: "live-row" }, ...nodes);
}

// A sentence that is read out when it changes.
/** @type {() => Part & { say: (text: string) => void }} */
export function spoken() {
  const node = element("p", { class: "live-spoken", role: "status" });
  return { node, say: (text) => write(node, text) };
}

// Where there is room, a fold is open.
export const roomy = () => !matchMedia("(max-width: 599px)").matches;

/** @type {(title: string, open: boolean, ...nodes: Child[]) => HTMLDetailsElement} */
export function fold(title, open, ...nodes) {
  const made = element("details", { class: "live-fold" }, element("summary", {}, title), ...nodes);
  made.open = open;
  return made;
}

/** @type {() => string} */
export function unique() {
  return `live-${Math.random().toString(36).slice(2)}`;
}
