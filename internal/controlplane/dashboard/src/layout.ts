// A layered layout: callers are left of what they call. Nothing here needs a browser.

export interface Size {
  width: number; // of a node
  height: number;
  gapX: number;
  gapY: number;
  perColumn: number; // nodes in a column; a layer with more takes several
}

export interface Placed {
  x: number;
  y: number;
  column: number;
  row: number;
}

interface Pair {
  from: string;
  to: string;
}

// layers returns the length of the longest path to each node. Paths begin at nodes without callers. A link that closes a cycle
// does not count.
export function layers(ids: string[], links: Pair[]): Map<string, number> {
  const calls = new Map<string, string[]>(ids.map((i) => [i, []]));
  const called = new Set<string>();
  for (const l of links) {
    if (l.from === l.to) continue;
    calls.get(l.from)?.push(l.to);
    called.add(l.to);
  }
  const layer = new Map<string, number>();
  const open = new Set<string>(); // on the way to the present node
  const done: string[] = []; // in reverse topological order
  const forward: Pair[] = [];
  const seen = new Set<string>();
  const starts = [...ids.filter((i) => !called.has(i)), ...ids];
  for (const start of starts) {
    if (seen.has(start)) continue;
    const way: { id: string; next: number }[] = [{ id: start, next: 0 }]; // a stack: chains may be long
    seen.add(start);
    open.add(start);
    while (way.length) {
      const top = way[way.length - 1] as { id: string; next: number };
      const to = calls.get(top.id)?.[top.next++];
      if (to === undefined) {
        open.delete(top.id);
        done.push(top.id);
        way.pop();
      } else if (!open.has(to)) {
        forward.push({ from: top.id, to });
        if (!seen.has(to)) {
          seen.add(to);
          open.add(to);
          way.push({ id: to, next: 0 });
        }
      }
    }
  }
  const into = new Map<string, string[]>();
  for (const f of forward) into.set(f.to, [...(into.get(f.to) ?? []), f.from]);
  for (const i of done.reverse()) layer.set(i, Math.max(0, ...(into.get(i) ?? []).map((p) => (layer.get(p) ?? 0) + 1)));
  return layer;
}

const sweeps = 6;
const mostBends = 80; // with more, long links pass behind nodes
const bendHeight = 10;

export interface Layout {
  places: Map<string, Placed>;
  ways: Map<string, Point[]>; // by wayKey: where links pass the layers between their ends
  width: number;
  height: number;
}

export interface Point {
  x: number;
  y: number;
}

export const wayKey = (l: Pair): string => JSON.stringify([l.from, l.to]);

// bends are invisible nodes in the layers that long links cross.
function bends(layer: Map<string, number>, links: Pair[], perColumn: number): Map<string, string[]> {
  const out = new Map<string, string[]>();
  const filled = new Map<number, number>();
  for (const n of layer.values()) filled.set(n, (filled.get(n) ?? 0) + 1);
  if (Math.max(0, ...filled.values()) > perColumn) return out;
  let all = 0;
  for (const l of links) {
    const [from, to] = [layer.get(l.from) ?? 0, layer.get(l.to) ?? 0];
    all += Math.max(0, to - from - 1);
    if (to - from > 1) out.set(wayKey(l), Array.from({ length: to - from - 1 }, (_, i) => `${wayKey(l)}${from + 1 + i}`));
  }
  return all > mostBends ? new Map<string, string[]>() : out;
}

// layout places nodes. Within a layer, they are near what they call and what calls them.
export function layout(ids: string[], links: Pair[], s: Size): Layout {
  const layer = layers(ids, links);
  const bent = bends(layer, links, s.perColumn);
  const columns: string[][] = [];
  for (const i of ids) (columns[layer.get(i) ?? 0] ??= []).push(i);
  const near = new Map<string, string[]>(ids.map((i) => [i, []]));
  for (const l of links) {
    const chain = [l.from, ...(bent.get(wayKey(l)) ?? []), l.to];
    chain.slice(1, -1).forEach((b, n) => {
      layer.set(b, (layer.get(l.from) ?? 0) + 1 + n);
      near.set(b, []);
      columns[layer.get(b) ?? 0]?.push(b);
    });
    chain.slice(1).forEach((to, n) => {
      near.get(chain[n] ?? "")?.push(to);
      near.get(to)?.push(chain[n] ?? "");
    });
  }
  order(columns, near, layer);
  return place(columns, ids, bent, s);
}

// order sorts the nodes of each layer by the mean height of their neighbours.
function order(columns: string[][], near: Map<string, string[]>, layer: Map<string, number>): void {
  const at = new Map<string, number>(); // the relative height of a node, from 0 to 1
  const number = (c: string[]): void => c.forEach((i, n) => at.set(i, (n + 0.5) / c.length));
  columns.forEach(number);
  for (let sweep = 0; sweep < sweeps; sweep++) {
    for (const c of sweep % 2 ? [...columns].reverse() : columns) {
      const mean = new Map(c.map((i) => {
        const others = (near.get(i) ?? []).filter((n) => layer.get(n) !== layer.get(i));
        return [i, others.length ? others.reduce((sum, n) => sum + (at.get(n) ?? 0), 0) / others.length : (at.get(i) ?? 0)];
      }));
      c.sort((a, b) => (mean.get(a) ?? 0) - (mean.get(b) ?? 0));
      number(c);
    }
  }
}

function place(columns: string[][], ids: string[], bent: Map<string, string[]>, s: Size): Layout {
  const real = new Set(ids);
  const height = (i: string): number => (real.has(i) ? s.height : bendHeight) + s.gapY;
  const split = columns.flatMap((c) => (c.length > s.perColumn && bent.size === 0 ? chunks(c, s.perColumn) : [c]));
  const heights = split.map((c) => c.reduce((sum, i) => sum + height(i), 0));
  const tallest = Math.max(0, ...heights);
  const places = new Map<string, Placed>();
  const points = new Map<string, Point>();
  split.forEach((c, column) => {
    const x = s.gapX / 2 + column * (s.width + s.gapX);
    let y = s.gapY / 2 + (tallest - (heights[column] ?? 0)) / 2;
    let row = 0;
    for (const i of c) {
      if (real.has(i)) places.set(i, { x, y, column, row: row++ });
      else points.set(i, { x, y: y + bendHeight / 2 });
      y += height(i);
    }
  });
  const ways = new Map([...bent].map(([key, list]) => [key, list.flatMap((b) => points.get(b) ?? [])]));
  return { places, ways, width: split.length * (s.width + s.gapX), height: tallest };
}

// chunks splits a list into parts of about the same size.
function chunks(list: string[], most: number): string[][] {
  const n = Math.ceil(list.length / most);
  const size = Math.ceil(list.length / Math.max(1, n));
  return Array.from({ length: n }, (_, i) => list.slice(i * size, (i + 1) * size));
}

// neighbour is the node to which an arrow key leads; undefined: none is there.
export function neighbour(places: Map<string, Placed>, from: string, key: string): string | undefined {
  const here = places.get(from);
  if (!here) return undefined;
  const [dx, dy] = ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] } as Record<string, [number, number]>)[key] ?? [0, 0];
  let best: string | undefined;
  let least = Infinity;
  for (const [i, p] of places) {
    const along = dx ? (p.column - here.column) * dx : (p.row - here.row) * dy;
    if (along <= 0 || (dy && p.column !== here.column)) continue;
    const cost = along * 1e6 + Math.abs(p.y - here.y) + Math.abs(p.x - here.x) / 1e3;
    if (cost < least) [best, least] = [i, cost];
  }
  return best;
}
