// The dashboard requests the debug pages repeatedly while it is visible, and shows them.

import type { Changes, Problems, Proxies, Stale } from "./api";
import { Unauthorized, ask, get, pageLink, useToken } from "./api";
import { quantile, showChanges, showKey, totals } from "./changes";
import { byId, el, ms } from "./dom";
import { drawMesh, showMesh, zoom } from "./mesh";
import { showChange, showObject, showProxy, showSearch } from "./pages";
import { silentText } from "./peers";
import { pause } from "./poll";
import { count, showProblems } from "./problems";
import { refused, showProxies, showStale } from "./proxies";
import { redraw } from "./redraw";
import type { Route } from "./route";
import { link, parse } from "./route";
import { showText } from "./text";

// Intervals in milliseconds. A list of thousands has megabytes, and is requested less often.
const quick = 1000;
const slow = 5000;
const slowest = 30_000;
const many = 500;

function tile(id: string, value: string, about: string, className = ""): void {
  redraw(byId(id), el("b", className, value), el("span", "dim", about));
}

async function changes(_: Route, left: AbortSignal): Promise<number> {
  const { body: all, others } = await ask<Changes>("/debug/changes?n=200", left);
  const took = totals(all.changes);
  tile("tile-last", took.length ? `${ms(quantile(took, 0.5))} / ${ms(quantile(took, 0.99))}` : "–", `p50 / p99 to the last ACK, of ${took.length} changes`);
  const under = all.changes.filter((c) => c.state !== "distributed").length;
  tile("tile-revision", String(all.newest), under ? `revision; ${under} in progress` : "revision; all distributed", under ? "warn" : "");
  redraw(byId("changes-of"), others ? `They are those of this control plane; ${others} other control ${others === 1 ? "plane counts" : "planes count"} revisions of their own.` : "");
  showChanges(all);
  return quick;
}

async function proxies(_: Route, left: AbortSignal): Promise<number> {
  const all = await get<Proxies>("/debug/proxies", left);
  const behind = all.proxies.filter((p) => p.owed).length;
  const bad = all.proxies.filter((p) => p.unread || refused(p).length).length;
  const unlisted = (all.controlPlanes ?? []).reduce((n, p) => n + (p.leftOut ?? 0), 0);
  const about = [
    behind ? `${behind} behind` : "", bad ? `${bad} with refusals` : "", unlisted ? `${unlisted} not listed` : "", silentText(all.controlPlanes),
  ].filter(Boolean).join(", ");
  tile("tile-proxies", String(all.proxies.length + unlisted), `proxies; ${about || "all synced"}`, bad ? "bad" : about ? "warn" : "good");
  showProxies(all);
  return all.proxies.length > many ? slowest : slow;
}

async function stale(_: Route, left: AbortSignal): Promise<number> {
  const s = await get<Stale>("/debug/stale", left);
  const n = s.holders.length;
  const silent = silentText(s.controlPlanes);
  tile("tile-stale", String(n), `removed endpoints still in use${silent ? `; ${silent}` : ""}`, n ? "bad" : silent ? "warn" : "good");
  showStale(s);
  return n > many ? slowest : slow;
}

async function problems(_: Route, left: AbortSignal): Promise<number> {
  const p = await get<Problems>("/debug/problems", left);
  tile("tile-problems", String(count(p)), "problems in the configuration", count(p) ? "warn" : "good");
  showProblems(p);
  return count(p) > many ? slowest : slow;
}

// askForToken shows the form, once.
function askForToken(): void {
  byId("login").hidden = false;
  linkPages();
}

// linkPages sets the links to pages beside the dashboard.
function linkPages(): void {
  for (const [id, path] of [["debug", "/debug"], ["metrics", "/metrics"]] as const) (byId(id) as HTMLAnchorElement).href = pageLink(path);
}

// Look requests something and draws it. It returns the milliseconds until the next time. Once its page is left, it draws nothing.
type Look = (r: Route, left: AbortSignal) => Promise<number>;

// Pages by the first part of the route. Each has a section, and what it requests repeatedly.
const pages: Record<string, { section: string; looks: Record<string, Look> }> = {
  "": { section: "page-overview", looks: { changes, proxies, "stale endpoints": stale, problems } },
  mesh: { section: "page-mesh", looks: { mesh: showMesh } },
  proxy: { section: "page-detail", looks: { proxy: showProxy } },
  change: { section: "page-detail", looks: { change: showChange } },
  object: { section: "page-detail", looks: { object: showObject } },
  search: { section: "page-detail", looks: { search: showSearch } },
  text: { section: "page-detail", looks: { page: showText } },
};

let visit: AbortController | undefined; // ends the requests of the page that is shown

// keep repeats look until its page is left. It makes no requests while the page is hidden.
async function keep(what: string, look: Look, left: AbortSignal): Promise<void> {
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

let route = parse(location.hash);

// open shows the page of the URL's fragment.
function open(): void {
  const before = route;
  route = parse(location.hash);
  const page = pages[route.page] ?? pages[""];
  if (!page) return;
  for (const p of Object.values(pages)) byId(p.section).hidden = p.section !== page.section;
  for (const a of document.querySelectorAll<HTMLAnchorElement>("nav a")) {
    const to = parse(a.hash);
    if (a.hash && to.page === route.page && to.query.get("path") === route.query.get("path")) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  (byId("search") as HTMLInputElement).value = route.page === "search" ? (route.query.get("q") ?? "") : "";
  if (visit && route.page === "mesh" && before.page === "mesh") {
    drawMesh(route); // another view of the same data
    return;
  }
  visit?.abort();
  visit = new AbortController();
  failed.clear();
  if (page.section === "page-detail") byId("detail").replaceChildren(el("p", "dim", "…"));
  for (const [what, look] of Object.entries(page.looks)) void keep(what, look, visit.signal);
}

const failed = new Map<string, string>();

function showHealth(): void {
  const text = [...failed].map(([what, why]) => `${what}: ${why}`).join("; ");
  redraw(byId("health"), failed.size ? el("span", "bad", text) : el("span", "good", "live"));
}

byId("filter").addEventListener("input", () => showProxies());
byId("login").addEventListener("submit", (e) => {
  e.preventDefault();
  useToken((byId("token") as HTMLInputElement).value.trim());
  location.reload();
});
byId("find").addEventListener("submit", (e) => {
  e.preventDefault();
  location.hash = link("search", [], { q: (byId("search") as HTMLInputElement).value.trim() });
});
for (const [id, factor] of [["mesh-larger", 1.25], ["mesh-smaller", 0.8], ["mesh-fit", 0]] as const) {
  byId(id).addEventListener("click", () => zoom(route, factor));
}
window.addEventListener("hashchange", open);
document.addEventListener("keydown", (e) => {
  if (e.key !== "/" || e.target instanceof HTMLInputElement || e.target instanceof HTMLSelectElement) return;
  e.preventDefault();
  byId("search").focus();
});
showKey();
linkPages();
void get<{ version: string }>("/version", new AbortController().signal).then((v) => (byId("version").textContent = v.version), () => undefined);
open();
