package choices

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/lab/pair"
)

// choice is a pair that differs from another one in one thing.
type choice struct {
	name, about string
	base        string // name of the variant that it is compared with; "": others are compared with it
	setup       pair.Setup
}

// all returns the choices in the order of the report, and then those of the user.
func (o *Options) all() []choice {
	out := slices.Concat([]choice{{name: Ours, about: "the default configuration", setup: mutual()}}, connections(), forwarding(), observing(), beginnings())
	for _, name := range slices.Sorted(maps.Keys(o.Own)) {
		out = append(out, choice{name, "of --own", Ours, mutual(o.Own[name])})
	}
	return out
}

// mutual returns a pair with mutual TLS and additional objects.
func mutual(objects ...string) pair.Setup { return pair.Setup{MTLS: true, Objects: objects} }

// with returns a pair with mutual TLS and a change.
func with(change func(*pair.Setup)) pair.Setup {
	s := mutual()
	change(&s)
	return s
}

// connections returns choices about the connection between the sidecars.
func connections() []choice {
	return []choice{
		{"again", "the default again: the noise between equal pairs", Ours, mutual()},
		{"HTTP/1.1 between sidecars", "h2UpgradePolicy: DO_NOT_UPGRADE", Ours, with(func(s *pair.Setup) { s.HTTP1 = true })},
		{"the kernel's choice of workers", "no exact_balance", Ours, with(func(s *pair.Setup) { s.AnyWorker = true })},
		{"exact_balance of clients, too", "balances the application's connections over the workers of its sidecar; by default the kernel chooses", Ours, mutual(balanced)},
		{"plain text", "no TLS, and therefore HTTP/1.1", Ours, pair.Setup{}},
		{"port of TCP", "bytes are forwarded without an HTTP connection manager", Ours, with(func(s *pair.Setup) { s.TCP = true })},
		{"buffers of 32 KiB", "per_connection_buffer_limit_bytes; by default 1 MiB", Ours, mutual(buffers(32 << 10))},
		{"buffers of 128 KiB", "as above", Ours, mutual(buffers(128 << 10))},
		{"windows of 64 KiB", "HTTP/2: initial_stream_window_size, and 1 MiB for a connection", Ours, mutual(windows(64<<10, 1<<20))},
		{"windows of 1 MiB", "HTTP/2: 1 MiB and 16 MiB", Ours, mutual(windows(1<<20, 16<<20))},
		{"oghttp2", "Envoy's other HTTP/2 codec; by default nghttp2", Ours, mutual(codec)},
	}
}

// forwarding returns choices about how requests are forwarded.
func forwarding() []choice {
	return []choice{
		{"no retries", "by default 2, as Istio's", Ours, mutual(noRetries)},
		{"no retries at servers", "for requests that could not be sent to the application; by default 2, as Istio's", Ours, mutual(noInboundRetries)},
		{"Envoy's circuit breakers", "1024 connections, pending requests and requests, 3 retries; by default no limit, as Istio's", Ours, mutual(limits)},
		{"outlier detection", "5 consecutive 5xx; by default none", Ours, mutual(outliers)},
	}
}

// observing returns choices about telemetry of requests.
func observing() []choice {
	every := map[string]string{"sidecar.istio.io/statsInclusionRegexps": ".*"}
	return []choice{
		{"no metrics of requests", "by default istio_requests_total and others", Ours, mutual(noMetrics)},
		{"no istio_requests_total", "cost of one of the four metrics", Ours, mutual(noCount)},
		{"all of Envoy's statistics", "statsInclusionRegexps: .*", Ours, with(func(s *pair.Setup) { s.ClientAnnotations, s.ServerAnnotations = every, every })},
		{"an access log as text", "Istio's format; by default none", Ours, mutual(pair.AccessLog("text"))},
		{"an access log as JSON", "the same fields", Ours, mutual(pair.AccessLog("json"))},
	}
}

// beginnings returns choices about the cost of new connections.
func beginnings() []choice {
	return []choice{
		{Fresh, "maxRequestsPerConnection: 1", Ours, mutual(freshConnections)},
		{"fresh, no resumption", "the client keeps no sessions", Fresh, mutual(freshConnections, noSessions)},
		{"fresh, AES-128-GCM, TLS 1.2", "with resumption", Fresh, mutual(freshConnections, cipher("ECDHE-ECDSA-AES128-GCM-SHA256"))},
		{"fresh, AES-256-GCM, TLS 1.2", "with resumption", Fresh, mutual(freshConnections, cipher("ECDHE-ECDSA-AES256-GCM-SHA384"))},
		{"fresh, ChaCha20, TLS 1.2", "with resumption", Fresh, mutual(freshConnections, cipher("ECDHE-ECDSA-CHACHA20-POLY1305"))},
	}
}
