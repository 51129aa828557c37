package browser

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

const (
	limit    = 3 * time.Minute  // of one test
	patience = 40 * time.Second // of one condition
)

// tab is a page of the browser.
type tab struct {
	t     *testing.T
	ctx   context.Context
	plane *plane

	mu     sync.Mutex // guards the fields below
	errors []string   // of the console, including what the page's policy blocks
	hosts  map[string]bool
}

// open opens a tab in a new browser.
func open(t *testing.T, p *plane) *tab {
	t.Helper()
	path, err := exec.LookPath("chromium")
	require.NoError(t, err, "install it, on Debian with: apt-get install chromium")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.WindowSize(1280, 900), chromedp.Flag("disable-quic", true))
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx, plane: p, hosts: map[string]bool{}}
	chromedp.ListenTarget(ctx, b.heard)
	b.run(network.Enable(), log.Enable(), chromedp.Navigate(p.URL+"/dashboard"))
	return b
}

func (b *tab) heard(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.errors = append(b.errors, e.ExceptionDetails.Error())
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError {
			b.errors = append(b.errors, e.Entry.Text)
		}
	case *network.EventRequestWillBeSent:
		if rest, ok := strings.CutPrefix(e.Request.URL, "http"); ok {
			b.hosts[strings.SplitN(rest, "/", 4)[2]] = true
		}
	}
}

func (b *tab) run(actions ...chromedp.Action) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Run(b.ctx, actions...))
}

// visit shows a page of the dashboard and waits for a text on it.
func (b *tab) visit(hash, text string) {
	b.t.Helper()
	var ok bool
	b.run(chromedp.Evaluate(fmt.Sprintf("location.hash = %q; true", hash), &ok))
	b.await(fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

// await waits until an expression of JavaScript is true.
func (b *tab) await(expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var is bool
		if chromedp.Run(b.ctx, chromedp.Evaluate(expression, &is)) == nil && is { // an error if the page is being loaded
			return
		}
	}
	var text string
	_ = chromedp.Run(b.ctx, chromedp.Evaluate("location.href + '\\n' + document.body.innerText", &text))
	b.t.Fatalf("not so: %s\n%s\nerrors: %q", expression, text, b.errors)
}

// awaitCount waits until requests of a path were answered, and others had to wait.
func (b *tab) awaitCount(path string, asked, waited int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		a, w := b.plane.count(path)
		return a >= asked && w >= waited
	}, patience, 5*time.Millisecond, path)
}

// value evaluates an expression of JavaScript.
func value[T any](b *tab, expression string) T {
	b.t.Helper()
	var out T
	b.run(chromedp.Evaluate(expression, &out))
	return out
}

// requireNoErrors checks that the console has no errors, and that only the control plane was called.
func (b *tab) requireNoErrors() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.errors)
	require.Equal(b.t, map[string]bool{strings.TrimPrefix(b.plane.URL, "http://"): true}, b.hosts)
}

// nodes counts the drawn nodes.
const nodes = `document.querySelectorAll("#mesh-graph .node").length`

// TestHostileNames checks each page with names that are harmful where a page does not escape them.
func TestHostileNames(t *testing.T) {
	for i, name := range hostile {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			p := startPlane(t, name)
			g := hostileMesh(name)
			p.traffic.Store(&g)
			b := open(t, p)
			quoted := encode(name)
			start := strings.TrimSpace(name[:min(20, len(name))])
			for _, hash := range []string{"#/", "#/mesh", "#/mesh?by=workload", "#/mesh?node=" + quoted, "#/mesh?namespace=" + quoted, "#/proxy/" + quoted,
				"#/change/7", "#/object/VirtualService/" + quoted + "/" + quoted, "#/search?q=" + quoted} {
				b.visit(hash, start)
				b.await(`document.getElementById("health").innerText === "live"`)
				require.False(t, value[bool](b, `"hacked" in window`), hash)
				require.Zero(t, value[int](b, `document.querySelectorAll("img,iframe,body script,svg[onload],[onfocus],[onerror]").length`), hash)
				require.Empty(t, value[[]string](b, `[...document.querySelectorAll("a")].map((a) => a.getAttribute("href")).filter((h) => !/^(#\/|\/debug|\/metrics)/.test(h))`), hash)
			}
			b.requireNoErrors()
		})
	}
}

// encode encodes a part of a fragment.
func encode(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// TestKeyboard goes through the graph without a mouse.
func TestKeyboard(t *testing.T) {
	b := open(t, startPlane(t, "web"))
	b.visit("#/mesh", "service-4")
	b.await(nodes + " === 5")
	const active = `document.activeElement.dataset.id ?? ""`
	require.Equal(t, 1, value[int](b, `document.querySelectorAll("#mesh-graph .node[tabindex='0']").length`), "one place in the order of the tab key")
	b.run(chromedp.Focus("#mesh-fit"), chromedp.KeyEvent(kb.Tab))
	if value[string](b, active) == "" { // a box that scrolls comes first
		b.run(chromedp.KeyEvent(kb.Tab))
	}
	first := value[string](b, active)
	require.NotEmpty(t, first)
	b.run(chromedp.KeyEvent(kb.ArrowRight))
	second := value[string](b, active)
	require.NotEqual(t, first, second)
	b.run(chromedp.KeyEvent(kb.Enter))
	b.await(`location.hash.includes("node=")`)
	b.await(`document.getElementById("mesh-heading").innerText === "Calls of ` + second + `"`)
	require.Equal(t, second, value[string](b, active), "the focus stays")
	require.Equal(t, "true", value[string](b, `document.activeElement.getAttribute("aria-pressed")`))

	b.run(chromedp.Reload())
	b.await(`document.getElementById("mesh-heading").innerText === "Calls of ` + second + `"`) // the link has the choice
	b.run(chromedp.Click("#mesh-only"))
	b.await(`location.hash.endsWith("only=1")`)
	b.run(chromedp.Focus(".node.chosen"), chromedp.KeyEvent(kb.Escape))
	b.await(`location.hash === "#/mesh"`)

	b.run(chromedp.KeyEvent("/"))
	require.Equal(t, "search", value[string](b, "document.activeElement.id"))
	b.run(chromedp.SetValue("#search", "web"), chromedp.KeyEvent(kb.Enter)) // the driver also types the slash, which a keyboard does not
	b.await(`document.body.innerText.includes("Search for web")`)
	b.requireNoErrors()
}

// TestGraphShows checks what nodes and connections say in colour, lines and words.
func TestGraphShows(t *testing.T) {
	b := open(t, startPlane(t, "web"))
	b.visit("#/mesh", "service-4")
	b.await(nodes + " === 5")
	label := func(id string) string {
		return value[string](b, `document.querySelector("[data-id='`+id+`']").getAttribute("aria-label")`)
	}
	require.Equal(t, "service-1 in shop: 20/s, 50 % errors, p99 5.0 ms", label("shop/service-1"))
	require.Equal(t, 2, value[int](b, `document.querySelectorAll(".node.bad").length`), "the one that fails, and the one at the edge that calls it")
	require.Positive(t, value[int](b, `document.querySelectorAll(".link.bad").length`))
	require.Positive(t, value[int](b, `document.querySelectorAll(".link.plain").length`), "plain text is a dashed line")
	require.Contains(t, value[string](b, `document.getElementById("mesh-calls").innerText`), "40 %", "and a number")
	b.requireNoErrors()
}

// TestManyServices checks that 200 services can be read.
func TestManyServices(t *testing.T) {
	p := startPlane(t, "web")
	g := mesh(200, "shop")
	p.traffic.Store(&g)
	b := open(t, p)
	b.visit("#/mesh", "service-199")
	b.await(nodes + " === 200")
	size := value[float64](b, `Math.min(...[...document.querySelectorAll(".node .name")].map((n) => parseFloat(getComputedStyle(n).fontSize) * n.getScreenCTM().a))`)
	require.GreaterOrEqual(t, size, 9.5, "the size of names in pixels")
	overlaps := value[int](b, `(() => {
		const boxes = [...document.querySelectorAll(".node rect")].map((r) => r.getBoundingClientRect());
		return boxes.filter((a, i) => boxes.some((b, j) => j > i && a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)).length;
	})()`)
	require.Zero(t, overlaps)
	took := value[float64](b, `(() => { const before = performance.now(); document.getElementById("mesh-fit").click(); return performance.now() - before; })()`)
	require.Less(t, took, 2000.0, "milliseconds to draw")
	t.Logf("names of %.1f pixels, drawn in %.0f ms", size, took)
	b.run(chromedp.Click("#mesh-larger"))
	require.Greater(t, value[float64](b, `document.querySelector(".node .name").getScreenCTM().a`), size/13)
	b.requireNoErrors()
}

func TestNamespaces(t *testing.T) {
	p := startPlane(t, "web")
	g := mesh(5, "shop")
	g["edges"] = append(g["edges"].([]object), mesh(4, "bank")["edges"].([]object)...)
	p.traffic.Store(&g)
	b := open(t, p)
	b.visit("#/mesh", "service-4")
	b.await(nodes + " === 9")
	b.run(chromedp.SetValue("#mesh-namespace", "bank"), chromedp.Evaluate(`document.getElementById("mesh-namespace").onchange()`, nil))
	b.await(nodes + " === 4")
	require.Contains(t, value[string](b, "location.hash"), "namespace=bank")
	b.run(chromedp.SetValue("#mesh-by", "workload"), chromedp.Evaluate(`document.getElementById("mesh-by").onchange()`, nil))
	b.await(`document.body.innerText.includes("service-1-v1")`)
	b.requireNoErrors()
}

// TestPages checks what the pages of a proxy, a change and an object say of what is late.
func TestPages(t *testing.T) {
	b := open(t, startPlane(t, "web"))
	for hash, texts := range map[string][]string{
		"#/proxy/web.web":                 {"Proxy web.web", "LDS web: Envoy refused it: web", "It lacks 1 revision", "change 7", "LDS waits: web"},
		"#/change/7":                      {"Change 7", "updated VirtualService/web/web", "until the last proxy's answer", "9.0 ms", "web.web", "LDS: Envoy refused it: web"},
		"#/object/VirtualService/web/web": {"VirtualService/web/web", "1 refused it", "Proxies that do not have it"},
		"#/search?q=web":                  {"Services", "Proxies", "Objects", "Changes", "There is more: add a word."},
	} {
		for _, text := range texts {
			b.visit(hash, text)
		}
	}
	b.visit("#/search?q=web", "in the mesh")
	b.run(chromedp.Click(`//a[text()="in the mesh"]`))
	b.await(`location.hash.startsWith("#/mesh?node=web%2Fweb")`)
	b.requireNoErrors()
}

// TestLeftPages checks that the answer of a page that was left changes nothing on the next one.
func TestLeftPages(t *testing.T) {
	t.Run("drawing", func(t *testing.T) {
		p := startPlane(t, "web")
		const slow, next = "/debug/explain/VirtualService/web/web", "/debug/proxies/web.web"
		release := p.hold(slow)
		b := open(t, p)
		b.visit("#/object/VirtualService/web/web", "…")
		b.awaitCount(slow, 0, 1)
		b.visit("#/proxy/web.web", "Proxy web.web")
		require.True(t, value[bool](b, `window.titles = []; new MutationObserver(() => titles.push(document.querySelector("#detail h2")?.innerText))
			.observe(document.getElementById("detail"), { childList: true, subtree: true, characterData: true }); true`))
		release()
		b.awaitCount(slow, 1, 1)
		before, _ := p.count(next)
		b.awaitCount(next, before+2, 0)
		require.NotContains(t, value[[]string](b, "titles"), "VirtualService/web/web")
		require.Equal(t, "Proxy web.web", value[string](b, `document.querySelector("#detail h2").innerText`))
	})
	t.Run("failing", func(t *testing.T) {
		p := startPlane(t, "web")
		const slow, next = "/debug/proxies", "/debug/proxies/web.web"
		p.fail(slow)
		release := p.hold(slow)
		b := open(t, p)
		b.awaitCount(slow, 0, 1)
		b.visit("#/proxy/web.web", "Proxy web.web")
		release()
		b.awaitCount(slow, 1, 1)
		before, _ := p.count(next)
		b.awaitCount(next, before+2, 0)
		require.Equal(t, "live", value[string](b, `document.getElementById("health").innerText`))
	})
	t.Run("choosing", func(t *testing.T) {
		p := startPlane(t, "web")
		const slow = "/debug/traffic"
		b := open(t, p)
		b.visit("#/mesh", "service-4")
		release := p.hold(slow)
		b.awaitCount(slow, 1, 1)
		b.visit("#/mesh?node=shop%2Fservice-1", "Calls of shop/service-1")
		g := mesh(6, "shop")
		p.traffic.Store(&g)
		release()
		b.await(nodes + " === 6")
		require.Equal(t, "Calls of shop/service-1", value[string](b, `document.getElementById("mesh-heading").innerText`))
	})
}

// TestRedrawing checks that the focus and the selection survive new answers.
func TestRedrawing(t *testing.T) {
	const focused = `window.focused === document.activeElement`
	t.Run("change", func(t *testing.T) {
		p := startPlane(t, "web")
		b := open(t, p)
		b.visit("#/", "VirtualService/web/web")
		b.run(chromedp.Focus(".change summary"))
		require.True(t, value[bool](b, `(window.focused = document.activeElement).tagName === "SUMMARY"`))
		newer := aChange(8, object{"kind": "Service", "namespace": "shop", "name": "cart", "operation": "added"})
		older := aChange(7, object{"kind": "VirtualService", "namespace": "web", "name": "web", "operation": "updated"})
		p.change("/debug/changes", object{"now": now, "newest": 8, "changes": []object{newer, older}})
		b.await(`document.querySelectorAll(".change").length === 2`)
		require.True(t, value[bool](b, focused))
		b.run(chromedp.KeyEvent(kb.Enter))
		b.await(`document.querySelector(".change[open]")?.innerText.includes("change 7: which proxies have it")`)
		asked, _ := p.count("/debug/changes")
		b.awaitCount("/debug/changes", asked+2, 0)
		require.True(t, value[bool](b, focused))
		require.True(t, value[bool](b, `document.querySelector(".change[open] summary") === window.focused`))
	})
	t.Run("order", func(t *testing.T) {
		p := startPlane(t, "web")
		well := aProxy("well")
		delete(well, "owed")
		delete(well, "types")
		well["types"] = []object{}
		p.change("/debug/proxies", object{"now": now, "proxies": []object{aProxy("ill"), well}})
		b := open(t, p)
		b.visit("#/", "well.well")
		require.True(t, value[bool](b, `(window.focused = document.querySelector("#proxies a[href$='well.well']")).focus(); `+focused))
		worse, better := aProxy("well"), aProxy("ill")
		better["types"], better["owed"] = []object{}, 0
		p.change("/debug/proxies", object{"now": now, "proxies": []object{better, worse}})
		b.await(`document.querySelector("#proxies tbody tr").innerText.startsWith("well.well")`)
		require.True(t, value[bool](b, focused))
	})
	t.Run("selection", func(t *testing.T) {
		const text, page = "LDS web: Envoy refused it: web", "/debug/proxies/web.web"
		p := startPlane(t, "web")
		b := open(t, p)
		b.visit("#/proxy/web.web", text)
		const selected = `getSelection().toString()`
		require.Equal(t, text, value[string](b, `getSelection().selectAllChildren(document.querySelector("p.bad")); `+selected))
		behind := aProxy("web")
		behind["owed"] = 12
		p.change(page, object{"now": now, "proxy": behind})
		b.await(`document.body.innerText.includes("It lacks 12 revisions")`)
		require.Equal(t, text, value[string](b, selected))
	})
}

// TestLongLists checks that lists which grow in an incident have bounds.
func TestLongLists(t *testing.T) {
	p := startPlane(t, "web")
	var holders, problems []object
	for i := range 1000 {
		holders = append(holders, object{"name": fmt.Sprintf("p%d", i), "namespace": "web", "address": "10.0.0.1:80", "cluster": "c", "since": now})
		problems = append(problems, object{"severity": "error", "message": fmt.Sprintf("problem %d", i)})
	}
	away := []object{{"name": "gone", "namespace": "web", "since": now, "endpoints": 1}}
	p.change("/debug/stale", object{"now": now, "holders": holders, "disconnected": away})
	p.change("/debug/problems", object{"problems": object{"config": problems}})
	b := open(t, p)
	b.visit("#/", "problem 0")
	b.visit("#/", "gone.web")
	for _, list := range []string{"stale", "problems"} {
		require.LessOrEqual(t, value[int](b, `document.querySelectorAll("#`+list+` tbody tr").length`), 201)
		require.Contains(t, value[string](b, `document.getElementById("`+list+`").innerText`), "and 800 more", list)
		require.Equal(t, "1000", value[string](b, `document.querySelector("#tile-`+list+` b").innerText`))
	}
	b.requireNoErrors()
}

// TestOtherControlPlanes checks that an answer that lacks a control plane is not shown as complete, and that revisions are linked to
// changes of the control plane that counted them.
func TestOtherControlPlanes(t *testing.T) {
	const elsewhere = "10.0.0.2:15012"
	silent := []object{{"controlPlane": elsewhere, "silent": "hung"}}
	well := aProxy("well")
	well["types"], well["owed"] = []object{}, 0
	p := startPlane(t, "web")
	p.others.Store(1)
	p.change("/debug/proxies", object{"now": now, "proxies": []object{well}, "controlPlanes": silent})
	p.change("/debug/stale", object{"now": now, "holders": []object{}, "controlPlanes": silent})
	b := open(t, p)
	b.visit("#/", "well.well")
	b.await(`document.getElementById("tile-stale").innerText.includes("0")`)
	for _, tile := range []string{"tile-proxies", "tile-stale"} {
		require.Contains(t, value[string](b, `document.getElementById("`+tile+`").innerText`), "1 control plane does not answer")
		require.Zero(t, value[int](b, `document.querySelectorAll("#`+tile+` .good").length`))
	}
	require.NotContains(t, value[string](b, `document.getElementById("tile-proxies").innerText`), "all synced")
	for _, section := range []string{"proxies", "stale"} {
		require.Contains(t, value[string](b, `document.getElementById("`+section+`").innerText`), "Control plane "+elsewhere+" does not answer: hung")
	}
	b.visit("#/", "1 other control plane")

	counts := object{"acked": 1}
	p.change("/debug/changes/7", object{"now": now, "change": aChange(7, object{"kind": "Service", "name": "a"}), "counts": counts, "proxies": []object{}})
	b.visit("#/change/7", "No proxy of this control plane lacks it.")
	p.change("/debug/explain/Service/a/a", object{"now": now, "exists": true, "state": "distributed", "counts": counts, "proxies": []object{}, "controlPlanes": silent})
	b.visit("#/object/Service/a/a", "Control plane "+elsewhere+" does not answer: hung")
	require.Equal(t, "No proxy of the other control planes lacks it.", value[string](b, `document.querySelector("#detail h3 ~ p.dim").innerText`))
	require.Zero(t, value[int](b, `document.querySelectorAll("#detail .good").length`))
	p.change("/debug/search", object{"now": now, "proxies": []object{}, "objects": []object{}, "changes": []object{}, "controlPlanes": silent})
	b.visit("#/search?q=x", "Control plane "+elsewhere+" does not answer: hung")

	moved := aProxy("moved")
	moved["controlPlane"] = elsewhere
	p.change("/debug/proxies/moved.moved", object{"now": now, "proxy": moved})
	b.visit("#/proxy/moved.moved", "since change 7 of "+elsewhere)
	require.Zero(t, value[int](b, `document.querySelectorAll("#detail a[href^='#/change']").length`), "it is another change here")
	require.Zero(t, value[int](b, `document.querySelectorAll("#detail a[href^='/debug']").length`), "this control plane does not have them")
	p.change("/debug/proxies", object{"now": now, "proxies": []object{moved, well}, "controlPlanes": []object{{"controlPlane": elsewhere}}})
	b.visit("#/", "moved.moved")
	require.Contains(t, value[string](b, `document.querySelector("#proxies tbody tr").innerText`), elsewhere)
	b.requireNoErrors()
}

// TestToken checks that the page asks for a token and sends it, and that it shows nothing without it.
func TestToken(t *testing.T) {
	p := startPlane(t, "web")
	p.token = "secret"
	b := open(t, p)
	b.run(chromedp.WaitVisible("#login"))
	b.visit("#/mesh", "requires a token")
	require.Zero(t, value[int](b, nodes))
	require.Positive(t, p.refused.Load())
	b.run(chromedp.SendKeys("#token", "secret"+kb.Enter))
	b.await(nodes + " === 5")
	for _, c := range []struct{ hash, link, text string }{
		{"#/mesh", `nav a:nth-of-type(3)`, "the newest changes"},
		{"", `#detail a`, `"newest":7`},
		{"", `nav a:nth-of-type(4)`, "moonsail_proxies"},
		{"#/proxy/web.web", `#detail ul a:nth-of-type(1)`, "/debug/proxies/web.web/config/all: not there"},
	} {
		if c.hash != "" {
			b.visit(c.hash, "web")
		}
		b.run(chromedp.Click(c.link))
		b.await(fmt.Sprintf("document.getElementById('detail').innerText.includes(%q)", c.text))
		require.Zero(t, value[int](b, `document.querySelectorAll("#detail a[href*='path=%2Fdashboard']").length`), "it needs no token")
	}
	b.visit("#/text?path=/debug/pprof/profile", "curl")
	for _, path := range []string{"https://example.com/debug", "//example.com/debug", "/dashboard", "javascript:1"} {
		b.visit("#/text?path="+encode(path), path)
		b.await(`document.getElementById("detail").innerText.includes("not a page")`)
	}
	b.visit("#/mesh", "service-4")
	require.Equal(t, map[string]bool{strings.TrimPrefix(p.URL, "http://"): true}, b.hosts)
	require.False(t, value[bool](b, `location.href.includes("secret") || document.cookie.includes("secret") || "moonsail-token" in localStorage`))
}

// TestContrast checks the colours of light and dark pages against WCAG's 4.5 for texts.
func TestContrast(t *testing.T) {
	for _, scheme := range []string{"light", "dark"} {
		t.Run(scheme, func(t *testing.T) {
			b := open(t, startPlane(t, "web"))
			b.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
			b.visit("#/mesh", "service-4")
			b.await(nodes + " === 5")
			bad := value[[]string](b, `(() => {
				const rgb = (text) => text.match(/[\d.]+/g).map(Number);
				const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
				const contrast = (a, b) => { const [x, y] = [light(rgb(a).slice(0, 3)), light(rgb(b).slice(0, 3))].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
				const out = [];
				for (const n of document.querySelectorAll(".node")) {
					const back = getComputedStyle(n.querySelector("rect")).fill;
					for (const t of n.querySelectorAll("text")) { const c = contrast(getComputedStyle(t).fill, back); if (c < 4.5) out.push(t.textContent + " " + c.toFixed(1)); }
				}
				const page = getComputedStyle(document.body).backgroundColor;
				for (const e of document.querySelectorAll(".dim, .good, .warn, .bad, h1, th")) if (e instanceof HTMLElement) { const c = contrast(getComputedStyle(e).color, page); if (c < 4.5) out.push(e.className + " " + e.textContent.slice(0, 20) + " " + c.toFixed(1)); }
				return out;
			})()`)
			require.Empty(t, bad)
		})
	}
}
