package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func retries(t *testing.T, b *behaviour) {
	again, once, other := startBackend(t, "again", "v1"), startBackend(t, "once", "v1"), startBackend(t, "other", "v1")
	b.given(t,
		service("again", &again.app), routes("again", toWith("again", "retries: {attempts: 2, retryOn: 5xx}")),
		service("once", &once.app), routes("once", toWith("once", "retries: {attempts: 0}")),
		service("badly", &other.app), routes("badly", toWith("badly", "retries: {attempts: 3, retryOn: gateway-error}")))
	require.Equal(t, 500, b.call(t, "again", "/", "x-answer", "500").status)
	require.Len(t, again.requests(), 3, "the call and two retries")
	require.Equal(t, 200, b.call(t, "again", "/").status)
	require.Len(t, again.requests(), 4, "a success is not retried")
	require.Equal(t, 503, b.call(t, "once", "/", "x-answer", "503").status)
	require.Len(t, once.requests(), 1, "not even the default retries")
	require.Equal(t, 500, b.call(t, "badly", "/", "x-answer", "500").status)
	require.Len(t, other.requests(), 1, "500 does not count as a gateway error")
	require.Equal(t, 502, b.call(t, "badly", "/", "x-answer", "502").status)
	require.Len(t, other.requests(), 1+4)
}

func perTryTimeout(t *testing.T, b *behaviour) {
	slow := startBackend(t, "pertry", "v1")
	b.given(t, service("pertry", &slow.app),
		routes("pertry", toWith("pertry", "retries: {attempts: 1, perTryTimeout: 100ms, retryOn: 5xx}")))
	require.Equal(t, 504, b.call(t, "pertry", "/", "x-hang", "1").status)
	eventually(t, "both attempts have come", func() bool { return len(slow.requests()) == 2 }, nil) // probably after the timeout
}

// routeTimeout checks a timeout with a backend that never answers.
func routeTimeout(t *testing.T, b *behaviour) {
	slow := startBackend(t, "slow", "v1")
	b.given(t, service("slow", &slow.app), routes("slow", toWith("slow", "timeout: 150ms")))
	start := time.Now()
	require.Equal(t, 504, b.call(t, "slow", "/", "x-hang", "1").status)
	require.Greater(t, time.Since(start), 140*time.Millisecond)                               // Envoy's timers may be a little early
	eventually(t, "the call has come", func() bool { return len(slow.requests()) == 1 }, nil) // probably after the timeout
	require.Equal(t, 200, b.call(t, "slow", "/").status)
}

func mirror(t *testing.T, b *behaviour) {
	main, shadow, idle := startBackend(t, "main", "v1"), startBackend(t, "shadow", "v1"), startBackend(t, "idle", "v1")
	b.given(t, service("main", &main.app), service("shadow", &shadow.app), service("idle", &idle.app), service("unmirrored", &main.app),
		routes("main", toWith("main", "mirror: {host: shadow}, mirrorPercentage: {value: 100}")),
		routes("unmirrored", toWith("unmirrored", "mirror: {host: idle}, mirrorPercentage: {value: 0}")))
	for i := range 10 {
		require.Equal(t, "main-v1", b.call(t, "main", fmt.Sprint("/", i), "x-user", "me").body)
		require.Equal(t, "main-v1", b.call(t, "unmirrored", "/").body)
	}
	eventually(t, "all calls are mirrored", func() bool { return len(shadow.requests()) == 10 }, nil)
	paths := map[string]bool{}
	for _, r := range shadow.requests() {
		paths[r.path] = true
		require.Equal(t, "main", r.host, "the authority stays")
		require.Equal(t, "me", r.header.Get("x-user"))
	}
	require.Len(t, paths, 10)
	require.Len(t, main.requests(), 20)
	require.Empty(t, idle.requests())
}

// weights has a tolerance of six standard deviations.
func weights(t *testing.T, b *behaviour) {
	one, two := startBackend(t, "split", "v1"), startBackend(t, "split", "v2")
	b.given(t, service("split", &one.app, &two.app), subsets("split", "v1", "v2"), routes("split",
		"{route: [{destination: {host: split, subset: v1}, weight: 20}, {destination: {host: split, subset: v2}, weight: 80}]}"))
	for range 1000 {
		require.Equal(t, 200, b.call(t, "split", "/").status)
	}
	require.InDelta(t, 200, len(one.requests()), 76)
	require.Equal(t, 1000, len(one.requests())+len(two.requests()))
}

func subsetByHeader(t *testing.T, b *behaviour) {
	one, two := startBackend(t, "sub", "v1"), startBackend(t, "sub", "v2")
	b.given(t, service("sub", &one.app, &two.app), subsets("sub", "v1", "v2"), routes("sub",
		"{match: [{headers: {x-user: {exact: jason}}}, {uri: {prefix: /new}, method: {exact: GET}}], route: [{destination: {host: sub, subset: v2}}]}", to("sub/v1")))
	for range 10 {
		require.Equal(t, "sub-v1", b.call(t, "sub", "/").body)
		require.Equal(t, "sub-v2", b.call(t, "sub", "/", "x-user", "jason").body)
		require.Equal(t, "sub-v2", b.call(t, "sub", "/new/s").body)
		require.Equal(t, "sub-v1", b.call(t, "sub", "/", "x-user", "jasonx").body)
	}
}

func headerOperations(t *testing.T, b *behaviour) {
	web := startBackend(t, "heads", "v1")
	b.given(t, service("heads", &web.app), routes("heads", `{headers: {
    request: {set: {x-set: route}, add: {x-add: route}, remove: [x-gone]},
    response: {set: {x-out: route}, add: {x-more: route}, remove: [x-backend]}},
   route: [{destination: {host: heads}, headers: {
    request: {set: {x-dest: d}, add: {x-add: dest}, remove: [x-away]},
    response: {set: {x-dest-out: d}, add: {x-more: dest}}}}]}`))
	got := b.call(t, "heads", "/", "x-set", "mine", "x-add", "mine", "x-gone", "1", "x-away", "1", "x-dest", "mine", "x-kept", "k")
	require.Equal(t, 200, got.status)
	in := web.last(t).header
	require.Equal(t, []string{"route"}, in.Values("x-set"))
	require.Equal(t, []string{"d"}, in.Values("x-dest"))
	require.ElementsMatch(t, []string{"mine", "route", "dest"}, in.Values("x-add"))
	require.Empty(t, in.Values("x-gone"))
	require.Empty(t, in.Values("x-away"))
	require.Equal(t, "k", in.Get("x-kept"))
	require.Equal(t, []string{"route"}, got.header.Values("x-out"))
	require.Equal(t, []string{"d"}, got.header.Values("x-dest-out"))
	require.ElementsMatch(t, []string{"route", "dest"}, got.header.Values("x-more"))
	require.Empty(t, got.header.Values("x-backend"))
}

func rewrite(t *testing.T, b *behaviour) {
	web := startBackend(t, "rewritten", "v1")
	b.given(t, service("rewritten", &web.app), routes("rewritten",
		"{match: [{uri: {prefix: /old/}}], rewrite: {uri: /new/, authority: other.example.com}, route: [{destination: {host: rewritten}}]}",
		"{match: [{uri: {exact: /exact}}], rewrite: {uri: /different}, route: [{destination: {host: rewritten}}]}",
		`{match: [{uri: {prefix: /r/}}], rewrite: {uriRegexRewrite: {match: "/r/([^/]+)/(.*)", rewrite: "/\\2/\\1"}}, route: [{destination: {host: rewritten}}]}`,
		"{match: [{uri: {prefix: /strip}}], rewrite: {uri: /}, route: [{destination: {host: rewritten}}]}",
		"{route: [{destination: {host: rewritten}, headers: {request: {set: {Host: set.example.com}}}}]}"))
	for path, want := range map[string][2]string{
		"/old/a/b?q=1": {"other.example.com", "/new/a/b?q=1"},
		"/exact?x=y":   {"rewritten", "/different?x=y"},
		"/r/one/two":   {"rewritten", "/two/one"},
		"/strip/a":     {"rewritten", "//a"}, // as in Istio
		"/strip":       {"rewritten", "/"},
		"/else":        {"set.example.com", "/else"},
	} {
		require.Equal(t, 200, b.call(t, "rewritten", path).status, path)
		require.Equal(t, want, [2]string{web.last(t).host, web.last(t).path}, path)
	}
}

func redirect(t *testing.T, b *behaviour) {
	web := startBackend(t, "moved", "v1")
	b.given(t, service("moved", &web.app), routes("moved",
		"{match: [{uri: {exact: /all}}], redirect: {uri: /there, authority: new.example.com, scheme: https, redirectCode: 302}}",
		"{match: [{uri: {exact: /port}}], redirect: {authority: new.example.com, port: 8443}}",
		"{match: [{uri: {prefix: /v1/}}], redirect: {uri: /v2/}}",
		"{match: [{uri: {exact: /gone}}], directResponse: {status: 410, body: {string: gone}}}",
		to("moved")))
	for path, want := range map[string]answer{
		"/all":    {status: 302, body: "https://new.example.com/there"},
		"/port":   {status: 301, body: "http://new.example.com:8443/port"},
		"/v1/a?b": {status: 301, body: "http://moved/v2/?b"}, // the whole path, as in Istio
		"/gone":   {status: 410, body: ""},
	} {
		got := b.call(t, "moved", path)
		require.Equal(t, want.status, got.status, path)
		require.Equal(t, want.body, got.header.Get("Location"), path)
	}
	require.Empty(t, web.requests())
	require.Equal(t, "gone", b.call(t, "moved", "/gone").body)
	require.Equal(t, 200, b.call(t, "moved", "/").status)
}

func corsPreflight(t *testing.T, b *behaviour) {
	web := startBackend(t, "cors", "v1")
	b.given(t, service("cors", &web.app), routes("cors", toWith("cors", `corsPolicy: {allowOrigins: [{exact: "https://good.example"}],
    allowMethods: [GET, PUT], allowHeaders: [x-mine], exposeHeaders: [x-backend], maxAge: 60s, allowCredentials: true}`)))
	got, err := b.try(http.MethodOptions, "cors", "/", "Origin", "https://good.example", "Access-Control-Request-Method", "PUT")
	require.NoError(t, err)
	require.Equal(t, 200, got.status)
	require.Equal(t, "https://good.example", got.header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "GET,PUT", got.header.Get("Access-Control-Allow-Methods"))
	require.Equal(t, "x-mine", got.header.Get("Access-Control-Allow-Headers"))
	require.Equal(t, "60", got.header.Get("Access-Control-Max-Age"))
	require.Equal(t, "true", got.header.Get("Access-Control-Allow-Credentials"))
	require.Empty(t, web.requests(), "the sidecar answers")

	simple := b.call(t, "cors", "/", "Origin", "https://good.example")
	require.Equal(t, "cors-v1", simple.body)
	require.Equal(t, "https://good.example", simple.header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "x-backend", simple.header.Get("Access-Control-Expose-Headers"))
	require.Empty(t, b.call(t, "cors", "/", "Origin", "https://bad.example").header.Get("Access-Control-Allow-Origin"))
}

func faults(t *testing.T, b *behaviour) {
	web := startBackend(t, "faulty", "v1")
	b.given(t, service("faulty", &web.app), routes("faulty",
		"{match: [{uri: {exact: /abort}}], fault: {abort: {httpStatus: 418, percentage: {value: 100}}}, route: [{destination: {host: faulty}}]}",
		"{match: [{uri: {exact: /never}}], fault: {abort: {httpStatus: 418, percentage: {value: 0}}}, route: [{destination: {host: faulty}}]}",
		"{match: [{uri: {exact: /delay}}], fault: {delay: {fixedDelay: 200ms, percentage: {value: 100}}}, route: [{destination: {host: faulty}}]}",
		to("faulty")))
	for range 5 {
		require.Equal(t, 418, b.call(t, "faulty", "/abort").status)
	}
	require.Empty(t, web.requests())
	start := time.Now()
	require.Equal(t, "faulty-v1", b.call(t, "faulty", "/delay").body)
	require.GreaterOrEqual(t, time.Since(start), 190*time.Millisecond)
	for range 5 {
		require.Equal(t, 200, b.call(t, "faulty", "/never").status)
		require.Equal(t, 200, b.call(t, "faulty", "/").status)
	}
}
