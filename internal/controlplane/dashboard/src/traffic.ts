// The calls of a mesh, folded into the nodes and links of a graph. Nothing here needs a browser.

export interface Duration {
  fromMs: number;
  toMs?: number; // absent: no upper bound
  rate: number;
}

export interface Numbers {
  requests: number;
  errors: number;
  bytes?: number;
  mutual?: number;
  mutualBytes?: number;
  total?: number;
  durations?: Duration[];
}

export interface End {
  namespace?: string;
  workload?: string;
  service?: string;
  version?: string;
}

export interface Edge {
  source: End;
  destination: End;
  target: { namespace?: string; name?: string };
  protocol: string;
  client?: Numbers;
  server?: Numbers;
}

export interface Graph {
  now: string;
  at?: string;
  source: "proxies" | "prometheus";
  everySeconds: number;
  rated: boolean;
  proxies: { connected: number; measured: number; failed: number };
  failures?: string[];
  edges: Edge[];
  leftOut?: number;
}

export type Fold = "service" | "workload";

export interface Node {
  id: string; // namespace/name
  namespace: string;
  name: string;
  outside: boolean; // no workload of the mesh
  in: Sum;
  out: Sum;
}

export interface Link {
  from: string;
  to: string;
  protocols: string[];
  sum: Sum;
}

// Sum adds up calls.
export interface Sum {
  requests: number;
  errors: number;
  bytes: number;
  total: number;
  byRequests: Secured;
  byBytes: Secured; // of TCP: connections that were opened before have no requests
  durations: Duration[];
}

// Secured counts requests or bytes by how they came.
interface Secured {
  mutual: number; // with mutual TLS, of the known ones
  known: number; // the server says how they came
  unknown: number; // no server counts them: it has no sidecar, or was not measured
}

const unsecured = (): Secured => ({ mutual: 0, known: 0, unknown: 0 });

export const nothing = (): Sum => ({ requests: 0, errors: 0, bytes: 0, total: 0, byRequests: unsecured(), byBytes: unsecured(), durations: [] });

function addDurations(to: Duration[], list: Duration[]): void {
  for (const d of list) {
    const i = to.findIndex((x) => x.fromMs >= d.fromMs);
    const same = to[i];
    if (i < 0) to.push({ ...d });
    else if (same && same.fromMs === d.fromMs) same.rate += d.rate;
    else to.splice(i, 0, { ...d });
  }
}

// The numbers of a client and its server may differ by so much because they were measured at different moments. Bytes are counted
// every 5 s.
const inaccuracy = { requests: 0.1, bytes: 0.5 };

// addSecured adds the requests or bytes of an edge. counted is how many the server has counted; undefined: no server counts them.
function addSecured(to: Secured, all: number, counted: number | undefined, mutual: number, inaccurate: number): void {
  to.mutual += mutual;
  to.known += counted ?? 0;
  const rest = all - (counted ?? 0);
  if (counted === undefined || rest > inaccurate * all) to.unknown += rest;
}

// add adds the numbers of an edge. Clients see every request, and servers know whether it was encrypted.
function add(sum: Sum, e: Edge): void {
  const n = e.client && (e.client.requests > 0 || e.client.bytes || e.client.total) ? e.client : (e.server ?? e.client);
  if (!n) return;
  sum.requests += n.requests;
  sum.errors += n.errors;
  sum.bytes += n.bytes ?? 0;
  sum.total += n.total ?? 0;
  addDurations(sum.durations, n.durations ?? []);
  addSecured(sum.byRequests, n.requests, e.server?.requests, e.server?.mutual ?? 0, inaccuracy.requests);
  addSecured(sum.byBytes, n.bytes ?? 0, e.server && (e.server.bytes ?? 0), e.server?.mutualBytes ?? 0, inaccuracy.bytes);
}

// quantile of durations in milliseconds, interpolated as Prometheus does.
export function quantile(list: Duration[], q: number): number | undefined {
  const total = list.reduce((n, d) => n + d.rate, 0);
  if (!(total > 0)) return undefined;
  let below = 0;
  for (const d of list) {
    if (below + d.rate >= q * total) {
      return d.toMs ? d.fromMs + ((d.toMs - d.fromMs) * (q * total - below)) / d.rate : d.fromMs;
    }
    below += d.rate;
  }
  return undefined;
}

// Share is a range, because servers may not count all requests.
export interface Share {
  least: number;
  most: number;
}

// mutualShare is the share of requests or bytes with mutual TLS, whichever is lower; undefined: no server counts them.
export function mutualShare(s: Sum): Share | undefined {
  const list = [s.byRequests, s.byBytes].filter((x) => x.known + x.unknown > 0);
  if (!list.some((x) => x.known > 0)) return undefined;
  const of = (part: (x: Secured) => number): number => Math.min(1, ...list.map((x) => part(x) / (x.known + x.unknown)));
  return { least: of((x) => x.mutual), most: of((x) => x.mutual + x.unknown) };
}

// active reports whether there are calls. Connections that were opened before have bytes only.
export const active = (s: Sum): boolean => s.requests > 0 || s.bytes > 0;

// errorShare is the share of failed requests.
export const errorShare = (s: Sum): number => (s.requests > 0 ? s.errors / s.requests : 0);

interface Place {
  namespace: string;
  name: string;
  outside: boolean;
}

const id = (p: Place): string => `${p.namespace}/${p.name}`;

// aliases are the services of canonical services, which differ in name if an application's label does.
function aliases(edges: Edge[]): Map<string, string> {
  const out = new Map<string, string>();
  for (const { destination: d, target: t } of edges) {
    if (!d.service || !t.name || d.namespace !== t.namespace) continue;
    const key = `${d.namespace}/${d.service}`;
    const old = out.get(key);
    if (old === undefined || t.name === d.service || (old !== d.service && t.name < old)) out.set(key, t.name);
  }
  return out;
}

function sourceOf(e: Edge, by: Fold, names: Map<string, string>): Place {
  const { namespace = "", workload, service } = e.source;
  const name = by === "workload" ? workload : (names.get(`${namespace}/${service}`) ?? service ?? workload);
  return { namespace, name: name ?? "unknown", outside: !name };
}

function destinationOf(e: Edge, by: Fold, names: Map<string, string>): Place {
  const { namespace = "", workload, service } = e.destination;
  const { target } = e;
  if (by === "workload" && workload) return { namespace, name: workload, outside: false };
  if (target.name) return { namespace: target.namespace ?? "", name: target.name, outside: !workload };
  const name = names.get(`${namespace}/${service}`) ?? service ?? workload;
  return { namespace, name: name ?? "unknown", outside: !name };
}

// fold makes a graph of services or workloads. A namespace leaves only its nodes and what they call, or what calls
// them.
export function fold(edges: Edge[], by: Fold, namespace = ""): { nodes: Node[]; links: Link[] } {
  const nodes = new Map<string, Node>();
  const links = new Map<string, Link>();
  const names = aliases(edges);
  const node = (p: Place): Node => {
    const key = id(p);
    let n = nodes.get(key);
    if (!n) nodes.set(key, (n = { id: key, namespace: p.namespace, name: p.name, outside: true, in: nothing(), out: nothing() }));
    n.outside &&= p.outside;
    return n;
  };
  for (const e of edges) {
    const from = sourceOf(e, by, names);
    const to = destinationOf(e, by, names);
    if (namespace && from.namespace !== namespace && to.namespace !== namespace) continue;
    const a = node(from);
    const b = node(to);
    const key = JSON.stringify([a.id, b.id]);
    let l = links.get(key);
    if (!l) links.set(key, (l = { from: a.id, to: b.id, protocols: [], sum: nothing() }));
    if (e.protocol && !l.protocols.includes(e.protocol)) l.protocols.push(e.protocol);
    add(l.sum, e);
    add(a.out, e);
    add(b.in, e);
  }
  const order = (x: string, y: string): number => (x < y ? -1 : x > y ? 1 : 0);
  return {
    nodes: [...nodes.values()].sort((x, y) => order(x.id, y.id)),
    links: [...links.values()].sort((x, y) => order(x.from, y.from) || order(x.to, y.to)),
  };
}

// namespaces of all ends.
export function namespaces(edges: Edge[]): string[] {
  const all = edges.flatMap((e) => [e.source.namespace, e.destination.namespace, e.target.namespace]);
  return [...new Set(all.filter((n): n is string => Boolean(n)))].sort();
}

// around leaves a node, and what it calls and what calls it.
export function around(g: { nodes: Node[]; links: Link[] }, node: string): { nodes: Node[]; links: Link[] } {
  const links = g.links.filter((l) => l.from === node || l.to === node);
  const ids = new Set([node, ...links.flatMap((l) => [l.from, l.to])]);
  return { nodes: g.nodes.filter((n) => ids.has(n.id)), links };
}
