// Pages of one proxy, one change and one object, and of a search.

import type { Change, Key, Peer, PeerStatus, Problem, Proxy } from "./api";
import { NotFound, ask, get, pageLink } from "./api";
import { stages } from "./changes";
import { a, age, byId, bytes, el, ms, objectName, row, table } from "./dom";
import { incompleteText, lackingText, warnings } from "./peers";
import { placeOf } from "./problems";
import { refused } from "./proxies";
import { key, redraw } from "./redraw";
import type { Route } from "./route";
import { link, objectLink, proxyLink } from "./route";

type Part = HTMLElement | string;

export interface Reason {
  cause: string;
  type?: string;
  since?: string;
  names?: string[];
  text?: string;
}

interface Position {
  name: string;
  namespace: string;
  position: string;
  superseded?: boolean;
  reasons?: Reason[];
  controlPlane?: string;
}

interface Counts {
  acked: number;
  superseded: number;
  behind: number;
  refused: number;
  disconnected: number;
  notConcerned: number;
}

const again = 2000;
const seldom = 5000;

// facts is a list of names and values.
function facts(list: [string, Part | undefined][]): HTMLElement {
  const out = el("dl", "facts");
  for (const [name, value] of list) if (value) out.append(key(`${name}:`, el("dt", "", name)), key(name, el("dd", "", value)));
  return out;
}

// show draws a page with a title.
export function show(title: string, ...parts: Part[]): void {
  redraw(byId("detail"), el("h2", "", title), ...parts);
}

const heading = (text: string): HTMLElement => key(text, el("h3", "", text));

// notThere shows that something does not exist, and reports other errors.
export function notThere(title: string, error: unknown): void {
  if (!(error instanceof NotFound)) throw error;
  show(title, el("p", "warn", error.message), el("p", "", a("Search for it", link("search", [], { q: title.split(" ").pop() ?? "" }))));
}

const causes: Record<string, string> = {
  unanswered: "was sent, and Envoy has not answered",
  unread: "the proxy does not read its responses",
  waits: "waits",
  unsent: "is about to be sent",
  refused: "Envoy refused it",
  disconnected: "the stream ended",
};

// reasonText says why a proxy does not have a change.
export function reasonText(r: Reason, now: string): string {
  const parts = [`${r.type ? `${r.type}: ` : ""}${causes[r.cause] ?? r.cause}`];
  if (r.text) parts.push(r.text);
  if (r.names?.length) parts.push(r.names.join(", "));
  const since = r.since ? `, for ${age(now, r.since)}` : "";
  return parts.join(": ") + since;
}

// positions lists proxies. none is shown if there are none.
function positions(list: Position[], leftOut: number | undefined, now: string, none: Part): Part[] {
  const classes: Record<string, string> = { refused: "bad", behind: "warn", disconnected: "warn", acked: "good" };
  const rows = list.map((p) => key(`${p.name}.${p.namespace}`, row(
    a(`${p.name}.${p.namespace}`, proxyLink(p)),
    el("span", classes[p.position] ?? "dim", p.superseded ? `${p.position}, in a newer form` : p.position),
    (p.reasons ?? []).map((r) => reasonText(r, now)).join("; "),
    p.controlPlane ?? "",
  )));
  const parts: Part[] = rows.length ? [table(["proxy", "state", "why", "control plane"], rows)] : [none];
  if (leftOut) parts.push(el("p", "dim", `and ${leftOut} more`));
  return parts;
}

function countsText(c: Counts): string {
  const parts = [`${c.acked} have it`];
  if (c.superseded) parts.push(`${c.superseded} of them in a newer form`);
  if (c.behind) parts.push(`${c.behind} behind`);
  if (c.refused) parts.push(`${c.refused} refused it`);
  if (c.disconnected) parts.push(`${c.disconnected} disconnected without it`);
  if (c.notConcerned) parts.push(`${c.notConcerned} not concerned`);
  return parts.join(", ");
}

// way draws the stages of a change as steps with their times.
function way(c: Change): HTMLElement {
  const list = el("ol", "way");
  list.append(el("li", "", el("b", "", "event"), el("span", "dim wide", new Date(c.observed).toLocaleString())));
  const total = Math.max(0.001, c.stages.totalMs ?? 0);
  for (const s of stages) {
    const took = c.stages[s.key];
    const part = el("i", `s-${s.name}`);
    part.style.width = `${took === undefined ? 0 : Math.max(1, Math.min(100, (100 * took) / total))}%`;
    list.append(el("li", took === undefined ? "dim" : "", el("b", "", s.name), el("span", "number", ms(took)), el("span", "dim", s.what), el("div", "bar", part)));
  }
  list.append(el("li", "", el("b", "", "total"), el("span", "number", ms(c.stages.totalMs))));
  return list;
}

function changeText(c: Change): string {
  const first = c.objects?.[0];
  const more = c.objectCount - 1;
  return first ? `${first.operation} ${objectName(first)}${more > 0 ? ` and ${more} more` : ""}` : "";
}

function objectList(c: Change): Part[] {
  const rows = (c.objects ?? []).map((o) => key(objectName(o), row(o.operation, a(objectName(o), objectLink(o)))));
  const parts: Part[] = [table(["", "object"], rows)];
  if (c.objectCount > rows.length) parts.push(el("p", "dim", `and ${c.objectCount - rows.length} more`));
  return parts;
}

// showChange shows one change: its way, and the proxies that do not have it.
export async function showChange(r: Route, left: AbortSignal): Promise<number> {
  const revision = r.path[0] ?? "";
  const title = `Change ${revision}`;
  const all = r.query.get("all") === "1";
  try {
    const { body: s, others } = await ask<{ now: string; change: Change; counts: Counts; proxies: Position[]; leftOut?: number }>(
      `/debug/changes/${encodeURIComponent(revision)}?max=500${all ? "&all" : ""}`, left);
    const c = s.change;
    const none = el("p", "good", others ? "No proxy of this control plane lacks it." : "No proxy lacks it.");
    show(title,
      facts([["what", changeText(c)], ["state", c.state], ["proxies", countsText(s.counts)], ["sent", `${c.resources} resources, ${bytes(c.bytes)} encoded once`]]),
      heading("Its way"), way(c),
      heading(all ? "Proxies" : "Proxies that do not have it"), ...positions(s.proxies, s.leftOut, s.now, none),
      ...(others ? [key("others", el("p", "dim", "Revisions and proxies are those of this control plane. The pages of the objects have the proxies of all."))] : []),
      key("all", el("p", "", a(all ? "only those without it" : "all proxies", link("change", [revision], { all: all ? "" : "1" })))),
      heading("Objects"), ...objectList(c));
    return c.state === "distributed" && s.counts.behind === 0 ? seldom : again;
  } catch (e) {
    notThere(title, e);
    return seldom;
  }
}

interface ProxyDetail {
  now: string;
  proxy: Proxy & { oldestPending?: number; peer: string; id: string };
}

// revision links a revision of a proxy to its change, which only the proxy's control plane has.
function revision(p: Proxy, n: number | undefined, text: string): Part {
  if (!n) return "–";
  return p.controlPlane ? text : a(text, link("change", [String(n)]));
}

// changeOf names a revision of a proxy.
const changeOf = (p: Proxy, n: number): Part => revision(p, n, `change ${n}${p.controlPlane ? ` of ${p.controlPlane}` : ""}`);

function lacks(p: ProxyDetail["proxy"], now: string): Part[] {
  const parts: Part[] = [];
  if (p.unread) parts.push(el("p", "bad", "It does not read its stream: its Envoy hangs, or the network does."));
  for (const h of refused(p)) parts.push(el("p", "bad", `${h.type} ${h.name}: Envoy refused it: ${h.message}`));
  if (p.owed) {
    const oldest = p.oldestPending ? changeOf(p, p.oldestPending) : "";
    parts.push(el("p", "warn", `It lacks ${p.owed} ${p.owed === 1 ? "revision" : "revisions"}${p.behindSince ? ` for ${age(now, p.behindSince)}` : ""}, since `, oldest));
  }
  for (const t of p.types) if (t.waiting) parts.push(el("p", "warn", `${t.type} waits: ${t.waiting}`));
  return parts.length ? parts : [el("p", "good", "Nothing: it has everything that concerns it.")];
}

// showProxy shows one proxy: its state, and what it lacks and why.
export async function showProxy(r: Route, left: AbortSignal): Promise<number> {
  const name = r.path[0] ?? "";
  const at = `/debug/proxies/${encodeURIComponent(name)}`;
  const title = `Proxy ${name}`;
  try {
    const d = await get<ProxyDetail>(at, left);
    const p = d.proxy;
    const types = p.types.map((t) => row(t.type, t.wildcard ? "all" : String(t.subscribed ?? 0), revision(p, t.sent, String(t.sent)), revision(p, t.acked, String(t.acked)), t.waiting ?? "", String(t.held?.length ?? 0)));
    show(title,
      facts([
        ["node", p.id], ["connected", `for ${age(d.now, p.connected)} from ${p.peer}${p.controlPlane ? `, to ${p.controlPlane}` : ""}`],
        ["protocol", `${p.protocol}, routes by ${p.strategy}`], ["Envoy", p.version], ["settled", changeOf(p, p.settled)],
      ]),
      heading("What it lacks"), ...lacks(p, d.now),
      heading("Resources"), table(["type", "subscribed", "sent", "acked", "waits for", "refused"], types),
      heading("More"), more(at, name, Boolean(p.controlPlane)));
    return again;
  } catch (e) {
    notThere(title, e);
    return seldom;
  }
}

// more links pages of the proxy's control plane.
function more(at: string, name: string, elsewhere: boolean): HTMLElement {
  const list = el("ul");
  if (elsewhere) list.append(el("li", "", "its configuration, from its control plane: ", el("code", "", `moonsail proxy-config all ${name}`)));
  else for (const [text, href] of [
    ["what it should have", `${at}/config/all`], ["what its Envoy uses", `${at}/envoy/in-use`], ["its certificate", `${at}/envoy/identity`],
    ["its worker threads", `${at}/envoy/workers`], ["its metrics", `${at}/envoy/stats`], ["its log", `${at}/envoy/logs`],
  ] as const) list.append(el("li", "", a(text, pageLink(href))));
  list.append(el("li", "", "why a call is decided as it is: ", el("code", "", `moonsail why ${name} URL`)));
  return list;
}

interface Explanation {
  now: string;
  exists: boolean;
  origin?: string;
  problems?: string[];
  error?: Problem; // the newest version is not in force
  partly?: boolean; // but its valid part is
  revision?: number;
  operation?: string;
  observed?: string;
  state: string;
  change?: Change;
  counts: Counts;
  proxies: Position[];
  leftOut?: number;
  controlPlanes?: PeerStatus[];
}

// showObject shows an object's last change.
export async function showObject(r: Route, left: AbortSignal): Promise<number> {
  const title = r.path.join("/");
  const path = r.path.map(encodeURIComponent).join("/");
  try {
    const e = await get<Explanation>(`/debug/explain/${path}?max=500`, left);
    const lacking = (e.controlPlanes ?? []).flatMap((p) => lackingText(p) ?? []);
    const none = lacking.length ? el("p", "dim", "No proxy of the other control planes lacks it.") : el("p", "good", "No proxy lacks it.");
    show(title,
      facts([
        ["from", e.origin], ["state", e.exists ? e.state : `deleted; ${e.state}`],
        ["last change", e.revision ? a(`change ${e.revision}`, link("change", [String(e.revision)])) : undefined],
        ["proxies", countsText(e.counts)], ["content", a("as the control plane has it", pageLink(`/debug/store/${path}`))],
      ]),
      ...(e.error ? [el("p", "bad", `${e.partly ? "A part of its" : "Its"} newest version is refused${placeOf(e.error) && `, at ${placeOf(e.error)}`}.`)] : []),
      ...(e.problems ?? []).map((p) => el("p", "warn", p)),
      ...(e.change ? [heading("The way of its last change"), way(e.change)] : []),
      heading("Proxies that do not have it"), ...warnings(lacking), ...positions(e.proxies, e.leftOut, e.now, none));
    return again;
  } catch (e) {
    notThere(title, e);
    return seldom;
  }
}

interface Found {
  now: string;
  proxies: Proxy[];
  objects: Key[];
  changes: Change[];
  controlPlanes?: Peer[];
  leftOut?: boolean;
}

function section(title: string, rows: HTMLTableRowElement[], headings: string[]): Part[] {
  return rows.length ? [heading(title), table(headings, rows)] : [];
}

// showSearch shows what a search finds.
export async function showSearch(r: Route, left: AbortSignal): Promise<number> {
  const q = r.query.get("q") ?? "";
  const title = `Search for ${q}`;
  if (!q.trim()) {
    show("Search", el("p", "dim", "Type words of a name: of a proxy, a service, another object, or a revision."));
    return seldom;
  }
  const f = await get<Found>(`/debug/search?q=${encodeURIComponent(q)}`, left);
  const services = f.objects.filter((o) => o.kind === "Service");
  const others = f.objects.filter((o) => o.kind !== "Service");
  const graph = (o: Key): Part => a("in the mesh", link("mesh", [], { node: `${o.namespace ?? ""}/${o.name}`, only: "1" }));
  const parts = [
    ...section("Services", services.map((o) => row(a(objectName(o), objectLink(o)), graph(o))), ["service", ""]),
    ...section("Proxies", f.proxies.map((p) => row(a(`${p.name}.${p.namespace}`, proxyLink(p)), p.owed ? el("span", "warn", "behind") : "synced")), ["proxy", "state"]),
    ...section("Objects", others.map((o) => row(a(objectName(o), objectLink(o)))), ["object"]),
    ...section("Changes", f.changes.map((c) => row(a(String(c.revision), link("change", [String(c.revision)])), new Date(c.observed).toLocaleTimeString(), changeText(c), c.state)), ["revision", "time", "what", "state"]),
  ];
  if (f.leftOut) parts.push(el("p", "dim", "There is more: add a word."));
  show(title, ...warnings(incompleteText(f.controlPlanes)), ...(parts.length ? parts : [el("p", "warn", "Nothing has these words in its name.")]));
  return 60_000;
}
