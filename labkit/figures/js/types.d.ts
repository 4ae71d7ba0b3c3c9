// What the live figures' modules speak of. Only the type check of `make lint` reads this.

type Matrix = number[][];

// A trained layer's numbers, row after row, and what goes through them: a row for each position.
interface Tensor {
  shape: number[];
  numbers: Float64Array<ArrayBuffer>;
}
type Rows = Float64Array<ArrayBuffer>[];

// What the rows or the columns of a quantity stand for: a word, to be numbered, or their names.
type Axis = string | string[];

// What a figure's values() in Python computes, by name.
type Quantities = Record<string, number | number[] | Matrix>;

// A colour of the figures: --live-NAME in the style sheet.
type Colour = "blue" | "orange" | "green" | "pink" | "weight";

// A figure's traits, which Python has checked: the widget in Jupyter, stored ones in the page.
interface Model {
  get(trait: string): any;
  set(trait: string, value: unknown): void;
  on(event: string, listener: (...heard: any[]) => void): void;
  off(event: string, listener: (...heard: any[]) => void): void;
  // Asks Python, or the page, which answers with an event "msg:custom".
  send(message: { ask: string; of?: string }): void;
  save_changes(): void;
}

// What Jupyter and the page hand to a figure's render, which returns a function that ends it.
interface Given {
  model: Model;
  el: HTMLElement;
}
type Render = (given: Given) => () => void;

type View = import("./view.js").View;
type Child = Node | string;
type Tags = HTMLElementTagNameMap;
type Make = <Tag extends keyof Tags>(
  tag: Tag,
  attributes?: Record<string, any>,
  ...children: Child[]
) => Tags[Tag];

// The parts of a figure: `node` is what view.add takes.
interface Part {
  node: HTMLElement;
}

// A control that sets a trait.
type Control = (view: View, trait: string, given: { label: string; options?: any[] }) => HTMLElement;

// A line below a control, and what fills it; an empty fault takes the last one back.
interface Complaint {
  line: HTMLElement;
  tell(control: HTMLElement, fault: string): void;
}

// A list of texts of which one is chosen by its place; `follow` changes the texts.
type ByPlace = (
  view: View,
  trait: string,
  given: { label: string; texts(): string[]; follow?: string[]; choose(i: number): void },
) => HTMLElement;

interface Cells<Cell> extends Part {
  cells: Cell[][];
}
type Editable = (
  view: View,
  trait: string,
  given: { label: string; axes: Axis[] },
) => Cells<HTMLInputElement>;

type Grid = (
  label: string,
  rows: string[],
  columns: string[],
  cell: (i: number, j: number) => Element,
  axes?: Axis[],
) => HTMLTableElement;

// The names over and beside the cells of a table.
interface Heads {
  label: string;
  rows: string[];
  columns: string[];
}
type ButtonGrid = (
  given: Heads & { press(i: number, j: number, event: MouseEvent): void; axes?: Axis[] },
) => Part & { buttons: HTMLButtonElement[][] };

// What stands below a computed number; `told` is read out with it.
interface Note {
  text: string;
  told: string;
  differs: boolean;
}
interface Computed extends Cells<HTMLButtonElement> {
  draw(values: Matrix, notes?: Note[][]): void;
}
type MakeComputed = (given: {
  label: string;
  quantity: string;
  size: [number, number];
  axes: Axis[];
  choose(i: number, j: number): void;
}) => Computed;

interface Bars extends Part {
  draw(
    values: number[],
    words: { title: string; told: string; most: number; names: string[]; texts?: string[] },
  ): void;
}

// A cell's text, what it says besides to who listens, and its CSS background, for a row and a column.
type OfCell = (i: number, j: number) => string;
interface Coloured extends Part {
  draw(table: Heads & { axes?: Axis[]; text: OfCell; told?: OfCell; fill?: OfCell }): void;
}

// `select` takes "query" or "key" and its place, `point` the cell under the mouse.
interface WeightMap {
  node: SVGElement;
  draw(weights: ArrayLike<number>[], query: number, key: number): void;
}
type MakeWeightMap = (
  tokens: string[],
  given: {
    side: number;
    room: number;
    select(trait: string, place: number): void;
    point?(query: number, key: number): void;
  },
) => WeightMap;
