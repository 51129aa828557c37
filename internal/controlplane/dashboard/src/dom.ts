// Elements are made of text, never of markup, because names of objects come from users.

type Child = Node | string;

// el makes an element with a class and children.
export function el<K extends keyof HTMLElementTagNameMap>(tag: K, className = "", ...children: Child[]): HTMLElementTagNameMap[K] {
  const e = document.createElement(tag);
  if (className) e.className = className;
  e.append(...children);
  return e;
}

// a makes a link.
export function a(text: string, href: string): HTMLAnchorElement {
  const e = el("a", "", text);
  e.href = href;
  return e;
}

// byId returns an element of the page.
export function byId(id: string): HTMLElement {
  const e = document.getElementById(id);
  if (!e) throw new Error(`the page has no #${id}`);
  return e;
}

// row returns a row of a table.
export function row(...cells: Child[]): HTMLTableRowElement {
  return el("tr", "", ...cells.map((c) => el("td", "", c)));
}

// mostRows bounds the rows of a list, which is drawn every few seconds.
export const mostRows = 200;

// table returns a table with headings.
export function table(headings: string[], rows: HTMLTableRowElement[]): HTMLElement {
  const head = el("tr", "", ...headings.map((h) => el("th", "", h)));
  return el("div", "scroll", el("table", "", el("thead", "", head), el("tbody", "", ...rows)));
}

// ms formats milliseconds.
export function ms(n: number | undefined): string {
  if (n === undefined) return "–";
  if (n >= 10_000) return `${(n / 1000).toFixed(0)} s`;
  if (n >= 1000) return `${(n / 1000).toFixed(1)} s`;
  return n >= 10 ? `${n.toFixed(0)} ms` : `${n.toFixed(1)} ms`;
}

// age formats the time since a moment, by the control plane's clock.
export function age(now: string, then: string): string {
  const s = Math.max(0, (Date.parse(now) - Date.parse(then)) / 1000);
  if (s < 1) return ms(s * 1000);
  if (s < 120) return `${s.toFixed(0)} s`;
  if (s < 7200) return `${(s / 60).toFixed(0)} min`;
  return s < 172_800 ? `${(s / 3600).toFixed(0)} h` : `${(s / 86_400).toFixed(0)} d`;
}

export function bytes(n: number): string {
  if (n < 1000) return `${n} B`;
  return n < 1e6 ? `${(n / 1000).toFixed(1)} KB` : `${(n / 1e6).toFixed(1)} MB`;
}

// byteRate formats bytes for each second.
export const byteRate = (n: number): string => (n < 1 ? "<1 B/s" : `${bytes(Math.round(n))}/s`);

// objectName returns Kind/namespace/name, the form of moonsail's commands.
export function objectName(k: { kind: string; namespace?: string; name: string }): string {
  return [k.kind, k.namespace, k.name].filter(Boolean).join("/");
}

// count formats a number that may be small or large.
export function count(n: number): string {
  if (n >= 1e6) return `${(n / 1e6).toFixed(1)}M`;
  if (n >= 10_000) return `${(n / 1000).toFixed(0)}k`;
  if (n >= 1000) return `${(n / 1000).toFixed(1)}k`;
  return n >= 10 || Number.isInteger(n) ? n.toFixed(0) : n >= 0.1 ? n.toFixed(1) : "<0.1";
}

// rangeText formats a share that is not known exactly.
export function rangeText({ least, most }: { least: number; most: number }): string {
  return least === most ? percent(least) : `${percent(least)} to ${percent(most)}`;
}

// percent formats a share. It shows 0 and 100 only for none and all.
export function percent(share: number): string {
  if (share <= 0) return "0 %";
  if (share >= 1) return "100 %";
  const n = 100 * share;
  if (n < 0.1) return "<0.1 %";
  if (n > 99.9) return ">99.9 %";
  return `${n < 10 || n > 99 ? n.toFixed(1) : n.toFixed(0)} %`;
}
