// What the scripts of the page find there, and what they leave for each other.

// From Sphinx. Its search is on one page only.
declare const DOCUMENTATION_OPTIONS: { SHOW_SEARCH_SUMMARY: boolean };
type Result = [
  page: string, title: string, anchor: string, about: string | null, score: number, file: string,
];
declare const Scorer: { score(result: Result): number } | undefined;

declare const Plotly: {
  react(drawing: Element, figure: object): Promise<void>;
  animate(drawing: Element, frames: string[], options: object): Promise<void>;
};

// From Bootstrap, which the theme brings.
declare const bootstrap: {
  Popover: { getOrCreateInstance(element: Element, options: object): { show(): void; hide(): void } };
};

interface Window {
  labkitLive: {
    shared: any;
    figures: Record<string, { render(given: Given): () => void }>;
    parcels: Record<string, string>;
    fetchParcel(name: string, done: (bytes: DataView | null) => void): void;
    mount(figure: HTMLElement): void;
  };
}
