// Other pages of the control plane, for readers with a token: a link cannot send it.

import { getText, pageLink } from "./api";
import { a, el, row, table } from "./dom";
import { notThere, show } from "./pages";
import type { Route } from "./route";

const once = 2 ** 31 - 1; // milliseconds, the longest time that browsers wait. The page is read again when its tab is shown again.

// isPage reports whether a path is that of a page which readers may open. All are on this control plane.
export const isPage = (path: string): boolean => /^\/(debug|metrics|version|ready)(?=$|[/?])/.test(path);

interface Index {
  pages: { path: string; about: string; link?: boolean }[];
}

function withTools(path: string): HTMLElement {
  return el("p", "", "Tools read this page: ", el("code", "", `curl -H "Authorization: Bearer TOKEN" ${location.origin}${path}`));
}

// showText shows the page of ?path=.
export async function showText(r: Route, left: AbortSignal): Promise<number> {
  const path = r.query.get("path") ?? "";
  if (!isPage(path)) {
    show(path, el("p", "warn", "This is not a page of the control plane."));
    return once;
  }
  if (path.startsWith("/debug/pprof/")) { // profiles are binary, and take long
    show(path, withTools(path));
    return once;
  }
  try {
    const { type, text } = await getText(path, left);
    if (path === "/debug") {
      const { pages } = JSON.parse(text) as Index;
      show("Debug pages", table(["page", "content"], pages.map((p) => row(p.link ? a(p.path, isPage(p.path) ? pageLink(p.path) : p.path) : p.path, p.about))));
    } else if (type.startsWith("application/json") || type.startsWith("text/plain")) show(path, el("pre", "", text));
    else show(path, withTools(path));
  } catch (e) {
    notThere(path, e);
  }
  return once;
}
