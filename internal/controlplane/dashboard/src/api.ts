// Types of the control plane's debug pages (internal/controlplane/debug), as far as this page shows them.

export interface Key {
  kind: string;
  namespace?: string;
  name: string;
}

export interface Change {
  revision: number;
  state: "building" | "distributing" | "distributed";
  objects: (Key & { operation: string })[] | null;
  objectCount: number;
  observed: string;
  stages: Stages;
  superseded?: boolean;
  resources: number;
  bytes: number;
  proxies: { concerned: number; acked: number; nacked: number; gone: number };
}

// Stages are in milliseconds.
export interface Stages {
  storeMs?: number;
  deriveMs?: number;
  translateMs?: number;
  sendMs?: number;
  ackMs?: number;
  totalMs?: number;
}

export interface Changes {
  now: string;
  newest: number;
  changes: Change[];
}

export interface Held {
  name: string;
  message: string;
}

export interface Proxy {
  name: string;
  namespace: string;
  connected: string;
  protocol: string;
  strategy: string;
  version?: string;
  settled: number;
  owed?: number;
  behindSince?: string;
  unread?: boolean;
  types: { type: string; wildcard?: boolean; subscribed?: number; sent?: number; acked?: number; waiting?: string; held?: Held[] }[];
}

export interface Proxies {
  now: string;
  proxies: Proxy[];
}

export interface Stale {
  now: string;
  holders: { name: string; namespace: string; address: string; cluster: string; since: string }[];
  disconnected: { name: string; namespace: string; since: string; endpoints: number }[] | null;
}

export interface Problem {
  severity: string;
  file?: string;
  line?: number;
  object?: Key;
  field?: string;
  message: string;
}

export interface Problems {
  problems: { config: Problem[] | null; translation: { group: string; name: string; error: string }[] | null };
}

// NotFound is thrown if what a page is about does not exist.
export class NotFound extends Error {}

// Unauthorized is thrown if the page needs a token.
export class Unauthorized extends Error {}

const tokenKey = "moonsail-token";

// useToken keeps a token until this tab closes.
export function useToken(token: string): void {
  sessionStorage.setItem(tokenKey, token);
}

// get reads a page. It gives up when the page of the browser is left, and after some seconds, because the next request comes soon.
export async function get<T>(path: string, left: AbortSignal): Promise<T> {
  const headers: Record<string, string> = {};
  const token = sessionStorage.getItem(tokenKey);
  if (token) headers["Authorization"] = `Bearer ${token}`;
  const answer = await fetch(path, { headers, signal: AbortSignal.any([left, AbortSignal.timeout(10_000)]) });
  if (answer.status === 401) throw new Unauthorized("the control plane requires a token");
  if (!answer.ok) {
    const why = ((await answer.json().catch(() => ({}))) as { error?: string }).error ?? `${answer.status} ${answer.statusText}`;
    left.throwIfAborted(); // also while the reason was read
    throw answer.status === 404 ? new NotFound(why) : new Error(`${path}: ${why}`);
  }
  return (await answer.json()) as T;
}
