// Tests of functions that need no browser: "make dashboard-test", with Node.

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Change, Proxy } from "./api";
import { quantile, totals } from "./changes";
import { age, bytes, ms, objectName } from "./dom";
import { count } from "./problems";
import { gravity, refused } from "./proxies";

const change = (state: Change["state"], totalMs: number, acked: number): Change => ({
  revision: 1, state, objects: null, objectCount: 0, observed: "", stages: { totalMs }, resources: 0, bytes: 0,
  proxies: { concerned: acked, acked, nacked: 0, gone: 0 },
});

test("only changes that reached proxies count", () => {
  const list = [change("distributed", 9, 3), change("distributed", 2, 1), change("distributing", 50, 1), change("distributed", 70, 0)];
  assert.deepEqual(totals(list), [2, 9]);
});

test("quantiles", () => {
  assert.equal(quantile([], 0.5), undefined);
  assert.equal(quantile([1, 2, 3, 4], 0.5), 3);
  assert.equal(quantile([1, 2, 3, 4], 0.99), 4);
});

test("formats of numbers", () => {
  assert.deepEqual([0.04, 9.96, 12.3, 999, 1234, 12_345].map(ms), ["0.0 ms", "10.0 ms", "12 ms", "999 ms", "1.2 s", "12 s"]);
  assert.equal(ms(undefined), "–");
  assert.deepEqual([7, 1500, 2_500_000].map(bytes), ["7 B", "1.5 KB", "2.5 MB"]);
  const at = (s: number) => new Date(1e12 + s * 1000).toISOString();
  assert.deepEqual([0.25, 60, 600, 7201, 1e6].map((s) => age(at(s), at(0))), ["250 ms", "60 s", "10 min", "2 h", "12 d"]);
  assert.equal(age(at(0), at(5)), "0.0 ms", "clocks differ");
  assert.equal(objectName({ kind: "Namespace", name: "shop" }), "Namespace/shop");
});

test("the worst proxies come first", () => {
  const proxy = (p: Partial<Proxy>): Proxy => ({
    name: "a", namespace: "b", connected: "", protocol: "delta", strategy: "vhds", settled: 1, types: [], ...p,
  });
  const held = proxy({ types: [{ type: "LDS", held: [{ name: "x", message: "y" }] }] });
  assert.deepEqual(refused(held), [{ type: "LDS", name: "x", message: "y" }]);
  const list = [proxy({}), proxy({ owed: 2 }), held, proxy({ unread: true })].map(gravity);
  assert.deepEqual(list, [2, 1, 0, 0]);
});

test("problems of both kinds are counted", () => {
  assert.equal(count({ problems: { config: null, translation: null } }), 0);
  assert.equal(count({ problems: { config: [{ severity: "error", message: "m" }], translation: [{ group: "s", name: "n", error: "e" }] } }), 2);
});
