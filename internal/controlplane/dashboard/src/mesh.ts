// The page of the mesh: its services or workloads as a graph, with a table of the same calls.

import { get } from "./api";
import { age, byId, byteRate, el, ms, percent, rangeText, row, table } from "./dom";
import { draw, health, rate } from "./graph";
import { key, redraw } from "./redraw";
import type { Route } from "./route";
import { link } from "./route";
import type { Fold, Graph, Link, Node, Share } from "./traffic";
import { around, errorShare, fold, mutualShare, namespaces, quantile } from "./traffic";

const mostRows = 100;

let last: Graph | undefined;
let shown: Route; // may change while the next answer is on its way
let scale = 0;

interface Choice {
  namespace: string;
  by: Fold;
  node: string;
  only: boolean;
}

function choice(r: Route): Choice {
  return {
    namespace: r.query.get("namespace") ?? "",
    by: r.query.get("by") === "workload" ? "workload" : "service",
    node: r.query.get("node") ?? "",
    only: r.query.get("only") === "1",
  };
}

const go = (c: Choice): void => {
  location.hash = link("mesh", [], { namespace: c.namespace, by: c.by === "workload" ? c.by : "", node: c.node, only: c.only && c.node ? "1" : "" });
};

// showMesh requests the graph and draws it. It returns the time until the next request.
export async function showMesh(route: Route, left: AbortSignal): Promise<number> {
  shown = route;
  last = await get<Graph>("/debug/traffic", left);
  drawMesh(shown);
  return last.rated ? 1000 * last.everySeconds : 1500;
}

// drawMesh draws the last answer.
export function drawMesh(route: Route): void {
  shown = route;
  const g = last;
  if (!g) return;
  const c = choice(route);
  const whole = fold(g.edges, c.by, c.namespace);
  if (c.node && !whole.nodes.some((n) => n.id === c.node)) c.node = "";
  const part = c.only && c.node ? around(whole, c.node) : whole;
  controls(c, namespaces(g.edges));
  redraw(byId("mesh-state"), ...state(g, part.nodes.length, part.links.length));
  const box = byId("mesh-graph");
  if (part.nodes.length === 0) box.replaceChildren(el("p", "dim", nothingYet(g)));
  else draw(box, { ...part, chosen: c.node, namespace: c.namespace, rated: g.rated, scale, choose: (node) => go({ ...c, node }) });
  details(c, whole, g.rated);
}

function nothingYet(g: Graph): string {
  if (!g.at) return "The first measurement is on its way.";
  if (g.source === "prometheus") return "Prometheus has no calls of the last two minutes.";
  return g.proxies.connected === 0 ? "No proxy is connected." : "The proxies have not counted any calls yet.";
}

function state(g: Graph, nodes: number, links: number): (HTMLElement | string)[] {
  const parts = [`${nodes} nodes, ${links} connections`];
  if (g.source === "prometheus") parts.push("from Prometheus, over 2 minutes");
  else parts.push(`from the metrics of ${g.proxies.measured} of ${g.proxies.connected} proxies`);
  if (g.at) parts.push(`measured ${age(g.now, g.at)} ago`);
  if (!g.rated) parts.push("rates follow in some seconds");
  if (g.leftOut) parts.push(`${g.leftOut} connections left out`);
  const out: (HTMLElement | string)[] = [el("span", "dim", parts.join("; "))];
  if (g.failures?.length) out.push(el("span", "warn", ` ${g.failures[0] ?? ""}${g.failures.length > 1 ? ` (and ${g.failures.length - 1} more)` : ""}`));
  return out;
}

function controls(c: Choice, all: string[]): void {
  const select = byId("mesh-namespace") as HTMLSelectElement;
  if (c.namespace && !all.includes(c.namespace)) all = [...all, c.namespace];
  const options = ["", ...all];
  if (options.join("\n") !== [...select.options].map((o) => o.value).join("\n")) {
    select.replaceChildren(...options.map((n) => {
      const o = el("option", "", n || "all namespaces");
      o.value = n;
      return o;
    }));
  }
  select.value = c.namespace;
  select.onchange = () => go({ ...c, namespace: select.value });
  const by = byId("mesh-by") as HTMLSelectElement;
  by.value = c.by;
  by.onchange = () => go({ ...c, by: by.value as Fold, node: "" });
  const only = byId("mesh-only") as HTMLInputElement;
  only.checked = c.only;
  only.disabled = !c.node;
  only.onchange = () => go({ ...c, only: only.checked });
}

function mutualText(share: Share | undefined): HTMLElement {
  if (!share) return el("span", "dim", "unknown");
  return el("span", share.least === 1 ? "good" : share.most < 1 ? "warn" : "dim", rangeText(share));
}

function callRow(l: Link, c: Choice, rated: boolean): HTMLTableRowElement {
  const to = (id: string): HTMLElement => {
    const a = el("a", "", id.replace(/^\//, ""));
    a.href = link("mesh", [], { namespace: c.namespace, by: c.by === "workload" ? c.by : "", node: id, only: c.only ? "1" : "" });
    return a;
  };
  const s = l.sum;
  const duration = (q: number): string => ms(quantile(s.durations, q));
  const cells = row(
    to(l.from), to(l.to), l.protocols.join(", "), rate(s, rated), el("span", health(s), s.requests > 0 ? percent(errorShare(s)) : "–"),
    duration(0.5), duration(0.99), s.bytes > 0 ? byteRate(s.bytes) : "", mutualText(mutualShare(s)),
  );
  return key(`${l.from} ${l.to}`, cells);
}

// details show the calls of the chosen node, or all.
function details(c: Choice, g: { nodes: Node[]; links: Link[] }, rated: boolean): void {
  const links = c.node ? around(g, c.node).links : g.links;
  const sorted = [...links].sort((a, b) => errorShare(b.sum) - errorShare(a.sum) || b.sum.requests - a.sum.requests || b.sum.bytes - a.sum.bytes);
  redraw(byId("mesh-heading"), c.node ? `Calls of ${c.node.replace(/^\//, "")}` : "Calls");
  const parts: (HTMLElement | string)[] = [];
  if (c.node) {
    const [namespace = "", name = ""] = [c.node.slice(0, c.node.indexOf("/")), c.node.slice(c.node.indexOf("/") + 1)];
    const find = el("a", "", "its proxies, objects and changes");
    find.href = link("search", [], { q: `${name} ${namespace}`.trim() });
    parts.push(el("p", "", find));
  }
  parts.push(table(["from", "to", "protocol", "requests", "errors", "p50", "p99", "bytes", "mutual TLS"], sorted.slice(0, mostRows).map((l) => callRow(l, c, rated))));
  if (sorted.length > mostRows) parts.push(el("p", "dim", `and ${sorted.length - mostRows} more: choose a node or a namespace`));
  redraw(byId("mesh-calls"), ...parts);
}

// zoom changes the scale of the graph; 0: as large as fits.
export function zoom(route: Route, factor: number): void {
  const box = byId("mesh-graph");
  const root = box.querySelector("svg");
  const now = root ? root.clientWidth / (root.viewBox.baseVal.width || 1) : 1;
  scale = factor ? Math.min(2, Math.max(0.2, now * factor)) : 0;
  drawMesh(route);
}
