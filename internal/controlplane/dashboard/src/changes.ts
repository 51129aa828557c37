// Changes: a bar for each change, of its stages from the event to the last proxy's answer.

import type { Change, Changes, Stages } from "./api";
import { byId, bytes, el, ms, objectName } from "./dom";
import { key, redraw } from "./redraw";
import { link, objectLink } from "./route";

// stages in order. Their colours are the style's s-store ... s-ack.
export const stages: { key: keyof Stages; name: string; what: string }[] = [
  { key: "storeMs", name: "store", what: "from the event until it is in a snapshot" },
  { key: "deriveMs", name: "derive", what: "configuration of each proxy group" },
  { key: "translateMs", name: "translate", what: "translation into Envoy's resources" },
  { key: "sendMs", name: "send", what: "until the first response is sent" },
  { key: "ackMs", name: "ack", what: "until the last proxy's answer" },
];

const shown = 40;

// quantile of sorted numbers.
export function quantile(sorted: number[], q: number): number | undefined {
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] : undefined;
}

// totals are the durations of changes that reached proxies, in milliseconds, sorted.
export function totals(list: Change[]): number[] {
  return list
    .filter((c) => c.state === "distributed" && c.proxies.acked > 0)
    .map((c) => c.stages.totalMs ?? 0)
    .sort((a, b) => a - b);
}

// scale is the duration in milliseconds of the widest bar. It fits most changes, so that a slow one does not
// make all others invisible.
function scale(list: Change[]): number {
  const all = list.map((c) => c.stages.totalMs ?? 0).sort((a, b) => a - b);
  return Math.max(1, 1.15 * (quantile(all, 0.9) ?? 1));
}

function bar(c: Change, widest: number): HTMLElement {
  const b = el("div", "bar");
  for (const s of stages) {
    const took = c.stages[s.key];
    if (!took) continue;
    const part = el("span", `s-${s.name}`);
    part.style.width = `${Math.min(100, (100 * took) / widest)}%`;
    part.title = `${s.name} ${ms(took)}: ${s.what}`;
    b.append(part);
  }
  if ((c.stages.totalMs ?? 0) > widest) b.classList.add("over");
  return b;
}

function reached(c: Change): HTMLElement {
  const p = c.proxies;
  const text = p.concerned === 0 ? "no proxy concerned" : `${p.acked}/${p.concerned}`;
  if (p.nacked > 0) return el("span", "bad", `${text}, ${p.nacked} refused it`);
  if (c.state !== "distributed") return el("span", "warn", `${text} …`);
  return el("span", p.concerned === 0 ? "dim" : "", text);
}

function names(c: Change): string {
  const first = (c.objects ?? []).slice(0, 2).map(objectName).join(", ");
  const more = c.objectCount - Math.min(2, c.objects?.length ?? 0);
  return more > 0 ? `${first} and ${more} more` : first || `revision ${c.revision}`;
}

function details(c: Change): HTMLElement {
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

let open = 0; // the revision whose details are shown; 0: none

// showChanges draws the newest changes.
export function showChanges(all: Changes): void {
  const list = all.changes.slice(0, shown);
  const widest = scale(list);
  redraw(byId("scale"), list.length ? `full width: ${ms(widest)}` : "");
  const rows = list.map((c) => {
    const summary = el(
      "summary",
      "",
      el("time", "dim", new Date(c.observed).toLocaleTimeString([], { hour12: false })),
      el("span", "name", names(c)),
      bar(c, widest),
      el("span", "number", ms(c.stages.totalMs)),
      el("span", "reached", reached(c)),
    );
    const d = key(String(c.revision), el("details", "change", summary));
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
  redraw(byId("changes"), ...(rows.length ? rows : [el("p", "dim", "no changes since the start of the control plane")]));
}

// showKey draws the legend, once.
export function showKey(): void {
  const key = byId("key");
  for (const s of stages) {
    const item = el("span", "item", el("i", `s-${s.name}`), s.name);
    item.title = s.what;
    key.append(item);
  }
}
