// Types of the control plane's debug pages (internal/controlplane/debug), as far as this page shows them.

import { link } from "./route";

export interface Key {
  kind: string;
  namespace?: string;
  name: string;
}

// Peer is another control plane that was asked, too.
export interface Peer {
  controlPlane: string;
  silent?: string; // why it does not answer
  leftOut?: number; // how much of its answer did not fit
}

// PeerStatus is what another control plane has of an object.
export interface PeerStatus extends Peer {
  state?: string;
  exists: boolean;
  origin?: string;
  resourceVersion?: string;
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
  controlPlane?: string; // to which its revisions belong; undefined: the one that was asked
  types: { type: string; wildcard?: boolean; subscribed?: number; sent?: number; acked?: number; waiting?: string; held?: Held[] }[];
}

export interface Proxies {
  now: string;
  proxies: Proxy[];
  controlPlanes?: Peer[];
}

export interface Stale {
  now: string;
  holders: { name: string; namespace: string; address: string; cluster: string; since: string }[];
  disconnected: { name: string; namespace: string; since: string; endpoints: number }[] | null;
  controlPlanes?: Peer[];
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

let refused = false; // a request without a token

// pageLink returns a link to another page of the control plane. With a token, the dashboard shows it, because a link cannot send the token.
export function pageLink(path: string): string {
  return refused || sessionStorage.getItem(tokenKey) ? link("text", [], { path }) : path;
}

// useToken keeps a token until this tab closes.
export function useToken(token: string): void {
  sessionStorage.setItem(tokenKey, token);
}

// get reads a page. It gives up when the page of the browser is left, and after some seconds, because the next request comes soon.
export async function get<T>(path: string, left: AbortSignal): Promise<T> {
  return (await ask<T>(path, left)).body;
}

// ask is get for a page about one control plane. others is the number of other control planes, which have changes of their own.
export async function ask<T>(path: string, left: AbortSignal): Promise<{ body: T; others: number }> {
  const answer = await request(path, left);
  return { body: (await answer.json()) as T, others: Number(answer.headers.get("Moonsail-Other-Control-Planes") ?? 0) };
}

// getText reads a page of any type.
export async function getText(path: string, left: AbortSignal): Promise<{ type: string; text: string }> {
  const answer = await request(path, left);
  return { type: answer.headers.get("Content-Type") ?? "", text: await answer.text() };
}

async function request(path: string, left: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json, text/plain" };
  const token = sessionStorage.getItem(tokenKey);
  if (token) headers["Authorization"] = `Bearer ${token}`;
  const answer = await fetch(path, { headers, signal: AbortSignal.any([left, AbortSignal.timeout(10_000)]) });
  if (answer.status === 401) {
    refused = true;
    throw new Unauthorized("the control plane requires a token");
  }
  if (!answer.ok) {
    const { error, next } = (await answer.json().catch(() => ({}))) as { error?: string; next?: string };
    const why = [error ?? `${answer.status} ${answer.statusText}`, next].filter(Boolean).join(": ");
    left.throwIfAborted(); // also while the reason was read
    throw answer.status === 404 ? new NotFound(why) : new Error(`${path}: ${why}`);
  }
  return answer;
}
