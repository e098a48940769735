// The JSON of the service and the parts of the page that several modules share, for the type checks.

interface Health {
  name: string;
  rows: number;
  bits: number;
  images: boolean;
  pictures: boolean;
  writable: boolean;
  local: boolean;
  words: boolean; // whether it searches by what a text means
}

interface Item {
  key: string;
  code: string | null;
  picture: boolean;
  missing?: "gone" | "offline" | null; // why its file is not there
  path?: string | null;
  folder?: string;
  metadata?: Record<string, unknown>;
  distance?: number;
  score?: number | null;
  width?: number | null;
  height?: number | null;
  bytes?: number | null;
}

interface QueryOfAnswer {
  code: string | null;
  bits: number;
  key: string | null;
  model_id?: string | null; // of the code
  values?: number[] | null;
  features?: string | null;
  text?: string | null;
  covered?: number | null;
}

/** One page of a list; next is null at the end. */
interface ListPage<T> { items: T[]; next: string | number | null }

/** A page of pictures; total is known where all are counted. */
interface ResultPage { items: Item[]; more: boolean; total?: number; query?: QueryOfAnswer; seconds?: number }

/** What the file of a picture says. */
interface PictureDetails {
  key: string;
  tags: string[];
  file: string | null;
  bytes: number | null;
  modified: string | null;
  width: number | null;
  height: number | null;
  taken: string | null;
  camera: string | null;
  lens: string | null;
  exposure: string | null;
  place: [number, number] | null;
}

interface MonthCount { month: string; rows: number }

interface FolderNode { name: string; label: string; rows: number; children: FolderNode[] }

interface SearchAnswer { query: QueryOfAnswer; results: Item[]; more: boolean; seconds: number }

interface DuplicateItem extends Item { kind: string; score: number; digest: string | null; file: string }

interface DuplicateGroup { items: DuplicateItem[]; keep: string }

/** The state of the search for duplicates, and a page of what it found. */
interface DuplicatesState {
  state: "none" | "running" | "ready" | "failed";
  message: string;
  done: number | null;
  finished: string | null;
  compared: number;
  skipped: number;
  outdated: boolean;
  undo: { journal: string; action: string; files: number; time: string } | null;
  writable: boolean;
  target: string | null;
  kinds: Record<string, number>;
  bytes: number;
  similar: number;
  total: number;
}

interface GroupPage extends ListPage<DuplicateGroup> { state: DuplicatesState }

interface ActionOutcome { journal: string | null; done: string[]; refused: { name: string; reason: string }[] }

/** What the dialog that compares two pictures needs; changed(what) says what its user wants. */
interface Comparison {
  group: DuplicateGroup;
  index: number;
  bits: number;
  writable: boolean;
  ticked: (item: DuplicateItem) => boolean;
  changed: (what: "tick" | "keep" | "dismiss", item: DuplicateItem) => void;
}

interface Facets {
  folders: { name: string; rows: number }[];
  metadata: Record<string, (string | number | boolean)[]>;
}

interface MapState { state: "ready" | "computing" | "empty"; points: number; done: number; colours: string[] }

interface Curve { name: string; x: number[]; y: (number | null)[] }

interface Job {
  id: string;
  kind: string;
  title: string;
  state: string;
  started: string;
  updated: string;
  done: number;
  total: number | null;
  unit: string;
  seconds_left: number | null;
  message: string;
  curves: Curve[];
}

interface RequestOptions {
  json?: object;
  form?: FormData;
  method?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** The parameters of a view, as they stand in the address. */
type ViewParameters = Record<string, string | undefined>;

type PageSource<T> = (next: any, signal: AbortSignal) => Promise<T>;

/** Pictures from an offset on. */
type Source = (offset: number, limit: number, signal: AbortSignal) => Promise<ResultPage>;

interface View { element: HTMLElement; show(parameters: ViewParameters): void; hide(): void }

interface App { health: Health; reload(): Promise<boolean>; refresh(): Promise<void>; filesChanged(): void; notesChanged(): void; setTitle(text: string): void }

type Attributes = Record<string, unknown>;
type Child = Node | string | null | undefined | Child[];

interface Point { x: number; y: number }

/** What a canvas shows of a layout: pixels from its origin to the corner, and pixels of a unit. */
interface Camera { left: number; top: number; scale: number }

/** A picture that is being drawn: the radius of its dots in pixels, and how many it holds. */
interface NextPicture extends Camera { radius: number; done: number }

interface Rgb { r: number; g: number; b: number }

/** How the points of the map are coloured: a category per point, and what belongs to each category. */
interface Colouring {
  of: Uint8Array;
  names: string[];
  short: string[]; // names on the map
  order: number[]; // the largest first
  counts: ArrayLike<number>; // points of each
  colours: Rgb[];
  labels: ([number, number] | null)[];
}

/** A label and where it belongs, in CSS pixels of the canvas. */
interface PlacedLabel { text: string; x: number; y: number; colour: string }

interface Upload { url: string; name: string; file: File; values?: number[] | null; features?: string | null }

type ViewName = "search" | "duplicates" | "map" | "jobs";

/** A code that codes are compared with. */
interface Reference { code: string; name: string }

/**
 * address(item) is where "search from here" leads; closed(index) is given what was shown last; of a list that is
 * fetched in parts, total is the number of all and at(index) fetches one.
 */
interface Detail {
  items: Item[];
  index: number;
  bits: number;
  reference: Reference | null;
  total?: number;
  at?: (index: number) => Promise<Item | null>;
  address?: (item: Item) => string;
  closed?: ((index: number) => void) | null;
}

interface GridCallbacks {
  address(item: Item): string;
  page(answer: ResultPage, first: boolean): void;
  mark(item: Item | null): void;
  selectAll(): void;
  open(index: number): void;
  selection(): void;
  fail(error: Error): void;
}

interface CardOptions { bits: number; address: string; total: number; selected: boolean }

interface KeptGrid { items: Item[]; total: number; counting?: boolean }

interface PanZoomCallbacks {
  over(x: number, y: number): void;
  out(): void;
  press(x: number, y: number, touch: boolean): void;
  middle(): void;
  enter(): void;
}

/** What Back shows at once. */
interface KeptList { list: KeptGrid; answer: ResultPage; scroll: number; at: number }

interface Window {
  asked?: Map<string, Promise<Response>>; // what first.js has requested
}
