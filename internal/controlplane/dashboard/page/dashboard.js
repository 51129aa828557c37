// Code generated from internal/controlplane/dashboard/src by make dashboard; DO NOT EDIT.

// internal/controlplane/dashboard/src/api.ts
var Unauthorized = class extends Error {
};
var tokenKey = "moonsail-token";
function useToken(token) {
  sessionStorage.setItem(tokenKey, token);
}
async function get(path) {
  const headers = {};
  const token = sessionStorage.getItem(tokenKey);
  if (token) headers["Authorization"] = `Bearer ${token}`;
  const answer = await fetch(path, { headers, signal: AbortSignal.timeout(1e4) });
  if (answer.status === 401) throw new Unauthorized("the control plane requires a token");
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${answer.statusText}`);
  return await answer.json();
}

// internal/controlplane/dashboard/src/dom.ts
function el(tag, className = "", ...children) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  e.append(...children);
  return e;
}
function byId(id) {
  const e = document.getElementById(id);
  if (!e) throw new Error(`the page has no #${id}`);
  return e;
}
function row(...cells) {
  return el("tr", "", ...cells.map((c) => el("td", "", c)));
}
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
function objectName(k) {
  return [k.kind, k.namespace, k.name].filter(Boolean).join("/");
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
  return list.filter((c) => c.state === "distributed" && c.proxies.acked > 0).map((c) => c.stages.totalMs ?? 0).sort((a, b) => a - b);
}
function scale(list) {
  const all = list.map((c) => c.stages.totalMs ?? 0).sort((a, b) => a - b);
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
  const more = c.objectCount - Math.min(2, c.objects?.length ?? 0);
  return more > 0 ? `${first} and ${more} more` : first || `revision ${c.revision}`;
}
function details(c) {
  const list = el("dl");
  for (const s of stages) list.append(el("dt", "", s.name), el("dd", "", `${ms(c.stages[s.key])} – ${s.what}`));
  list.append(el("dt", "", "sent"), el("dd", "", `${c.resources} resources, ${bytes(c.bytes)} encoded once`));
  const objects = el("dd");
  for (const o of c.objects ?? []) {
    const link = el("a", "", `${o.operation} ${objectName(o)}`);
    link.href = `/debug/explain/${[o.kind, o.namespace, o.name].filter(Boolean).map((p) => encodeURIComponent(p)).join("/")}`;
    objects.append(link, el("br"));
  }
  list.append(el("dt", "", "objects"), objects);
  return list;
}
var open = 0;
function showChanges(all) {
  const list = all.changes.slice(0, shown);
  const widest = scale(list);
  byId("scale").textContent = list.length ? `full width: ${ms(widest)}` : "";
  const rows = list.map((c) => {
    const summary = el(
      "summary",
      "",
      el("time", "dim", new Date(c.observed).toLocaleTimeString([], { hour12: false })),
      el("span", "name", names(c)),
      bar(c, widest),
      el("span", "number", ms(c.stages.totalMs)),
      el("span", "reached", reached(c))
    );
    const d = el("details", "change", summary);
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
  byId("changes").replaceChildren(...rows.length ? rows : [el("p", "dim", "no changes since the start of the control plane")]);
}
function showKey() {
  const key = byId("key");
  for (const s of stages) {
    const item = el("span", "item", el("i", `s-${s.name}`), s.name);
    item.title = s.what;
    key.append(item);
  }
}

// internal/controlplane/dashboard/src/problems.ts
function count(p) {
  return (p.problems.config?.length ?? 0) + (p.problems.translation?.length ?? 0);
}
function showProblems(p) {
  const rows = (p.problems.config ?? []).map((x) => {
    const where = x.file ? `${x.file}${x.line ? `:${x.line}` : ""}` : "";
    return row(
      el("span", x.severity === "error" ? "bad" : "warn", x.severity),
      x.object?.kind ? objectName(x.object) : where,
      x.field ?? "",
      x.message
    );
  });
  for (const x of p.problems.translation ?? []) rows.push(row(el("span", "bad", "error"), x.name, x.group, x.error));
  byId("problems-section").hidden = rows.length === 0;
  byId("problems").replaceChildren(table(["", "object", "field", "what"], rows));
}

// internal/controlplane/dashboard/src/proxies.ts
var most = 200;
function refused(p) {
  return p.types.flatMap((t) => (t.held ?? []).map((h) => ({ type: t.type, ...h })));
}
function state(p, now) {
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
function gravity(p) {
  if (p.unread || refused(p).length) return 0;
  return p.owed ? 1 : 2;
}
var last;
function showProxies(all = last) {
  if (!all) return;
  last = all;
  const filter = byId("filter").value.trim().toLowerCase();
  const list = all.proxies.filter((p) => `${p.name}.${p.namespace}`.toLowerCase().includes(filter)).sort((a, b) => gravity(a) - gravity(b));
  const rows = list.slice(0, most).map(
    (p) => row(`${p.name}.${p.namespace}`, state(p, all.now), String(p.settled), `${p.protocol}, ${p.strategy}`, p.version ?? "–", age(all.now, p.connected))
  );
  const parts = [table(["proxy", "state", "settled", "protocol, routes", "Envoy", "connected for"], rows)];
  if (list.length === 0) parts.push(el("p", "dim", filter ? "no proxy has this name" : "no proxy is connected"));
  if (list.length > most) parts.push(el("p", "dim", `and ${list.length - most} more: filter by name`));
  byId("proxies").replaceChildren(...parts);
}
function showStale(s) {
  const away = s.disconnected ?? [];
  const rows = [
    ...s.holders.map((h) => row(`${h.name}.${h.namespace}`, h.address, el("span", "bad", age(s.now, h.since)), h.cluster)),
    ...away.map((a) => row(`${a.name}.${a.namespace}`, `${a.endpoints} removed since`, el("span", "warn", age(s.now, a.since)), "disconnected"))
  ];
  const section = byId("stale-section");
  section.hidden = rows.length === 0;
  byId("stale").replaceChildren(table(["proxy", "endpoint", "gone for", "cluster"], rows));
}

// internal/controlplane/dashboard/src/main.ts
var quick = 1e3;
var slow = 5e3;
var slowest = 3e4;
var manyProxies = 500;
function tile(id, value, about, className = "") {
  byId(id).replaceChildren(el("b", className, value), el("span", "dim", about));
}
async function changes() {
  const all = await get("/debug/changes?n=200");
  const took = totals(all.changes);
  tile("tile-last", took.length ? `${ms(quantile(took, 0.5))} / ${ms(quantile(took, 0.99))}` : "–", `p50 / p99 to the last ACK, of ${took.length} changes`);
  const under = all.changes.filter((c) => c.state !== "distributed").length;
  tile("tile-revision", String(all.newest), under ? `revision; ${under} in progress` : "revision; all distributed", under ? "warn" : "");
  showChanges(all);
  return quick;
}
async function proxies() {
  const all = await get("/debug/proxies");
  const behind = all.proxies.filter((p) => p.owed).length;
  const bad = all.proxies.filter((p) => p.unread || refused(p).length).length;
  const about = [behind ? `${behind} behind` : "", bad ? `${bad} with refusals` : ""].filter(Boolean).join(", ");
  tile("tile-proxies", String(all.proxies.length), `proxies; ${about || "all synced"}`, bad ? "bad" : behind ? "warn" : "good");
  showProxies(all);
  return all.proxies.length > manyProxies ? slowest : slow;
}
async function stale() {
  const s = await get("/debug/stale");
  const n = s.holders.length;
  tile("tile-stale", String(n), "removed endpoints still in use", n ? "bad" : "good");
  showStale(s);
  return slow;
}
async function problems() {
  const p = await get("/debug/problems");
  tile("tile-problems", String(count(p)), "problems in the configuration", count(p) ? "warn" : "good");
  showProblems(p);
  return slow;
}
function askForToken() {
  byId("login").hidden = false;
}
async function keep(what, look) {
  for (; ; ) {
    let wait = slow;
    if (!document.hidden) {
      try {
        wait = await look();
        failed.delete(what);
      } catch (e) {
        if (e instanceof Unauthorized) askForToken();
        failed.set(what, e instanceof Error ? e.message : String(e));
      }
      showHealth();
    }
    await new Promise((done) => {
      setTimeout(done, wait);
      document.addEventListener("visibilitychange", done, { once: true });
    });
  }
}
var failed = /* @__PURE__ */ new Map();
function showHealth() {
  const text = [...failed].map(([what, why]) => `${what}: ${why}`).join("; ");
  byId("health").replaceChildren(failed.size ? el("span", "bad", text) : el("span", "good", "live"));
}
byId("filter").addEventListener("input", () => showProxies());
byId("login").addEventListener("submit", (e) => {
  e.preventDefault();
  useToken(byId("token").value.trim());
  location.reload();
});
showKey();
void get("/version").then((v) => byId("version").textContent = v.version, () => void 0);
for (const [what, look] of Object.entries({ changes, proxies, "stale endpoints": stale, problems })) void keep(what, look);
