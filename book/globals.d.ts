// What the scripts of the page find there, and what they leave for each other.

// What the search loads when it is opened.
declare class MiniSearch {
  constructor(options: object);
  addAllAsync(entries: object[], options: object): Promise<void>;
  search(typed: string, options: object): { id: number, score: number, match: object }[];
}
declare class Stemmer {
  stemWord(word: string): string;
}

declare const Plotly: {
  react(drawing: Element, figure: object): Promise<void>;
  relayout(drawing: Element, layout: object): Promise<void>;
  animate(drawing: Element, frames: string[], options: object): Promise<void>;
};

// Make an element, for the scripts that add some to a page.
declare var make: (
  tag: string, attributes?: object, ...children: (Node | string)[]
) => HTMLElement;

// Tell who listens what has been done.
declare var announce: (text: string) => void;

// Do something to an element as soon as it is laid out.
declare var whenLaidOut: (element: Element, act: () => void) => void;

// From Bootstrap, which the theme brings.
declare const bootstrap: {
  Popover: { getOrCreateInstance(element: Element, options: object): { show(): void; hide(): void } };
  Tooltip: { getInstance(element: Element): { update(): void } | null };
};

interface Window {
  bookSearch: { open(found: any): Promise<void> };
  labkitLive: {
    figures: Record<string, {
      render(given: Given): () => void;
      follow?(figure: HTMLElement, model: Model): void;
    }>;
    parcels: Record<string, string>;
    fetchParcel(name: string, done: (bytes: DataView | null) => void): void;
    mount(figure: HTMLElement): void;
  };
}
