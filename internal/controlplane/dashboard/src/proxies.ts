// Proxies: which have everything, which are behind since when, and which refused what.

import type { Proxies, Proxy, Stale } from "./api";
import { age, byId, el, mostRows, row, table } from "./dom";
import { incompleteText, warnings } from "./peers";
import { key, redraw } from "./redraw";
import { proxyLink } from "./route";

export function refused(p: Proxy): { type: string; name: string; message: string }[] {
  return p.types.flatMap((t) => (t.held ?? []).map((h) => ({ type: t.type, ...h })));
}

function state(p: Proxy, now: string): HTMLElement {
  const held = refused(p);
  if (p.unread) return el("span", "bad", "does not read its stream");
  if (held.length) {
    const e = el("span", "bad", `refused ${held.length}`);
    e.title = held.map((h) => `${h.type} ${h.name}: ${h.message}`).join("\n");
    return e;
  }
  if (!p.owed) return el("span", "good", "synced");
  const waits = p.types.map((t) => t.waiting).filter(Boolean).join(", ");
  return el("span", "warn", `behind ${p.behindSince ? `for ${age(now, p.behindSince)}` : `by ${p.owed}`}${waits ? `: ${waits}` : ""}`);
}

function proxyName(p: { name: string; namespace: string }): HTMLElement {
  const a = el("a", "", `${p.name}.${p.namespace}`);
  a.href = proxyLink(p);
  return a;
}

// gravity orders proxies: the worst come first.
export function gravity(p: Proxy): number {
  if (p.unread || refused(p).length) return 0;
  return p.owed ? 1 : 2;
}

let last: Proxies | undefined;

// showProxies draws the table of the proxies that match the filter.
export function showProxies(all = last): void {
  if (!all) return;
  last = all;
  const filter = (byId("filter") as HTMLInputElement).value.trim().toLowerCase();
  const list = all.proxies
    .filter((p) => `${p.name}.${p.namespace}`.toLowerCase().includes(filter))
    .sort((a, b) => gravity(a) - gravity(b));
  const several = Boolean(all.controlPlanes?.length);
  const rows = list.slice(0, mostRows).map((p) => key(`${p.name}.${p.namespace}`, row(
    proxyName(p), state(p, all.now), String(p.settled), `${p.protocol}, ${p.strategy}`, p.version ?? "–", age(all.now, p.connected),
    ...(several ? [p.controlPlane ?? "this one"] : []),
  )));
  const headings = ["proxy", "state", "settled", "protocol, routes", "Envoy", "connected for", ...(several ? ["control plane"] : [])];
  const parts: (HTMLElement | string)[] = [...warnings(incompleteText(all.controlPlanes)), table(headings, rows)];
  if (list.length === 0) parts.push(el("p", "dim", filter ? "no proxy has this name" : "no proxy is connected"));
  if (list.length > mostRows) parts.push(el("p", "dim", `and ${list.length - mostRows} more: filter by name`));
  redraw(byId("proxies"), ...parts);
}

// showStale draws the proxies that may call removed endpoints, or hides the section.
export function showStale(s: Stale): void {
  const away = s.disconnected ?? [];
  const rows = [
    ...s.holders.slice(0, mostRows).map((h) => key(`${h.name}.${h.namespace} ${h.address} ${h.cluster}`, row(proxyName(h), h.address, el("span", "bad", age(s.now, h.since)), h.cluster))),
    ...away.slice(0, mostRows).map((a) => row(`${a.name}.${a.namespace}`, `${a.endpoints} removed since`, el("span", "warn", age(s.now, a.since)), "disconnected")),
  ];
  const section = byId("stale-section");
  const unknown = incompleteText(s.controlPlanes);
  section.hidden = rows.length === 0 && unknown.length === 0;
  const parts = warnings(unknown);
  if (rows.length) parts.push(table(["proxy", "endpoint", "gone for", "cluster"], rows));
  const more = s.holders.length + away.length - rows.length;
  if (more) parts.push(el("p", "dim", `and ${more} more: 'moonsail stale' lists them`));
  redraw(byId("stale"), ...parts);
}
