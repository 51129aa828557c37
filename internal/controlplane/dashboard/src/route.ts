// Routes are in the fragment of the URL, so that each page can be linked: #/proxy/web-1.shop.

export interface Route {
  page: string; // "" is the overview
  path: string[]; // after the page
  query: URLSearchParams;
}

// parse reads a fragment. Parts that are not valid are kept as they are.
export function parse(hash: string): Route {
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

// link returns a fragment. Empty values of the query are left out.
export function link(page: string, path: string[] = [], query: Record<string, string | undefined> = {}): string {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) q.set(name, value);
  const text = q.toString();
  return `#/${[page, ...path].map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

// proxyLink returns the page of a proxy.
export function proxyLink(p: { name: string; namespace: string }): string {
  return link("proxy", [`${p.name}.${p.namespace}`]);
}

// objectLink returns the page of an object.
export function objectLink(k: { kind: string; namespace?: string; name: string }): string {
  return link("object", [k.kind, k.namespace ?? "", k.name].filter(Boolean));
}
