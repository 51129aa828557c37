// Other control planes, each of which answers for its own proxies: what their part of an answer lacks.

import type { Peer, PeerStatus } from "./api";
import { el } from "./dom";

const named = (p: Peer): string => `Control plane ${p.controlPlane}`;

const silence = (p: Peer): string => `${named(p)} does not answer: ${p.silent ?? ""}`;

// incompleteText names the control planes whose part of a list is not complete.
export function incompleteText(list: Peer[] = []): string[] {
  return list.flatMap((p) => (p.silent ? silence(p) : p.leftOut ? `${named(p)} has ${p.leftOut} more.` : []));
}

// silentText counts the control planes that do not answer; empty: all do.
export function silentText(list: Peer[] = []): string {
  const n = list.filter((p) => p.silent).length;
  return n ? `${n} control ${n === 1 ? "plane does" : "planes do"} not answer` : "";
}

// lackingText says why a control plane is not known to have sent an object to its proxies; undefined: it has.
export function lackingText(p: PeerStatus): string | undefined {
  if (p.silent) return silence(p);
  if (p.state === "distributing" || p.state === "distributed") return undefined;
  if (p.state === "building") return `${named(p)} has it, and is about to send it.`;
  if (!p.exists) return `${named(p)} does not have it.`;
  return `${named(p)} has another version of it (${[p.origin, p.resourceVersion].filter(Boolean).join(", ")}).`;
}

// warnings are paragraphs.
export const warnings = (list: string[]): HTMLElement[] => list.map((text) => el("p", "warn", text));
