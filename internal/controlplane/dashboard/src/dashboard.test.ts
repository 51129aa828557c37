// Tests of functions that need no browser: "make dashboard-test", with Node.

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Change, PeerStatus, Proxy } from "./api";
import { quantile, totals } from "./changes";
import { age, bytes, count as rateText, ms, objectName, percent } from "./dom";
import { summary } from "./graph";
import { layers, layout, neighbour, wayKey } from "./layout";
import { reasonText } from "./pages";
import { incompleteText, lackingText, silentText } from "./peers";
import { pause } from "./poll";
import { count } from "./problems";
import { gravity, refused } from "./proxies";
import { link, parse } from "./route";
import { isPage } from "./text";
import type { Edge } from "./traffic";
import { active, around, fold, mutualShare, namespaces, quantile as quantileOf } from "./traffic";

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

const call = (from: string, to: string, n: Partial<Edge> = {}): Edge => ({
  source: { namespace: "shop", workload: `${from}-v1`, service: from },
  destination: { namespace: "shop", workload: `${to}-v1`, service: to },
  target: { namespace: "shop", name: to }, protocol: "http",
  client: { requests: 10, errors: 1, durations: [{ fromMs: 0, toMs: 1, rate: 9 }, { fromMs: 1, toMs: 5, rate: 1 }] },
  server: { requests: 10, errors: 0, mutual: 10 }, ...n,
});

test("calls become a graph of services or workloads", () => {
  const outside: Edge = { ...call("web", "x"), destination: {}, target: { namespace: "shop", name: "api.example.com" }, server: undefined };
  const edges = [call("web", "cart"), { ...call("web", "cart"), source: { namespace: "shop", workload: "web-v2", service: "web" } }, outside];
  const g = fold(edges, "service");
  assert.deepEqual(g.nodes.map((n) => [n.id, n.outside]), [["shop/api.example.com", true], ["shop/cart", false], ["shop/web", false]]);
  assert.deepEqual(g.links.map((l) => [l.from, l.to, l.sum.requests, l.sum.errors]), [["shop/web", "shop/api.example.com", 10, 1], ["shop/web", "shop/cart", 20, 2]]);
  assert.deepEqual(mutualShare(g.links[1]!.sum), { least: 1, most: 1 });
  assert.equal(mutualShare(g.links[0]!.sum), undefined, "the other end has no sidecar, so it is unknown");
  assert.equal(quantileOf(g.links[1]!.sum.durations, 0.95), 3);
  assert.deepEqual(fold(edges, "workload").nodes.map((n) => n.id), ["shop/api.example.com", "shop/cart-v1", "shop/web-v1", "shop/web-v2"]);
});

test("a service and its application may have different names", () => {
  const edges = [
    call("web", "app", { target: { namespace: "shop", name: "svc" } }),
    call("app", "db"),
  ];
  assert.deepEqual(fold(edges, "service").links.map((l) => [l.from, l.to]), [["shop/svc", "shop/db"], ["shop/web", "shop/svc"]]);
});

test("a namespace leaves its nodes and their neighbours", () => {
  const other = call("batch", "cart", { source: { namespace: "jobs", workload: "batch", service: "batch" } });
  const far = call("x", "y", { source: { namespace: "far", workload: "x", service: "x" }, destination: { namespace: "far", workload: "y", service: "y" }, target: { namespace: "far", name: "y" } });
  assert.deepEqual(namespaces([other, far]), ["far", "jobs", "shop"]);
  assert.deepEqual(fold([other, far], "service", "shop").nodes.map((n) => n.id), ["jobs/batch", "shop/cart"]);
  assert.deepEqual(around(fold([other, far], "service"), "far/y").nodes.map((n) => n.id), ["far/x", "far/y"]);
});

test("an idle client does not hide what the server counts", () => {
  const g = fold([call("a", "b", { client: { requests: 0, errors: 0 } })], "service");
  assert.equal(g.links[0]!.sum.requests, 10);
});

test("the share with mutual TLS is a range if some servers do not count", () => {
  const noSidecar: Edge = { ...call("web", "s"), destination: { namespace: "shop", workload: "s-v2", service: "s" }, server: undefined };
  const share = (...edges: Edge[]) => mutualShare(fold(edges, "service").links[0]!.sum);
  const server = (requests: number, mutual: number) => call("web", "s", { server: { requests, errors: 0, mutual } });
  for (const [name, edges, want] of [
    ["all", [call("web", "s")], { least: 1, most: 1 }],
    ["a workload without a sidecar", [call("web", "s"), noSidecar], { least: 0.5, most: 1 }],
    ["the same with plain text", [server(10, 4), noSidecar], { least: 0.2, most: 0.7 }],
    ["only a workload without a sidecar", [noSidecar], undefined],
    ["half of the Pods were not measured", [server(5, 5)], { least: 0.5, most: 1 }],
    ["the ends were measured at different moments", [server(9.5, 9.5)], { least: 1, most: 1 }],
    ["retries", [server(12, 12)], { least: 1, most: 1 }],
    ["a client without a sidecar", [call("web", "s", { client: undefined })], { least: 1, most: 1 }],
  ] as const) assert.deepEqual(share(...edges), want, name);
});

test("connections that were opened before are not idle", () => {
  const long = (bytes: number, mutualBytes: number, n: Partial<Edge> = {}) => call("web", "db", {
    protocol: "tcp", client: { requests: 0, errors: 0, bytes, total: 4 }, server: { requests: 0, errors: 0, bytes, mutualBytes, total: 4 }, ...n,
  });
  const sum = (...edges: Edge[]) => fold(edges, "service").links[0]!.sum;
  const busy = sum(long(1e8, 1e8));
  assert.equal(summary(busy, true), "100.0 MB/s");
  assert.ok(active(busy));
  assert.deepEqual(mutualShare(busy), { least: 1, most: 1 });
  assert.deepEqual(mutualShare(sum(long(100, 40))), { least: 0.4, most: 0.4 });
  assert.deepEqual(mutualShare(sum(call("web", "db"), long(100, 40))), { least: 0.4, most: 0.4 }, "the lower one of requests and bytes");
  assert.deepEqual(mutualShare(sum(call("web", "db"), long(100, 0, { server: undefined }))), { least: 0, most: 1 }, "the TCP server has no sidecar");
  assert.equal(mutualShare(sum(long(100, 0, { server: undefined }))), undefined);
  assert.equal(summary(sum(long(0.4, 0)), true), "<1 B/s");
  assert.equal(summary(sum(long(0, 0)), true), "idle");
  assert.equal(summary(sum(call("web", "db", { client: { requests: 2, errors: 0, bytes: 2500 } })), true), "2/s, 2.5 KB/s");
  assert.equal(sum(long(0, 0, { client: { requests: 0, errors: 0, bytes: 100 }, server: { requests: 0, errors: 0, bytes: 90 } })).bytes, 100, "the client counts all bytes");
});

test("other control planes that an answer lacks are named", () => {
  const peers = [{ controlPlane: "a" }, { controlPlane: "b", silent: "no answer for 9s" }, { controlPlane: "c", leftOut: 3 }];
  assert.deepEqual(incompleteText(peers), ["Control plane b does not answer: no answer for 9s", "Control plane c has 3 more."]);
  assert.deepEqual(incompleteText(undefined), []);
  assert.equal(silentText(peers), "1 control plane does not answer");
  assert.equal(silentText([...peers, { controlPlane: "d", silent: "x" }]), "2 control planes do not answer");
  assert.equal(silentText([]), "");
  const of = (p: Partial<PeerStatus>): PeerStatus => ({ controlPlane: "b", exists: true, ...p });
  for (const [status, want] of [
    [of({ state: "distributed" }), undefined],
    [of({ state: "distributing" }), undefined],
    [of({ exists: false, silent: "hung" }), "Control plane b does not answer: hung"],
    [of({ state: "building" }), "Control plane b has it, and is about to send it."],
    [of({ state: "other version", exists: false }), "Control plane b does not have it."],
    [of({ state: "other version", origin: "shop.yaml:1", resourceVersion: "7" }), "Control plane b has another version of it (shop.yaml:1, 7)."],
  ] as const) assert.equal(lackingText(status), want);
});

test("only pages of the control plane are shown as text", () => {
  const yes = ["/debug", "/debug/proxies/web.shop/envoy/logs", "/debug/search?q=a", "/metrics", "/version"];
  const no = ["", "debug", "//debug", "https://example.com/debug", "/debugger", "/dashboard", "/\\example.com", "javascript:1"];
  assert.deepEqual(yes.filter((p) => !isPage(p)), []);
  assert.deepEqual(no.filter(isPage), []);
});

test("a pause leaves no listener behind", async () => {
  class Page extends EventTarget {
    listeners = 0;
    override addEventListener(type: string, f: EventListener, options?: AddEventListenerOptions): void {
      super.addEventListener(type, f, options);
      this.listeners++;
      options?.signal?.addEventListener("abort", () => this.listeners--);
    }
  }
  const page = new Page();
  const open = new AbortController().signal;
  for (let i = 0; i < 10; i++) await pause(page, 0, open);
  assert.equal(page.listeners, 0);
  const shown = pause(page, 2 ** 30, open);
  page.dispatchEvent(new Event("visibilitychange"));
  await shown; // long before its time
  assert.equal(page.listeners, 0);
  const left = new AbortController();
  const ended = pause(page, 2 ** 30, left.signal);
  left.abort();
  await ended;
  await pause(page, 2 ** 30, left.signal);
  assert.equal(page.listeners, 0);
});

test("layers follow calls, circles too", () => {
  const links = [["a", "b"], ["b", "c"], ["c", "a"], ["a", "c"], ["d", "d"]].map(([from, to]) => ({ from: from!, to: to! }));
  const l = layers(["a", "b", "c", "d"], links);
  assert.deepEqual(["a", "b", "c", "d"].map((i) => l.get(i)), [0, 1, 2, 0]);
  const chain = Array.from({ length: 5000 }, (_, i) => String(i));
  assert.equal(layers(chain, chain.slice(1).map((to, i) => ({ from: String(i), to }))).get("4999"), 4999);
});

test("200 services do not overlap, and arrow keys reach each", () => {
  const ids = Array.from({ length: 200 }, (_, i) => `s${i}`);
  const links = ids.slice(1).flatMap((to, i) => [{ from: `s${Math.floor(i / 3)}`, to }, { from: `s${(7 * i) % 200}`, to }]);
  const size = { width: 190, height: 44, gapX: 120, gapY: 16, perColumn: 24 };
  const { places, width, height } = layout(ids, links, size);
  assert.equal(places.size, 200);
  const list = [...places.values()];
  for (const [i, a] of list.entries()) {
    assert.ok(a.x >= 0 && a.y >= 0 && a.x + size.width <= width && a.y + size.height <= height);
    for (const b of list.slice(i + 1)) assert.ok(Math.abs(a.x - b.x) >= size.width || Math.abs(a.y - b.y) >= size.height);
  }
  const reached = new Set(["s0"]);
  for (const at of reached) for (const key of ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"]) {
    const to = neighbour(places, at, key);
    if (to) reached.add(to);
  }
  assert.equal(reached.size, 200);
  assert.equal(neighbour(places, "s0", "x"), undefined);
});

test("a long link passes beside the nodes of the layers between", () => {
  const links = [["a", "b"], ["b", "c"], ["a", "c"]].map(([from, to]) => ({ from: from!, to: to! }));
  const size = { width: 100, height: 40, gapX: 50, gapY: 10, perColumn: 9 };
  const { places, ways } = layout(["a", "b", "c"], links, size);
  const [way] = ways.get(wayKey(links[2]!)) ?? [];
  const b = places.get("b")!;
  assert.ok(way && way.x === b.x && (way.y < b.y || way.y > b.y + size.height));
});

test("routes survive any name", () => {
  const name = `a/b?c#d&e=%<img src=x onerror=alert(1)>"'`;
  for (const r of [parse(link("proxy", [name])), parse(link("object", ["Service", "shop", name]))]) assert.equal(r.path.at(-1), name);
  assert.equal(parse(link("mesh", [], { node: name, by: "" })).query.get("node"), name);
  assert.equal(link("mesh", [], { node: "" }), "#/mesh");
  assert.deepEqual(parse("").page, "");
  assert.deepEqual(parse("#/proxy/%zz").path, ["%zz"]);
});

test("shares and rates are not rounded to all or nothing", () => {
  assert.deepEqual([0, 0.0001, 0.004, 0.25, 0.9999, 1].map(percent), ["0 %", "<0.1 %", "0.4 %", "25 %", ">99.9 %", "100 %"]);
  assert.deepEqual([0, 0.01, 3, 4.25, 1500, 2e6].map(rateText), ["0", "<0.1", "3", "4.3", "1.5k", "2.0M"]);
});

test("a reason names what it waits for", () => {
  const at = (s: number) => new Date(1e12 + s * 1000).toISOString();
  assert.equal(reasonText({ cause: "waits", type: "LDS", text: "CDS", names: ["x"], since: at(0) }, at(9)), "LDS: waits: CDS: x, for 9 s");
});
