// The JSON of the service and the parts of the page that several modules share, for the type checks.

interface Health {
  name: string;
  rows: number;
  bits: number;
  images: boolean;
  pictures: boolean;
}

interface Item {
  key: string;
  code: string | null;
  picture: boolean;
  path?: string | null;
  folder?: string;
  metadata?: Record<string, unknown>;
  distance?: number;
  width?: number | null;
  height?: number | null;
  bytes?: number | null;
}

interface QueryOfAnswer { code: string; bits: number; key: string | null; values: number[] | null; features: string | null }

/** One page of a list; next is null at the end. */
interface ListPage<T> { items: T[]; next: string | number | null }

interface ResultPage extends ListPage<Item> { query?: QueryOfAnswer; rows?: number; seconds?: number }

interface SearchAnswer { query: QueryOfAnswer; results: Item[]; more: boolean; seconds: number }

interface DuplicateGroup { items: Item[]; keep: string }

interface GroupPage extends ListPage<DuplicateGroup> { total: number }

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

type Source<T> = (next: any, signal: AbortSignal) => Promise<T>;

interface View { element: HTMLElement; show(parameters: ViewParameters): void; hide(): void }

interface App { health: Health; refresh(): Promise<void>; setTitle(text: string): void }

type Attributes = Record<string, unknown>;
type Child = Node | string | null | undefined | Child[];

interface Point { x: number; y: number }
interface Rgb { r: number; g: number; b: number }

/** How the points of the map are coloured: a category per point, and what belongs to each category. */
interface Colouring { of: Uint8Array; names: string[]; colours: Rgb[]; labels: ([number, number] | null)[] }

interface Upload { url: string; name: string; values?: number[] | null; features?: string | null }

type ViewName = "search" | "duplicates" | "map" | "jobs";

/** A code that codes are compared with. */
interface Reference { code: string; name: string }

/** address(item) is where "search from here" leads; closed(index) is given what was shown last. */
interface Detail {
  items: Item[];
  index: number;
  bits: number;
  reference: Reference | null;
  address?: (item: Item) => string;
  closed?: ((index: number) => void) | null;
}

interface GridCallbacks {
  address(item: Item): string;
  page(answer: ResultPage, first: boolean): void;
  mark(item: Item | null): void;
  open(index: number): void;
  fail(error: Error): void;
}

interface PanZoomCallbacks {
  over(x: number, y: number): void;
  out(): void;
  press(x: number, y: number, touch: boolean): void;
  middle(): void;
  enter(): void;
}

/** What Back shows at once. */
interface KeptList { list: ListPage<Item>; answer: ResultPage; scroll: number; at: number }
