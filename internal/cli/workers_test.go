package cli

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProxiesWorkers(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/debug/proxies":
			_, _ = io.WriteString(w, `{"proxies":[{"name":"web","namespace":"shop"},{"name":"api","namespace":"shop"},{"name":"old","namespace":"shop"}]}`)
		case "/debug/proxies/web.shop/envoy/workers":
			_, _ = io.WriteString(w, `{"concurrency":2,"because":"--concurrency","imbalance":"worker 1 has 90 of 100 connections, 1.8 times the mean",
				"workers":[{"worker":0,"connections":10,"cpu":0.05},{"worker":1,"connections":90,"cpu":0.9}]}`)
		case "/debug/proxies/api.shop/envoy/workers":
			_, _ = io.WriteString(w, `{"concurrency":1,"because":"a CPU limit of 1 (cpu.max)","workers":[{"worker":0,"connections":3,"cpu":-1}]}`)
		default:
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, `{"error":"the proxy's agent cannot be asked"}`)
		}
	}))
	defer s.Close()
	var out bytes.Buffer
	cmd := NewProxiesCommand()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--workers", "--address", s.URL})
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	require.Regexp(t, `(?m)^PROXY +WORKERS +CONNECTIONS +CPU +NOTE$`, out.String())
	require.Regexp(t, `(?m)^api.shop +1 +3 +\? +by a CPU limit of 1 \(cpu.max\)$`, out.String())
	require.Regexp(t, `(?m)^old.shop +- +- +- +.*cannot be asked`, out.String())
	require.Regexp(t, `(?m)^web.shop +2 +10 90 +5% 90% +UNEVEN: worker 1 has 90 of 100 connections`, out.String())
}
