// Code generated from internal/controlplane/dashboard/src by make dashboard; DO NOT EDIT.

// internal/controlplane/dashboard/src/route.ts
function parse(hash) {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").map((p) => {
    try {
      return decodeURIComponent(p);
    } catch {
      return p;
    }
  });
  return { page: parts[0] ?? "", path: parts.slice(1).filter(Boolean), query: new URLSearchParams(query) };
}
function link(page, path = [], query = {}) {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) q.set(name, value);
  const text = q.toString();
  return `#/${[page, ...path].map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}
function proxyLink(p) {
  return link("proxy", [`${p.name}.${p.namespace}`]);
}
function objectLink(k) {
  return link("object", [k.kind, k.namespace ?? "", k.name].filter(Boolean));
}

// internal/controlplane/dashboard/src/api.ts
var NotFound = class extends Error {
};
var Unauthorized = class extends Error {
};
var tokenKey = "moonsail-token";
var refused = false;
function pageLink(path) {
  return refused || sessionStorage.getItem(tokenKey) ? link("text", [], { path }) : path;
}
function useToken(token) {
  sessionStorage.setItem(tokenKey, token);
}
async function get(path, left) {
  return (await ask(path, left)).body;
}
async function ask(path, left) {
  const answer = await request(path, left);
  return { body: await answer.json(), others: Number(answer.headers.get("Moonsail-Other-Control-Planes") ?? 0) };
}
async function getText(path, left) {
  const answer = await request(path, left);
  return { type: answer.headers.get("Content-Type") ?? "", text: await answer.text() };
}
async function request(path, left) {
  const headers = { Accept: "application/json, text/plain" };
  const token = sessionStorage.getItem(tokenKey);
  if (token) headers["Authorization"] = `Bearer ${token}`;
  const answer = await fetch(path, { headers, signal: AbortSignal.any([left, AbortSignal.timeout(1e4)]) });
  if (answer.status === 401) {
    refused = true;
    throw new Unauthorized("the control plane requires a token");
  }
  if (!answer.ok) {
    const { error, next } = await answer.json().catch(() => ({}));
    const why = [error ?? `${answer.status} ${answer.statusText}`, next].filter(Boolean).join(": ");
    left.throwIfAborted();
    throw answer.status === 404 ? new NotFound(why) : new Error(`${path}: ${why}`);
  }
  return answer;
}

// internal/controlplane/dashboard/src/dom.ts
function el(tag, className = "", ...children) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  e.append(...children);
  return e;
}
function a(text, href) {
  const e = el("a", "", text);
  e.href = href;
  return e;
}
function byId(id2) {
  const e = document.getElementById(id2);
  if (!e) throw new Error(`the page has no #${id2}`);
  return e;
}
function row(...cells) {
  return el("tr", "", ...cells.map((c) => el("td", "", c)));
}
var mostRows = 200;
function table(headings, rows) {
  const head = el("tr", "", ...headings.map((h) => el("th", "", h)));
  return el("div", "scroll", el("table", "", el("thead", "", head), el("tbody", "", ...rows)));
}
function ms(n) {
  if (n === void 0) return "–";
  if (n >= 1e4) return `${(n / 1e3).toFixed(0)} s`;
  if (n >= 1e3) return `${(n / 1e3).toFixed(1)} s`;
  return n >= 10 ? `${n.toFixed(0)} ms` : `${n.toFixed(1)} ms`;
}
function age(now, then) {
  const s = Math.max(0, (Date.parse(now) - Date.parse(then)) / 1e3);
  if (s < 1) return ms(s * 1e3);
  if (s < 120) return `${s.toFixed(0)} s`;
  if (s < 7200) return `${(s / 60).toFixed(0)} min`;
  return s < 172800 ? `${(s / 3600).toFixed(0)} h` : `${(s / 86400).toFixed(0)} d`;
}
function bytes(n) {
  if (n < 1e3) return `${n} B`;
  return n < 1e6 ? `${(n / 1e3).toFixed(1)} KB` : `${(n / 1e6).toFixed(1)} MB`;
}
var byteRate = (n) => n < 1 ? "<1 B/s" : `${bytes(Math.round(n))}/s`;
function objectName(k) {
  return [k.kind, k.namespace, k.name].filter(Boolean).join("/");
}
function count(n) {
  if (n >= 1e6) return `${(n / 1e6).toFixed(1)}M`;
  if (n >= 1e4) return `${(n / 1e3).toFixed(0)}k`;
  if (n >= 1e3) return `${(n / 1e3).toFixed(1)}k`;
  return n >= 10 || Number.isInteger(n) ? n.toFixed(0) : n >= 0.1 ? n.toFixed(1) : "<0.1";
}
function rangeText({ least, most }) {
  return least === most ? percent(least) : `${percent(least)} to ${percent(most)}`;
}
function percent(share) {
  if (share <= 0) return "0 %";
  if (share >= 1) return "100 %";
  const n = 100 * share;
  if (n < 0.1) return "<0.1 %";
  if (n > 99.9) return ">99.9 %";
  return `${n < 10 || n > 99 ? n.toFixed(1) : n.toFixed(0)} %`;
}

// internal/controlplane/dashboard/src/redraw.ts
function key(name, e) {
  e.dataset["key"] = name;
  return e;
}
function redraw(box, ...children) {
  const active2 = document.activeElement;
  drawChildren(box, children.map((c) => typeof c === "string" ? document.createTextNode(c) : c));
  if (active2 instanceof HTMLElement && active2 !== document.activeElement && active2.isConnected) active2.focus({ preventScroll: true });
}
var keyOf = (n) => n instanceof HTMLElement ? n.dataset["key"] : void 0;
function drawChildren(box, children) {
  const wanted = new Set(children.map(keyOf));
  const keyed = /* @__PURE__ */ new Map();
  for (const e of [...box.children]) {
    const k = keyOf(e);
    if (k === void 0) continue;
    if (wanted.has(k)) keyed.set(k, e);
    else e.remove();
  }
  let at = box.firstChild;
  for (const n of children) {
    const k = keyOf(n);
    const here = at && keyOf(at) === void 0 && at.nodeName === n.nodeName ? at : void 0;
    const old = k === void 0 ? here : keyed.get(k);
    if (k !== void 0) keyed.delete(k);
    if (!old) {
      box.insertBefore(n, at);
      continue;
    }
    if (old === at) at = at.nextSibling;
    else box.insertBefore(old, at);
    drawNode(old, n);
  }
  while (at) {
    const rest = at;
    at = at.nextSibling;
    rest.remove();
  }
}
function drawNode(old, n) {
  if (!(old instanceof HTMLElement && n instanceof HTMLElement)) {
    if (old.nodeValue !== n.nodeValue) old.nodeValue = n.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) if (!n.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of n.attributes) {
    if (old.getAttribute(name) === value) continue;
    if (name === "style") old.style.cssText = n.style.cssText;
    else old.setAttribute(name, value);
  }
  drawChildren(old, [...n.childNodes]);
}

// internal/controlplane/dashboard/src/changes.ts
var stages = [
  { key: "storeMs", name: "store", what: "from the event until it is in a snapshot" },
  { key: "deriveMs", name: "derive", what: "configuration of each proxy group" },
  { key: "translateMs", name: "translate", what: "translation into Envoy's resources" },
  { key: "sendMs", name: "send", what: "until the first response is sent" },
  { key: "ackMs", name: "ack", what: "until the last proxy's answer" }
];
var shown = 40;
function quantile(sorted, q) {
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] : void 0;
}
function totals(list) {
  return list.filter((c) => c.state === "distributed" && c.proxies.acked > 0).map((c) => c.stages.totalMs ?? 0).sort((a2, b) => a2 - b);
}
function scale(list) {
  const all = list.map((c) => c.stages.totalMs ?? 0).sort((a2, b) => a2 - b);
  return Math.max(1, 1.15 * (quantile(all, 0.9) ?? 1));
}
function bar(c, widest) {
  const b = el("div", "bar");
  for (const s of stages) {
    const took = c.stages[s.key];
    if (!took) continue;
    const part = el("span", `s-${s.name}`);
    part.style.width = `${Math.min(100, 100 * took / widest)}%`;
    part.title = `${s.name} ${ms(took)}: ${s.what}`;
    b.append(part);
  }
  if ((c.stages.totalMs ?? 0) > widest) b.classList.add("over");
  return b;
}
function reached(c) {
  const p = c.proxies;
  const text = p.concerned === 0 ? "no proxy concerned" : `${p.acked}/${p.concerned}`;
  if (p.nacked > 0) return el("span", "bad", `${text}, ${p.nacked} refused it`);
  if (c.state !== "distributed") return el("span", "warn", `${text} …`);
  return el("span", p.concerned === 0 ? "dim" : "", text);
}
function names(c) {
  const first = (c.objects ?? []).slice(0, 2).map(objectName).join(", ");
  const more2 = c.objectCount - Math.min(2, c.objects?.length ?? 0);
  return more2 > 0 ? `${first} and ${more2} more` : first || `revision ${c.revision}`;
}
function details(c) {
  const list = el("dl");
  for (const s of stages) list.append(el("dt", "", s.name), el("dd", "", `${ms(c.stages[s.key])} – ${s.what}`));
  list.append(el("dt", "", "sent"), el("dd", "", `${c.resources} resources, ${bytes(c.bytes)} encoded once`));
  const objects = el("dd");
  for (const o of c.objects ?? []) {
    const to = el("a", "", `${o.operation} ${objectName(o)}`);
    to.href = objectLink(o);
    objects.append(to, el("br"));
  }
  const page = el("a", "", `change ${c.revision}: which proxies have it`);
  page.href = link("change", [String(c.revision)]);
  list.append(el("dt", "", "objects"), objects, el("dt", "", "page"), el("dd", "", page));
  return list;
}
var open = 0;
function showChanges(all) {
  const list = all.changes.slice(0, shown);
  const widest = scale(list);
  redraw(byId("scale"), list.length ? `full width: ${ms(widest)}` : "");
  const rows = list.map((c) => {
    const summary2 = el(
      "summary",
      "",
      el("time", "dim", new Date(c.observed).toLocaleTimeString([], { hour12: false })),
      el("span", "name", names(c)),
      bar(c, widest),
      el("span", "number", ms(c.stages.totalMs)),
      el("span", "reached", reached(c))
    );
    const d = key(String(c.revision), el("details", "change", summary2));
    d.open = c.revision === open;
    if (d.open) d.append(details(c));
    d.addEventListener("toggle", () => {
      if (!d.open) {
        if (open === c.revision) open = 0;
      } else if (d.childElementCount === 1) {
        open = c.revision;
        d.append(details(c));
      }
    });
    return d;
  });
  redraw(byId("changes"), ...rows.length ? rows : [el("p", "dim", "no changes since the start of the control plane")]);
}
function showKey() {
  const key2 = byId("key");
  for (const s of stages) {
    const item = el("span", "item", el("i", `s-${s.name}`), s.name);
    item.title = s.what;
    key2.append(item);
  }
}

// internal/controlplane/dashboard/src/layout.ts
function layers(ids, links) {
  const calls = new Map(ids.map((i) => [i, []]));
  const called = /* @__PURE__ */ new Set();
  for (const l of links) {
    if (l.from === l.to) continue;
    calls.get(l.from)?.push(l.to);
    called.add(l.to);
  }
  const layer = /* @__PURE__ */ new Map();
  const open3 = /* @__PURE__ */ new Set();
  const done = [];
  const forward = [];
  const seen = /* @__PURE__ */ new Set();
  const starts = [...ids.filter((i) => !called.has(i)), ...ids];
  for (const start of starts) {
    if (seen.has(start)) continue;
    const way2 = [{ id: start, next: 0 }];
    seen.add(start);
    open3.add(start);
    while (way2.length) {
      const top = way2[way2.length - 1];
      const to = calls.get(top.id)?.[top.next++];
      if (to === void 0) {
        open3.delete(top.id);
        done.push(top.id);
        way2.pop();
      } else if (!open3.has(to)) {
        forward.push({ from: top.id, to });
        if (!seen.has(to)) {
          seen.add(to);
          open3.add(to);
          way2.push({ id: to, next: 0 });
        }
      }
    }
  }
  const into = /* @__PURE__ */ new Map();
  for (const f of forward) into.set(f.to, [...into.get(f.to) ?? [], f.from]);
  for (const i of done.reverse()) layer.set(i, Math.max(0, ...(into.get(i) ?? []).map((p) => (layer.get(p) ?? 0) + 1)));
  return layer;
}
var sweeps = 6;
var mostBends = 80;
var bendHeight = 10;
var wayKey = (l) => JSON.stringify([l.from, l.to]);
function bends(layer, links, perColumn) {
  const out = /* @__PURE__ */ new Map();
  const filled = /* @__PURE__ */ new Map();
  for (const n of layer.values()) filled.set(n, (filled.get(n) ?? 0) + 1);
  if (Math.max(0, ...filled.values()) > perColumn) return out;
  let all = 0;
  for (const l of links) {
    const [from, to] = [layer.get(l.from) ?? 0, layer.get(l.to) ?? 0];
    all += Math.max(0, to - from - 1);
    if (to - from > 1) out.set(wayKey(l), Array.from({ length: to - from - 1 }, (_, i) => `${wayKey(l)}${from + 1 + i}`));
  }
  return all > mostBends ? /* @__PURE__ */ new Map() : out;
}
function layout(ids, links, s) {
  const layer = layers(ids, links);
  const bent = bends(layer, links, s.perColumn);
  const columns = [];
  for (const i of ids) (columns[layer.get(i) ?? 0] ??= []).push(i);
  const near = new Map(ids.map((i) => [i, []]));
  for (const l of links) {
    const chain = [l.from, ...bent.get(wayKey(l)) ?? [], l.to];
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
function order(columns, near, layer) {
  const at = /* @__PURE__ */ new Map();
  const number = (c) => c.forEach((i, n) => at.set(i, (n + 0.5) / c.length));
  columns.forEach(number);
  for (let sweep = 0; sweep < sweeps; sweep++) {
    for (const c of sweep % 2 ? [...columns].reverse() : columns) {
      const mean = new Map(c.map((i) => {
        const others = (near.get(i) ?? []).filter((n) => layer.get(n) !== layer.get(i));
        return [i, others.length ? others.reduce((sum, n) => sum + (at.get(n) ?? 0), 0) / others.length : at.get(i) ?? 0];
      }));
      c.sort((a2, b) => (mean.get(a2) ?? 0) - (mean.get(b) ?? 0));
      number(c);
    }
  }
}
function place(columns, ids, bent, s) {
  const real = new Set(ids);
  const height = (i) => (real.has(i) ? s.height : bendHeight) + s.gapY;
  const split = columns.flatMap((c) => c.length > s.perColumn && bent.size === 0 ? chunks(c, s.perColumn) : [c]);
  const heights = split.map((c) => c.reduce((sum, i) => sum + height(i), 0));
  const tallest = Math.max(0, ...heights);
  const places = /* @__PURE__ */ new Map();
  const points = /* @__PURE__ */ new Map();
  split.forEach((c, column) => {
    const x = s.gapX / 2 + column * (s.width + s.gapX);
    let y = s.gapY / 2 + (tallest - (heights[column] ?? 0)) / 2;
    let row2 = 0;
    for (const i of c) {
      if (real.has(i)) places.set(i, { x, y, column, row: row2++ });
      else points.set(i, { x, y: y + bendHeight / 2 });
      y += height(i);
    }
  });
  const ways = new Map([...bent].map(([key2, list]) => [key2, list.flatMap((b) => points.get(b) ?? [])]));
  return { places, ways, width: split.length * (s.width + s.gapX), height: tallest };
}
function chunks(list, most) {
  const n = Math.ceil(list.length / most);
  const size2 = Math.ceil(list.length / Math.max(1, n));
  return Array.from({ length: n }, (_, i) => list.slice(i * size2, (i + 1) * size2));
}
function neighbour(places, from, key2) {
  const here = places.get(from);
  if (!here) return void 0;
  const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key2] ?? [0, 0];
  let best;
  let least = Infinity;
  for (const [i, p] of places) {
    const along = dx ? (p.column - here.column) * dx : (p.row - here.row) * dy;
    if (along <= 0 || dy && p.column !== here.column) continue;
    const cost = along * 1e6 + Math.abs(p.y - here.y) + Math.abs(p.x - here.x) / 1e3;
    if (cost < least) [best, least] = [i, cost];
  }
  return best;
}

// internal/controlplane/dashboard/src/traffic.ts
var unsecured = () => ({ mutual: 0, known: 0, unknown: 0 });
var nothing = () => ({ requests: 0, errors: 0, bytes: 0, total: 0, byRequests: unsecured(), byBytes: unsecured(), durations: [] });
function addDurations(to, list) {
  for (const d of list) {
    const i = to.findIndex((x) => x.fromMs >= d.fromMs);
    const same = to[i];
    if (i < 0) to.push({ ...d });
    else if (same && same.fromMs === d.fromMs) same.rate += d.rate;
    else to.splice(i, 0, { ...d });
  }
}
var inaccuracy = { requests: 0.1, bytes: 0.5 };
function addSecured(to, all, counted, mutual, inaccurate) {
  to.mutual += mutual;
  to.known += counted ?? 0;
  const rest = all - (counted ?? 0);
  if (counted === void 0 || rest > inaccurate * all) to.unknown += rest;
}
function add(sum, e) {
  const n = e.client && (e.client.requests > 0 || e.client.bytes || e.client.total) ? e.client : e.server ?? e.client;
  if (!n) return;
  sum.requests += n.requests;
  sum.errors += n.errors;
  sum.bytes += n.bytes ?? 0;
  sum.total += n.total ?? 0;
  addDurations(sum.durations, n.durations ?? []);
  addSecured(sum.byRequests, n.requests, e.server?.requests, e.server?.mutual ?? 0, inaccuracy.requests);
  addSecured(sum.byBytes, n.bytes ?? 0, e.server && (e.server.bytes ?? 0), e.server?.mutualBytes ?? 0, inaccuracy.bytes);
}
function quantile2(list, q) {
  const total = list.reduce((n, d) => n + d.rate, 0);
  if (!(total > 0)) return void 0;
  let below = 0;
  for (const d of list) {
    if (below + d.rate >= q * total) {
      return d.toMs ? d.fromMs + (d.toMs - d.fromMs) * (q * total - below) / d.rate : d.fromMs;
    }
    below += d.rate;
  }
  return void 0;
}
function mutualShare(s) {
  const list = [s.byRequests, s.byBytes].filter((x) => x.known + x.unknown > 0);
  if (!list.some((x) => x.known > 0)) return void 0;
  const of = (part) => Math.min(1, ...list.map((x) => part(x) / (x.known + x.unknown)));
  return { least: of((x) => x.mutual), most: of((x) => x.mutual + x.unknown) };
}
var active = (s) => s.requests > 0 || s.bytes > 0;
var errorShare = (s) => s.requests > 0 ? s.errors / s.requests : 0;
var id = (p) => `${p.namespace}/${p.name}`;
function aliases(edges) {
  const out = /* @__PURE__ */ new Map();
  for (const { destination: d, target: t } of edges) {
    if (!d.service || !t.name || d.namespace !== t.namespace) continue;
    const key2 = `${d.namespace}/${d.service}`;
    const old = out.get(key2);
    if (old === void 0 || t.name === d.service || old !== d.service && t.name < old) out.set(key2, t.name);
  }
  return out;
}
function sourceOf(e, by, names2) {
  const { namespace = "", workload, service } = e.source;
  const name = by === "workload" ? workload : names2.get(`${namespace}/${service}`) ?? service ?? workload;
  return { namespace, name: name ?? "unknown", outside: !name };
}
function destinationOf(e, by, names2) {
  const { namespace = "", workload, service } = e.destination;
  const { target } = e;
  if (by === "workload" && workload) return { namespace, name: workload, outside: false };
  if (target.name) return { namespace: target.namespace ?? "", name: target.name, outside: !workload };
  const name = names2.get(`${namespace}/${service}`) ?? service ?? workload;
  return { namespace, name: name ?? "unknown", outside: !name };
}
function fold(edges, by, namespace = "") {
  const nodes = /* @__PURE__ */ new Map();
  const links = /* @__PURE__ */ new Map();
  const names2 = aliases(edges);
  const node = (p) => {
    const key2 = id(p);
    let n = nodes.get(key2);
    if (!n) nodes.set(key2, n = { id: key2, namespace: p.namespace, name: p.name, outside: true, in: nothing(), out: nothing() });
    n.outside &&= p.outside;
    return n;
  };
  for (const e of edges) {
    const from = sourceOf(e, by, names2);
    const to = destinationOf(e, by, names2);
    if (namespace && from.namespace !== namespace && to.namespace !== namespace) continue;
    const a2 = node(from);
    const b = node(to);
    const key2 = JSON.stringify([a2.id, b.id]);
    let l = links.get(key2);
    if (!l) links.set(key2, l = { from: a2.id, to: b.id, protocols: [], sum: nothing() });
    if (e.protocol && !l.protocols.includes(e.protocol)) l.protocols.push(e.protocol);
    add(l.sum, e);
    add(a2.out, e);
    add(b.in, e);
  }
  const order2 = (x, y) => x < y ? -1 : x > y ? 1 : 0;
  return {
    nodes: [...nodes.values()].sort((x, y) => order2(x.id, y.id)),
    links: [...links.values()].sort((x, y) => order2(x.from, y.from) || order2(x.to, y.to))
  };
}
function namespaces(edges) {
  const all = edges.flatMap((e) => [e.source.namespace, e.destination.namespace, e.target.namespace]);
  return [...new Set(all.filter((n) => Boolean(n)))].sort();
}
function around(g, node) {
  const links = g.links.filter((l) => l.from === node || l.to === node);
  const ids = /* @__PURE__ */ new Set([node, ...links.flatMap((l) => [l.from, l.to])]);
  return { nodes: g.nodes.filter((n) => ids.has(n.id)), links };
}

// internal/controlplane/dashboard/src/graph.ts
var ns = "http://www.w3.org/2000/svg";
var size = { width: 190, height: 44, gapX: 120, gapY: 16, perColumn: 24 };
var fewLinks = 24;
function svg(tag, attributes = {}, ...children) {
  const e = document.createElementNS(ns, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, String(value));
  e.append(...children);
  return e;
}
function short(text, most) {
  const letters = [...text];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
}
function rate(s, rated) {
  if (!rated) return s.total ? `${count(s.total)} so far` : "no calls";
  if (!active(s)) return "idle";
  return s.requests > 0 ? `${count(s.requests)}/s` : "no new connections";
}
function health(s) {
  const share = errorShare(s);
  return share >= 0.05 ? "bad" : share >= 1e-3 ? "warn" : "";
}
function summary(s, rated) {
  const parts = s.bytes > 0 && s.requests === 0 ? [] : [rate(s, rated)];
  if (s.bytes > 0) parts.push(byteRate(s.bytes));
  if (s.requests > 0) {
    if (s.errors > 0) parts.push(`${percent(errorShare(s))} errors`);
    const p99 = quantile2(s.durations, 0.99);
    if (p99 !== void 0) parts.push(`p99 ${ms(p99)}`);
  }
  return parts.join(", ");
}
var plainText = (mutual) => rangeText({ least: 1 - mutual.most, most: 1 - mutual.least });
function drawLink(l, { places, ways }, label, chosen, rated) {
  const a2 = places.get(l.from);
  const b = places.get(l.to);
  if (!a2 || !b) return void 0;
  const y1 = a2.y + size.height / 2;
  const y2 = b.y + size.height / 2;
  let path;
  let [x, y] = [0, 0];
  if (l.from === l.to) {
    const right = a2.x + size.width;
    path = `M${right - 30} ${a2.y}C${right - 30} ${a2.y - 22} ${right + 26} ${a2.y - 22} ${right} ${y1 - 6}`;
    [x, y] = [right + 4, a2.y - 8];
  } else if (b.column > a2.column) {
    let [left, height] = [a2.x + size.width, y1];
    path = `M${left} ${height}`;
    for (const p of [...ways.get(wayKey(l)) ?? [], { x: b.x, y: y2 }]) {
      const bend = Math.min(90, (p.x - left) / 2);
      path += `C${left + bend} ${height} ${p.x - bend} ${p.y} ${p.x} ${p.y}`;
      [x, y] = [(left + p.x) / 2, (height + p.y) / 2];
      if (p.x !== b.x) path += `H${left = p.x + size.width}`;
      height = p.y;
    }
  } else {
    const [x1, x2] = [a2.x + size.width, b.x + size.width];
    const out = Math.max(x1, x2) + 46;
    path = `M${x1} ${y1}C${out} ${y1} ${out} ${y2} ${x2} ${y2}`;
    [x, y] = [out - 12, (y1 + y2) / 2];
  }
  const mine = chosen === l.from || chosen === l.to;
  const mutual = mutualShare(l.sum);
  const g = svg("g", { class: ["link", health(l.sum), mutual && mutual.most < 1 ? "plain" : "", chosen && !mine ? "faint" : "", active(l.sum) ? "" : "idle"].join(" ") });
  g.append(svg("path", { d: path, "marker-end": "url(#arrow)", "stroke-width": (1 + Math.min(3, Math.log10(1 + l.sum.requests))).toFixed(1) }));
  g.append(svg("title", {}, `${l.from} calls ${l.to} (${l.protocols.join(", ")}): ${summary(l.sum, rated)}`));
  if (mine || label && (active(l.sum) || !rated)) {
    const text = summary(l.sum, rated) + (mutual && mutual.most < 1 ? `, ${plainText(mutual)} plain text` : "");
    return { line: g, text: svg("text", { x, y: y - 6, class: "label", "text-anchor": "middle" }, short(text, 34)) };
  }
  return { line: g };
}
function drawNode2(n, p, d) {
  const sum = n.in.total || active(n.in) ? n.in : n.out;
  const chosen = d.chosen === n.id;
  const text = summary(sum, d.rated);
  const g = svg("g", {
    class: ["node", health(sum), n.outside ? "outside" : "", chosen ? "chosen" : "", d.namespace && n.namespace !== d.namespace ? "other" : ""].join(" "),
    transform: `translate(${p.x} ${p.y})`,
    role: "button",
    tabindex: -1,
    "aria-pressed": String(chosen),
    "aria-label": `${n.name}${n.namespace ? ` in ${n.namespace}` : ""}${n.outside ? ", no workload of the mesh" : ""}: ${text}`
  });
  g.dataset["id"] = n.id;
  g.append(
    svg("rect", { width: size.width, height: size.height, rx: 7 }),
    svg("text", { x: 10, y: 18, class: "name" }, short(n.name, d.namespace || !n.namespace ? 24 : 17)),
    svg("text", { x: 10, y: 35, class: "numbers" }, short(text, 30)),
    svg("title", {}, `${n.id}: ${text}`)
  );
  if (n.namespace && n.namespace !== d.namespace) {
    g.append(svg("text", { x: size.width - 8, y: 18, class: "namespace", "text-anchor": "end" }, short(n.namespace, 10)));
  }
  return g;
}
function draw(box, d) {
  const ids = d.nodes.map((n) => n.id);
  const all = layout(ids, d.links, size);
  const { places, width, height } = all;
  const fit = Math.min(1, Math.max(0.3, (box.clientWidth - 2) / Math.max(1, width)));
  const scale3 = d.scale || Math.max(0.75, fit);
  const root = svg("svg", {
    width: Math.ceil(width * scale3),
    height: Math.ceil((height + 8) * scale3),
    viewBox: `0 -8 ${width} ${height + 8}`,
    role: "group",
    "aria-label": `${d.nodes.length} nodes and ${d.links.length} connections; use the arrow keys`
  });
  root.append(svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8z" }))));
  const few = d.links.length <= fewLinks;
  const drawnLinks = d.links.flatMap((l) => drawLink(l, all, few && !d.chosen, d.chosen, d.rated) ?? []);
  root.append(...drawnLinks.map((l) => l.line), ...drawnLinks.flatMap((l) => l.text ?? []));
  const drawn = /* @__PURE__ */ new Map();
  for (const n of d.nodes) {
    const p = places.get(n.id);
    if (!p) continue;
    const g = drawNode2(n, p, d);
    drawn.set(n.id, g);
    root.append(g);
  }
  const idOf = (t) => t instanceof Element ? t.closest(".node")?.dataset["id"] : void 0;
  root.addEventListener("click", (e) => {
    const at = idOf(e.target);
    d.choose(at === d.chosen ? "" : at ?? "");
  });
  root.addEventListener("keydown", (e) => {
    const at = idOf(e.target);
    if (at === void 0) return;
    if (e.key === "Enter" || e.key === " ") d.choose(at === d.chosen ? "" : at);
    else if (e.key === "Escape") d.choose("");
    else {
      const to = neighbour(places, at, e.key);
      if (to === void 0) return;
      focus(drawn, to);
    }
    e.preventDefault();
  });
  const active2 = idOf(document.activeElement);
  const [left, top] = [box.scrollLeft, box.scrollTop];
  box.replaceChildren(root);
  [box.scrollLeft, box.scrollTop] = [left, top];
  const entry = drawn.get(active2 ?? "") ?? drawn.get(d.chosen) ?? drawn.get(ids[0] ?? "");
  entry?.setAttribute("tabindex", "0");
  if (active2 !== void 0) entry?.focus({ preventScroll: true });
}
function focus(drawn, id2) {
  for (const g2 of drawn.values()) g2.setAttribute("tabindex", "-1");
  const g = drawn.get(id2);
  g?.setAttribute("tabindex", "0");
  g?.focus();
}

// internal/controlplane/dashboard/src/mesh.ts
var mostRows2 = 100;
var last;
var shown2;
var scale2 = 0;
function choice(r) {
  return {
    namespace: r.query.get("namespace") ?? "",
    by: r.query.get("by") === "workload" ? "workload" : "service",
    node: r.query.get("node") ?? "",
    only: r.query.get("only") === "1"
  };
}
var go = (c) => {
  location.hash = link("mesh", [], { namespace: c.namespace, by: c.by === "workload" ? c.by : "", node: c.node, only: c.only && c.node ? "1" : "" });
};
async function showMesh(route2, left) {
  shown2 = route2;
  last = await get("/debug/traffic", left);
  drawMesh(shown2);
  return last.rated ? 1e3 * last.everySeconds : 1500;
}
function drawMesh(route2) {
  shown2 = route2;
  const g = last;
  if (!g) return;
  const c = choice(route2);
  const whole = fold(g.edges, c.by, c.namespace);
  if (c.node && !whole.nodes.some((n) => n.id === c.node)) c.node = "";
  const part = c.only && c.node ? around(whole, c.node) : whole;
  controls(c, namespaces(g.edges));
  redraw(byId("mesh-state"), ...state(g, part.nodes.length, part.links.length));
  const box = byId("mesh-graph");
  if (part.nodes.length === 0) box.replaceChildren(el("p", "dim", nothingYet(g)));
  else draw(box, { ...part, chosen: c.node, namespace: c.namespace, rated: g.rated, scale: scale2, choose: (node) => go({ ...c, node }) });
  details2(c, whole, g.rated);
}
function nothingYet(g) {
  if (!g.at) return "The first measurement is on its way.";
  if (g.source === "prometheus") return "Prometheus has no calls of the last two minutes.";
  return g.proxies.connected === 0 ? "No proxy is connected." : "The proxies have not counted any calls yet.";
}
function state(g, nodes, links) {
  const parts = [`${nodes} nodes, ${links} connections`];
  if (g.source === "prometheus") parts.push("from Prometheus, over 2 minutes");
  else parts.push(`from the metrics of ${g.proxies.measured} of ${g.proxies.connected} proxies`);
  if (g.at) parts.push(`measured ${age(g.now, g.at)} ago`);
  if (!g.rated) parts.push("rates follow in some seconds");
  if (g.leftOut) parts.push(`${g.leftOut} connections left out`);
  const out = [el("span", "dim", parts.join("; "))];
  if (g.failures?.length) out.push(el("span", "warn", ` ${g.failures[0] ?? ""}${g.failures.length > 1 ? ` (and ${g.failures.length - 1} more)` : ""}`));
  return out;
}
function controls(c, all) {
  const select = byId("mesh-namespace");
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
  const by = byId("mesh-by");
  by.value = c.by;
  by.onchange = () => go({ ...c, by: by.value, node: "" });
  const only = byId("mesh-only");
  only.checked = c.only;
  only.disabled = !c.node;
  only.onchange = () => go({ ...c, only: only.checked });
}
function mutualText(share) {
  if (!share) return el("span", "dim", "unknown");
  return el("span", share.least === 1 ? "good" : share.most < 1 ? "warn" : "dim", rangeText(share));
}
function callRow(l, c, rated) {
  const to = (id2) => {
    const a2 = el("a", "", id2.replace(/^\//, ""));
    a2.href = link("mesh", [], { namespace: c.namespace, by: c.by === "workload" ? c.by : "", node: id2, only: c.only ? "1" : "" });
    return a2;
  };
  const s = l.sum;
  const duration = (q) => ms(quantile2(s.durations, q));
  const cells = row(
    to(l.from),
    to(l.to),
    l.protocols.join(", "),
    rate(s, rated),
    el("span", health(s), s.requests > 0 ? percent(errorShare(s)) : "–"),
    duration(0.5),
    duration(0.99),
    s.bytes > 0 ? byteRate(s.bytes) : "",
    mutualText(mutualShare(s))
  );
  return key(`${l.from} ${l.to}`, cells);
}
function details2(c, g, rated) {
  const links = c.node ? around(g, c.node).links : g.links;
  const sorted = [...links].sort((a2, b) => errorShare(b.sum) - errorShare(a2.sum) || b.sum.requests - a2.sum.requests || b.sum.bytes - a2.sum.bytes);
  redraw(byId("mesh-heading"), c.node ? `Calls of ${c.node.replace(/^\//, "")}` : "Calls");
  const parts = [];
  if (c.node) {
    const [namespace = "", name = ""] = [c.node.slice(0, c.node.indexOf("/")), c.node.slice(c.node.indexOf("/") + 1)];
    const find = el("a", "", "its proxies, objects and changes");
    find.href = link("search", [], { q: `${name} ${namespace}`.trim() });
    parts.push(el("p", "", find));
  }
  parts.push(table(["from", "to", "protocol", "requests", "errors", "p50", "p99", "bytes", "mutual TLS"], sorted.slice(0, mostRows2).map((l) => callRow(l, c, rated))));
  if (sorted.length > mostRows2) parts.push(el("p", "dim", `and ${sorted.length - mostRows2} more: choose a node or a namespace`));
  redraw(byId("mesh-calls"), ...parts);
}
function zoom(route2, factor) {
  const box = byId("mesh-graph");
  const root = box.querySelector("svg");
  const now = root ? root.clientWidth / (root.viewBox.baseVal.width || 1) : 1;
  scale2 = factor ? Math.min(2, Math.max(0.2, now * factor)) : 0;
  drawMesh(route2);
}

// internal/controlplane/dashboard/src/peers.ts
var named = (p) => `Control plane ${p.controlPlane}`;
var silence = (p) => `${named(p)} does not answer: ${p.silent ?? ""}`;
function incompleteText(list = []) {
  return list.flatMap((p) => p.silent ? silence(p) : p.leftOut ? `${named(p)} has ${p.leftOut} more.` : []);
}
function silentText(list = []) {
  const n = list.filter((p) => p.silent).length;
  return n ? `${n} control ${n === 1 ? "plane does" : "planes do"} not answer` : "";
}
function lackingText(p) {
  if (p.silent) return silence(p);
  if (p.state === "distributing" || p.state === "distributed") return void 0;
  if (p.state === "building") return `${named(p)} has it, and is about to send it.`;
  if (!p.exists) return `${named(p)} does not have it.`;
  return `${named(p)} has another version of it (${[p.origin, p.resourceVersion].filter(Boolean).join(", ")}).`;
}
var warnings = (list) => list.map((text) => el("p", "warn", text));

// internal/controlplane/dashboard/src/problems.ts
function placeOf(x) {
  return x.file ? `${x.file}${x.line ? `:${x.line}` : ""}` : "";
}
function count2(p) {
  return (p.problems.config?.length ?? 0) + (p.problems.translation?.length ?? 0);
}
function showProblems(p) {
  const config = (p.problems.config ?? []).map((x) => {
    const where = placeOf(x);
    const subject = x.object?.kind ? [objectName(x.object), where] : [where];
    return { severity: x.severity, texts: [subject.filter(Boolean).join(" at "), x.field ?? "", x.message] };
  });
  const translation = (p.problems.translation ?? []).map((x) => ({ severity: "error", texts: [x.name, x.group, x.error] }));
  const all = [...config, ...translation].sort((a2, b) => Number(b.severity === "error") - Number(a2.severity === "error"));
  const rows = all.slice(0, mostRows).map((x) => row(el("span", x.severity === "error" ? "bad" : "warn", x.severity), ...x.texts));
  byId("problems-section").hidden = rows.length === 0;
  const parts = [table(["", "object", "field", "what"], rows)];
  if (all.length > mostRows) parts.push(el("p", "dim", `and ${all.length - mostRows} more, in /debug/problems`));
  redraw(byId("problems"), ...parts);
}

// internal/controlplane/dashboard/src/proxies.ts
function refused2(p) {
  return p.types.flatMap((t) => (t.held ?? []).map((h) => ({ type: t.type, ...h })));
}
function state2(p, now) {
  const held = refused2(p);
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
function proxyName(p) {
  const a2 = el("a", "", `${p.name}.${p.namespace}`);
  a2.href = proxyLink(p);
  return a2;
}
function gravity(p) {
  if (p.unread || refused2(p).length) return 0;
  return p.owed ? 1 : 2;
}
var last2;
function showProxies(all = last2) {
  if (!all) return;
  last2 = all;
  const filter = byId("filter").value.trim().toLowerCase();
  const list = all.proxies.filter((p) => `${p.name}.${p.namespace}`.toLowerCase().includes(filter)).sort((a2, b) => gravity(a2) - gravity(b));
  const several = Boolean(all.controlPlanes?.length);
  const rows = list.slice(0, mostRows).map((p) => key(`${p.name}.${p.namespace}`, row(
    proxyName(p),
    state2(p, all.now),
    String(p.settled),
    `${p.protocol}, ${p.strategy}`,
    p.version ?? "–",
    age(all.now, p.connected),
    ...several ? [p.controlPlane ?? "this one"] : []
  )));
  const headings = ["proxy", "state", "settled", "protocol, routes", "Envoy", "connected for", ...several ? ["control plane"] : []];
  const parts = [...warnings(incompleteText(all.controlPlanes)), table(headings, rows)];
  if (list.length === 0) parts.push(el("p", "dim", filter ? "no proxy has this name" : "no proxy is connected"));
  if (list.length > mostRows) parts.push(el("p", "dim", `and ${list.length - mostRows} more: filter by name`));
  redraw(byId("proxies"), ...parts);
}
function showStale(s) {
  const away = s.disconnected ?? [];
  const rows = [
    ...s.holders.slice(0, mostRows).map((h) => key(`${h.name}.${h.namespace} ${h.address} ${h.cluster}`, row(proxyName(h), h.address, el("span", "bad", age(s.now, h.since)), h.cluster))),
    ...away.slice(0, mostRows).map((a2) => row(`${a2.name}.${a2.namespace}`, `${a2.endpoints} removed since`, el("span", "warn", age(s.now, a2.since)), "disconnected"))
  ];
  const section2 = byId("stale-section");
  const unknown = incompleteText(s.controlPlanes);
  section2.hidden = rows.length === 0 && unknown.length === 0;
  const parts = warnings(unknown);
  if (rows.length) parts.push(table(["proxy", "endpoint", "gone for", "cluster"], rows));
  const more2 = s.holders.length + away.length - rows.length;
  if (more2) parts.push(el("p", "dim", `and ${more2} more: 'moonsail stale' lists them`));
  redraw(byId("stale"), ...parts);
}

// internal/controlplane/dashboard/src/pages.ts
var again = 2e3;
var seldom = 5e3;
function facts(list) {
  const out = el("dl", "facts");
  for (const [name, value] of list) if (value) out.append(key(`${name}:`, el("dt", "", name)), key(name, el("dd", "", value)));
  return out;
}
function show(title, ...parts) {
  redraw(byId("detail"), el("h2", "", title), ...parts);
}
var heading = (text) => key(text, el("h3", "", text));
function notThere(title, error) {
  if (!(error instanceof NotFound)) throw error;
  show(title, el("p", "warn", error.message), el("p", "", a("Search for it", link("search", [], { q: title.split(" ").pop() ?? "" }))));
}
var causes = {
  unanswered: "was sent, and Envoy has not answered",
  unread: "the proxy does not read its responses",
  waits: "waits",
  unsent: "is about to be sent",
  refused: "Envoy refused it",
  disconnected: "the stream ended"
};
function reasonText(r, now) {
  const parts = [`${r.type ? `${r.type}: ` : ""}${causes[r.cause] ?? r.cause}`];
  if (r.text) parts.push(r.text);
  if (r.names?.length) parts.push(r.names.join(", "));
  const since = r.since ? `, for ${age(now, r.since)}` : "";
  return parts.join(": ") + since;
}
function positions(list, leftOut, now, none) {
  const classes = { refused: "bad", behind: "warn", disconnected: "warn", acked: "good" };
  const rows = list.map((p) => key(`${p.name}.${p.namespace}`, row(
    a(`${p.name}.${p.namespace}`, proxyLink(p)),
    el("span", classes[p.position] ?? "dim", p.superseded ? `${p.position}, in a newer form` : p.position),
    (p.reasons ?? []).map((r) => reasonText(r, now)).join("; "),
    p.controlPlane ?? ""
  )));
  const parts = rows.length ? [table(["proxy", "state", "why", "control plane"], rows)] : [none];
  if (leftOut) parts.push(el("p", "dim", `and ${leftOut} more`));
  return parts;
}
function countsText(c) {
  const parts = [`${c.acked} have it`];
  if (c.superseded) parts.push(`${c.superseded} of them in a newer form`);
  if (c.behind) parts.push(`${c.behind} behind`);
  if (c.refused) parts.push(`${c.refused} refused it`);
  if (c.disconnected) parts.push(`${c.disconnected} disconnected without it`);
  if (c.notConcerned) parts.push(`${c.notConcerned} not concerned`);
  return parts.join(", ");
}
function way(c) {
  const list = el("ol", "way");
  list.append(el("li", "", el("b", "", "event"), el("span", "dim wide", new Date(c.observed).toLocaleString())));
  const total = Math.max(1e-3, c.stages.totalMs ?? 0);
  for (const s of stages) {
    const took = c.stages[s.key];
    const part = el("i", `s-${s.name}`);
    part.style.width = `${took === void 0 ? 0 : Math.max(1, Math.min(100, 100 * took / total))}%`;
    list.append(el("li", took === void 0 ? "dim" : "", el("b", "", s.name), el("span", "number", ms(took)), el("span", "dim", s.what), el("div", "bar", part)));
  }
  list.append(el("li", "", el("b", "", "total"), el("span", "number", ms(c.stages.totalMs))));
  return list;
}
function changeText(c) {
  const first = c.objects?.[0];
  const more2 = c.objectCount - 1;
  return first ? `${first.operation} ${objectName(first)}${more2 > 0 ? ` and ${more2} more` : ""}` : "";
}
function objectList(c) {
  const rows = (c.objects ?? []).map((o) => key(objectName(o), row(o.operation, a(objectName(o), objectLink(o)))));
  const parts = [table(["", "object"], rows)];
  if (c.objectCount > rows.length) parts.push(el("p", "dim", `and ${c.objectCount - rows.length} more`));
  return parts;
}
async function showChange(r, left) {
  const revision2 = r.path[0] ?? "";
  const title = `Change ${revision2}`;
  const all = r.query.get("all") === "1";
  try {
    const { body: s, others } = await ask(
      `/debug/changes/${encodeURIComponent(revision2)}?max=500${all ? "&all" : ""}`,
      left
    );
    const c = s.change;
    const none = el("p", "good", others ? "No proxy of this control plane lacks it." : "No proxy lacks it.");
    show(
      title,
      facts([["what", changeText(c)], ["state", c.state], ["proxies", countsText(s.counts)], ["sent", `${c.resources} resources, ${bytes(c.bytes)} encoded once`]]),
      heading("Its way"),
      way(c),
      heading(all ? "Proxies" : "Proxies that do not have it"),
      ...positions(s.proxies, s.leftOut, s.now, none),
      ...others ? [key("others", el("p", "dim", "Revisions and proxies are those of this control plane. The pages of the objects have the proxies of all."))] : [],
      key("all", el("p", "", a(all ? "only those without it" : "all proxies", link("change", [revision2], { all: all ? "" : "1" })))),
      heading("Objects"),
      ...objectList(c)
    );
    return c.state === "distributed" && s.counts.behind === 0 ? seldom : again;
  } catch (e) {
    notThere(title, e);
    return seldom;
  }
}
function revision(p, n, text) {
  if (!n) return "–";
  return p.controlPlane ? text : a(text, link("change", [String(n)]));
}
var changeOf = (p, n) => revision(p, n, `change ${n}${p.controlPlane ? ` of ${p.controlPlane}` : ""}`);
function lacks(p, now) {
  const parts = [];
  if (p.unread) parts.push(el("p", "bad", "It does not read its stream: its Envoy hangs, or the network does."));
  for (const h of refused2(p)) parts.push(el("p", "bad", `${h.type} ${h.name}: Envoy refused it: ${h.message}`));
  if (p.owed) {
    const oldest = p.oldestPending ? changeOf(p, p.oldestPending) : "";
    parts.push(el("p", "warn", `It lacks ${p.owed} ${p.owed === 1 ? "revision" : "revisions"}${p.behindSince ? ` for ${age(now, p.behindSince)}` : ""}, since `, oldest));
  }
  for (const t of p.types) if (t.waiting) parts.push(el("p", "warn", `${t.type} waits: ${t.waiting}`));
  return parts.length ? parts : [el("p", "good", "Nothing: it has everything that concerns it.")];
}
async function showProxy(r, left) {
  const name = r.path[0] ?? "";
  const at = `/debug/proxies/${encodeURIComponent(name)}`;
  const title = `Proxy ${name}`;
  try {
    const d = await get(at, left);
    const p = d.proxy;
    const types = p.types.map((t) => row(t.type, t.wildcard ? "all" : String(t.subscribed ?? 0), revision(p, t.sent, String(t.sent)), revision(p, t.acked, String(t.acked)), t.waiting ?? "", String(t.held?.length ?? 0)));
    show(
      title,
      facts([
        ["node", p.id],
        ["connected", `for ${age(d.now, p.connected)} from ${p.peer}${p.controlPlane ? `, to ${p.controlPlane}` : ""}`],
        ["protocol", `${p.protocol}, routes by ${p.strategy}`],
        ["Envoy", p.version],
        ["settled", changeOf(p, p.settled)]
      ]),
      heading("What it lacks"),
      ...lacks(p, d.now),
      heading("Resources"),
      table(["type", "subscribed", "sent", "acked", "waits for", "refused"], types),
      heading("More"),
      more(at, name, Boolean(p.controlPlane))
    );
    return again;
  } catch (e) {
    notThere(title, e);
    return seldom;
  }
}
function more(at, name, elsewhere) {
  const list = el("ul");
  if (elsewhere) list.append(el("li", "", "its configuration, from its control plane: ", el("code", "", `moonsail proxy-config all ${name}`)));
  else for (const [text, href] of [
    ["what it should have", `${at}/config/all`],
    ["what its Envoy uses", `${at}/envoy/in-use`],
    ["its certificate", `${at}/envoy/identity`],
    ["its worker threads", `${at}/envoy/workers`],
    ["its metrics", `${at}/envoy/stats`],
    ["its log", `${at}/envoy/logs`]
  ]) list.append(el("li", "", a(text, pageLink(href))));
  list.append(el("li", "", "why a call is decided as it is: ", el("code", "", `moonsail why ${name} URL`)));
  return list;
}
async function showObject(r, left) {
  const title = r.path.join("/");
  const path = r.path.map(encodeURIComponent).join("/");
  try {
    const e = await get(`/debug/explain/${path}?max=500`, left);
    const lacking = (e.controlPlanes ?? []).flatMap((p) => lackingText(p) ?? []);
    const none = lacking.length ? el("p", "dim", "No proxy of the other control planes lacks it.") : el("p", "good", "No proxy lacks it.");
    show(
      title,
      facts([
        ["from", e.origin],
        ["state", e.exists ? e.state : `deleted; ${e.state}`],
        ["last change", e.revision ? a(`change ${e.revision}`, link("change", [String(e.revision)])) : void 0],
        ["proxies", countsText(e.counts)],
        ["content", a("as the control plane has it", pageLink(`/debug/store/${path}`))]
      ]),
      ...e.error ? [el("p", "bad", `${e.partly ? "A part of its" : "Its"} newest version is refused${placeOf(e.error) && `, at ${placeOf(e.error)}`}.`)] : [],
      ...(e.problems ?? []).map((p) => el("p", "warn", p)),
      ...e.change ? [heading("The way of its last change"), way(e.change)] : [],
      heading("Proxies that do not have it"),
      ...warnings(lacking),
      ...positions(e.proxies, e.leftOut, e.now, none)
    );
    return again;
  } catch (e) {
    notThere(title, e);
    return seldom;
  }
}
function section(title, rows, headings) {
  return rows.length ? [heading(title), table(headings, rows)] : [];
}
async function showSearch(r, left) {
  const q = r.query.get("q") ?? "";
  const title = `Search for ${q}`;
  if (!q.trim()) {
    show("Search", el("p", "dim", "Type words of a name: of a proxy, a service, another object, or a revision."));
    return seldom;
  }
  const f = await get(`/debug/search?q=${encodeURIComponent(q)}`, left);
  const services = f.objects.filter((o) => o.kind === "Service");
  const others = f.objects.filter((o) => o.kind !== "Service");
  const graph = (o) => a("in the mesh", link("mesh", [], { node: `${o.namespace ?? ""}/${o.name}`, only: "1" }));
  const parts = [
    ...section("Services", services.map((o) => row(a(objectName(o), objectLink(o)), graph(o))), ["service", ""]),
    ...section("Proxies", f.proxies.map((p) => row(a(`${p.name}.${p.namespace}`, proxyLink(p)), p.owed ? el("span", "warn", "behind") : "synced")), ["proxy", "state"]),
    ...section("Objects", others.map((o) => row(a(objectName(o), objectLink(o)))), ["object"]),
    ...section("Changes", f.changes.map((c) => row(a(String(c.revision), link("change", [String(c.revision)])), new Date(c.observed).toLocaleTimeString(), changeText(c), c.state)), ["revision", "time", "what", "state"])
  ];
  if (f.leftOut) parts.push(el("p", "dim", "There is more: add a word."));
  show(title, ...warnings(incompleteText(f.controlPlanes)), ...parts.length ? parts : [el("p", "warn", "Nothing has these words in its name.")]);
  return 6e4;
}

// internal/controlplane/dashboard/src/poll.ts
function pause(doc, wait, left) {
  return new Promise((done) => {
    const over = new AbortController();
    const end = () => {
      clearTimeout(timer);
      over.abort();
      done();
    };
    const timer = setTimeout(end, wait);
    doc.addEventListener("visibilitychange", end, { signal: over.signal });
    left.addEventListener("abort", end, { signal: over.signal });
    if (left.aborted) end();
  });
}

// internal/controlplane/dashboard/src/text.ts
var once = 2 ** 31 - 1;
var isPage = (path) => /^\/(debug|metrics|version|ready)(?=$|[/?])/.test(path);
function withTools(path) {
  return el("p", "", "Tools read this page: ", el("code", "", `curl -H "Authorization: Bearer TOKEN" ${location.origin}${path}`));
}
async function showText(r, left) {
  const path = r.query.get("path") ?? "";
  if (!isPage(path)) {
    show(path, el("p", "warn", "This is not a page of the control plane."));
    return once;
  }
  if (path.startsWith("/debug/pprof/")) {
    show(path, withTools(path));
    return once;
  }
  try {
    const { type, text } = await getText(path, left);
    if (path === "/debug") {
      const { pages: pages2 } = JSON.parse(text);
      show("Debug pages", table(["page", "content"], pages2.map((p) => row(p.link ? a(p.path, isPage(p.path) ? pageLink(p.path) : p.path) : p.path, p.about))));
    } else if (type.startsWith("application/json") || type.startsWith("text/plain")) show(path, el("pre", "", text));
    else show(path, withTools(path));
  } catch (e) {
    notThere(path, e);
  }
  return once;
}

// internal/controlplane/dashboard/src/main.ts
var quick = 1e3;
var slow = 5e3;
var slowest = 3e4;
var many = 500;
function tile(id2, value, about, className = "") {
  redraw(byId(id2), el("b", className, value), el("span", "dim", about));
}
async function changes(_, left) {
  const { body: all, others } = await ask("/debug/changes?n=200", left);
  const took = totals(all.changes);
  tile("tile-last", took.length ? `${ms(quantile(took, 0.5))} / ${ms(quantile(took, 0.99))}` : "–", `p50 / p99 to the last ACK, of ${took.length} changes`);
  const under = all.changes.filter((c) => c.state !== "distributed").length;
  tile("tile-revision", String(all.newest), under ? `revision; ${under} in progress` : "revision; all distributed", under ? "warn" : "");
  redraw(byId("changes-of"), others ? `They are those of this control plane; ${others} other control ${others === 1 ? "plane counts" : "planes count"} revisions of their own.` : "");
  showChanges(all);
  return quick;
}
async function proxies(_, left) {
  const all = await get("/debug/proxies", left);
  const behind = all.proxies.filter((p) => p.owed).length;
  const bad = all.proxies.filter((p) => p.unread || refused2(p).length).length;
  const unlisted = (all.controlPlanes ?? []).reduce((n, p) => n + (p.leftOut ?? 0), 0);
  const about = [
    behind ? `${behind} behind` : "",
    bad ? `${bad} with refusals` : "",
    unlisted ? `${unlisted} not listed` : "",
    silentText(all.controlPlanes)
  ].filter(Boolean).join(", ");
  tile("tile-proxies", String(all.proxies.length + unlisted), `proxies; ${about || "all synced"}`, bad ? "bad" : about ? "warn" : "good");
  showProxies(all);
  return all.proxies.length > many ? slowest : slow;
}
async function stale(_, left) {
  const s = await get("/debug/stale", left);
  const n = s.holders.length;
  const silent = silentText(s.controlPlanes);
  tile("tile-stale", String(n), `removed endpoints still in use${silent ? `; ${silent}` : ""}`, n ? "bad" : silent ? "warn" : "good");
  showStale(s);
  return n > many ? slowest : slow;
}
async function problems(_, left) {
  const p = await get("/debug/problems", left);
  tile("tile-problems", String(count2(p)), "problems in the configuration", count2(p) ? "warn" : "good");
  showProblems(p);
  return count2(p) > many ? slowest : slow;
}
function askForToken() {
  byId("login").hidden = false;
  linkPages();
}
function linkPages() {
  for (const [id2, path] of [["debug", "/debug"], ["metrics", "/metrics"]]) byId(id2).href = pageLink(path);
}
var pages = {
  "": { section: "page-overview", looks: { changes, proxies, "stale endpoints": stale, problems } },
  mesh: { section: "page-mesh", looks: { mesh: showMesh } },
  proxy: { section: "page-detail", looks: { proxy: showProxy } },
  change: { section: "page-detail", looks: { change: showChange } },
  object: { section: "page-detail", looks: { object: showObject } },
  search: { section: "page-detail", looks: { search: showSearch } },
  text: { section: "page-detail", looks: { page: showText } }
};
var visit;
async function keep(what, look, left) {
  while (!left.aborted) {
    let wait = slow;
    if (!document.hidden) {
      try {
        wait = await look(route, left);
        failed.delete(what);
      } catch (e) {
        if (left.aborted) return;
        if (e instanceof Unauthorized) askForToken();
        failed.set(what, e instanceof Error ? e.message : String(e));
      }
      showHealth();
    }
    await pause(document, wait, left);
  }
}
var route = parse(location.hash);
function open2() {
  const before = route;
  route = parse(location.hash);
  const page = pages[route.page] ?? pages[""];
  if (!page) return;
  for (const p of Object.values(pages)) byId(p.section).hidden = p.section !== page.section;
  for (const a2 of document.querySelectorAll("nav a")) {
    const to = parse(a2.hash);
    if (a2.hash && to.page === route.page && to.query.get("path") === route.query.get("path")) a2.setAttribute("aria-current", "page");
    else a2.removeAttribute("aria-current");
  }
  byId("search").value = route.page === "search" ? route.query.get("q") ?? "" : "";
  if (visit && route.page === "mesh" && before.page === "mesh") {
    drawMesh(route);
    return;
  }
  visit?.abort();
  visit = new AbortController();
  failed.clear();
  if (page.section === "page-detail") byId("detail").replaceChildren(el("p", "dim", "…"));
  for (const [what, look] of Object.entries(page.looks)) void keep(what, look, visit.signal);
}
var failed = /* @__PURE__ */ new Map();
function showHealth() {
  const text = [...failed].map(([what, why]) => `${what}: ${why}`).join("; ");
  redraw(byId("health"), failed.size ? el("span", "bad", text) : el("span", "good", "live"));
}
byId("filter").addEventListener("input", () => showProxies());
byId("login").addEventListener("submit", (e) => {
  e.preventDefault();
  useToken(byId("token").value.trim());
  location.reload();
});
byId("find").addEventListener("submit", (e) => {
  e.preventDefault();
  location.hash = link("search", [], { q: byId("search").value.trim() });
});
for (const [id2, factor] of [["mesh-larger", 1.25], ["mesh-smaller", 0.8], ["mesh-fit", 0]]) {
  byId(id2).addEventListener("click", () => zoom(route, factor));
}
window.addEventListener("hashchange", open2);
document.addEventListener("keydown", (e) => {
  if (e.key !== "/" || e.target instanceof HTMLInputElement || e.target instanceof HTMLSelectElement) return;
  e.preventDefault();
  byId("search").focus();
});
showKey();
linkPages();
void get("/version", new AbortController().signal).then((v) => byId("version").textContent = v.version, () => void 0);
open2();
