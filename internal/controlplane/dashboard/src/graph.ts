// Draws a graph as SVG. Names are text nodes and attributes, never markup.

import { byteRate, count, ms, percent, rangeText } from "./dom";
import type { Layout, Placed, Size } from "./layout";
import { layout, neighbour, wayKey } from "./layout";
import type { Link, Node, Share, Sum } from "./traffic";
import { active, errorShare, mutualShare, quantile } from "./traffic";

const ns = "http://www.w3.org/2000/svg";
const size: Size = { width: 190, height: 44, gapX: 120, gapY: 16, perColumn: 24 };
const fewLinks = 24; // with more, only the chosen node's links have labels

function svg<K extends keyof SVGElementTagNameMap>(tag: K, attributes: Record<string, string | number> = {}, ...children: (SVGElement | string)[]): SVGElementTagNameMap[K] {
  const e = document.createElementNS(ns, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, String(value));
  e.append(...children);
  return e;
}

function short(text: string, most: number): string {
  const letters = [...text];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
}

// rate formats requests for each second.
export function rate(s: Sum, rated: boolean): string {
  if (!rated) return s.total ? `${count(s.total)} so far` : "no calls";
  if (!active(s)) return "idle";
  return s.requests > 0 ? `${count(s.requests)}/s` : "no new connections";
}

// health is the class of a node or link.
export function health(s: Sum): "" | "warn" | "bad" {
  const share = errorShare(s);
  return share >= 0.05 ? "bad" : share >= 0.001 ? "warn" : "";
}

// summary are the numbers in words.
export function summary(s: Sum, rated: boolean): string {
  const parts = s.bytes > 0 && s.requests === 0 ? [] : [rate(s, rated)];
  if (s.bytes > 0) parts.push(byteRate(s.bytes));
  if (s.requests > 0) {
    if (s.errors > 0) parts.push(`${percent(errorShare(s))} errors`);
    const p99 = quantile(s.durations, 0.99);
    if (p99 !== undefined) parts.push(`p99 ${ms(p99)}`);
  }
  return parts.join(", ");
}

const plainText = (mutual: Share): string => rangeText({ least: 1 - mutual.most, most: 1 - mutual.least });

function drawLink(l: Link, { places, ways }: Layout, label: boolean, chosen: string, rated: boolean): { line: SVGElement; text?: SVGElement } | undefined {
  const a = places.get(l.from);
  const b = places.get(l.to);
  if (!a || !b) return undefined;
  const y1 = a.y + size.height / 2;
  const y2 = b.y + size.height / 2;
  let path: string;
  let [x, y] = [0, 0];
  if (l.from === l.to) {
    const right = a.x + size.width;
    path = `M${right - 30} ${a.y}C${right - 30} ${a.y - 22} ${right + 26} ${a.y - 22} ${right} ${y1 - 6}`;
    [x, y] = [right + 4, a.y - 8];
  } else if (b.column > a.column) {
    let [left, height] = [a.x + size.width, y1];
    path = `M${left} ${height}`;
    for (const p of [...(ways.get(wayKey(l)) ?? []), { x: b.x, y: y2 }]) {
      const bend = Math.min(90, (p.x - left) / 2);
      path += `C${left + bend} ${height} ${p.x - bend} ${p.y} ${p.x} ${p.y}`;
      [x, y] = [(left + p.x) / 2, (height + p.y) / 2]; // the label is near the end
      if (p.x !== b.x) path += `H${(left = p.x + size.width)}`;
      height = p.y;
    }
  } else {
    // A call back, or within a layer: around the right or left side.
    const [x1, x2] = [a.x + size.width, b.x + size.width];
    const out = Math.max(x1, x2) + 46;
    path = `M${x1} ${y1}C${out} ${y1} ${out} ${y2} ${x2} ${y2}`;
    [x, y] = [out - 12, (y1 + y2) / 2];
  }
  const mine = chosen === l.from || chosen === l.to;
  const mutual = mutualShare(l.sum);
  const g = svg("g", { class: ["link", health(l.sum), mutual && mutual.most < 1 ? "plain" : "", chosen && !mine ? "faint" : "", active(l.sum) ? "" : "idle"].join(" ") });
  g.append(svg("path", { d: path, "marker-end": "url(#arrow)", "stroke-width": (1 + Math.min(3, Math.log10(1 + l.sum.requests))).toFixed(1) }));
  g.append(svg("title", {}, `${l.from} calls ${l.to} (${l.protocols.join(", ")}): ${summary(l.sum, rated)}`));
  if (mine || (label && (active(l.sum) || !rated))) {
    const text = summary(l.sum, rated) + (mutual && mutual.most < 1 ? `, ${plainText(mutual)} plain text` : "");
    return { line: g, text: svg("text", { x, y: y - 6, class: "label", "text-anchor": "middle" }, short(text, 34)) };
  }
  return { line: g };
}

export interface Drawing {
  nodes: Node[];
  links: Link[];
  chosen: string;
  namespace: string;
  rated: boolean;
  scale: number; // 0: as large as fits
  choose: (id: string) => void;
}

function drawNode(n: Node, p: Placed, d: Drawing): SVGGElement {
  const sum = n.in.total || active(n.in) ? n.in : n.out;
  const chosen = d.chosen === n.id;
  const text = summary(sum, d.rated);
  const g = svg("g", {
    class: ["node", health(sum), n.outside ? "outside" : "", chosen ? "chosen" : "", d.namespace && n.namespace !== d.namespace ? "other" : ""].join(" "),
    transform: `translate(${p.x} ${p.y})`, role: "button", tabindex: -1, "aria-pressed": String(chosen),
    "aria-label": `${n.name}${n.namespace ? ` in ${n.namespace}` : ""}${n.outside ? ", no workload of the mesh" : ""}: ${text}`,
  });
  g.dataset["id"] = n.id;
  g.append(
    svg("rect", { width: size.width, height: size.height, rx: 7 }),
    svg("text", { x: 10, y: 18, class: "name" }, short(n.name, d.namespace || !n.namespace ? 24 : 17)),
    svg("text", { x: 10, y: 35, class: "numbers" }, short(text, 30)),
    svg("title", {}, `${n.id}: ${text}`),
  );
  if (n.namespace && n.namespace !== d.namespace) {
    g.append(svg("text", { x: size.width - 8, y: 18, class: "namespace", "text-anchor": "end" }, short(n.namespace, 10)));
  }
  return g;
}

// draw replaces the content of a box. It keeps the focus and the scroll position.
export function draw(box: HTMLElement, d: Drawing): void {
  const ids = d.nodes.map((n) => n.id);
  const all = layout(ids, d.links, size);
  const { places, width, height } = all;
  const fit = Math.min(1, Math.max(0.3, (box.clientWidth - 2) / Math.max(1, width)));
  const scale = d.scale || Math.max(0.75, fit); // smaller is hard to read: it scrolls
  const root = svg("svg", {
    width: Math.ceil(width * scale), height: Math.ceil((height + 8) * scale), viewBox: `0 -8 ${width} ${height + 8}`,
    role: "group", "aria-label": `${d.nodes.length} nodes and ${d.links.length} connections; use the arrow keys`,
  });
  root.append(svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8z" }))));
  const few = d.links.length <= fewLinks;
  const drawnLinks = d.links.flatMap((l) => drawLink(l, all, few && !d.chosen, d.chosen, d.rated) ?? []);
  root.append(...drawnLinks.map((l) => l.line), ...drawnLinks.flatMap((l) => l.text ?? [])); // no line crosses a label
  const drawn = new Map<string, SVGGElement>();
  for (const n of d.nodes) {
    const p = places.get(n.id);
    if (!p) continue;
    const g = drawNode(n, p, d);
    drawn.set(n.id, g);
    root.append(g);
  }
  const idOf = (t: EventTarget | null): string | undefined => (t instanceof Element ? (t.closest(".node") as SVGElement | null)?.dataset["id"] : undefined);
  root.addEventListener("click", (e) => {
    const at = idOf(e.target);
    d.choose(at === d.chosen ? "" : (at ?? ""));
  });
  root.addEventListener("keydown", (e) => {
    const at = idOf(e.target);
    if (at === undefined) return;
    if (e.key === "Enter" || e.key === " ") d.choose(at === d.chosen ? "" : at);
    else if (e.key === "Escape") d.choose("");
    else {
      const to = neighbour(places, at, e.key);
      if (to === undefined) return;
      focus(drawn, to);
    }
    e.preventDefault();
  });
  const active = idOf(document.activeElement);
  const [left, top] = [box.scrollLeft, box.scrollTop];
  box.replaceChildren(root);
  [box.scrollLeft, box.scrollTop] = [left, top];
  const entry = drawn.get(active ?? "") ?? drawn.get(d.chosen) ?? drawn.get(ids[0] ?? "");
  entry?.setAttribute("tabindex", "0");
  if (active !== undefined) entry?.focus({ preventScroll: true });
}

// focus moves the one place in the order of the tab key.
function focus(drawn: Map<string, SVGGElement>, id: string): void {
  for (const g of drawn.values()) g.setAttribute("tabindex", "-1");
  const g = drawn.get(id);
  g?.setAttribute("tabindex", "0");
  g?.focus();
}
