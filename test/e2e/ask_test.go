package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/cli"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/halt"
)

// ask runs a command line against the control plane, and returns its exit status and standard output. The status of an
// error is 1.
func (m *mesh) ask(args ...string) (status int, out string) {
	m.t.Helper()
	var stdout, stderr bytes.Buffer
	root := cli.NewRootCommand()
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetArgs(append(args, "--address", m.http))
	err := root.ExecuteContext(m.t.Context())
	var exit terminal.ExitCode
	switch {
	case errors.As(err, &exit):
		status = int(exit)
	case err != nil:
		status = 1
		stdout.WriteString(err.Error())
	}
	return status, stdout.String()
}

// explained asks about an object until its proxies are as wanted.
func (m *mesh) explained(object string, as func(*explain.Explanation) bool) *explain.Explanation {
	m.t.Helper()
	e, text := &explain.Explanation{}, ""
	eventually(m.t, "explain "+object+" tells the truth", func() bool {
		var status int
		args := []string{"explain", object, "-o", "json"}
		if strings.Count(object, "/") == 1 {
			args = append(args, "-n", "shop")
		}
		status, text = m.ask(args...)
		e = &explain.Explanation{}
		return status == 0 && json.Unmarshal([]byte(text), e) == nil && as(e)
	}, func() string { return text })
	return e
}

// TestAnswersDuringFaults checks that answers name the proxy that is stopped, the one that refuses a resource, and
// the one that is cut off, with the reason.
func TestAnswersDuringFaults(t *testing.T) {
	for name, sotw := range map[string]bool{"delta": false, "sotw": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			askWhileFaultsAreOn(t, sotw)
		})
	}
}

func askWhileFaultsAreOn(t *testing.T, sotw bool) {
	routeType := map[bool]string{false: "VHDS", true: "RDS"}[sotw]
	web, other := startApp(t, "web", "v1"), startApp(t, "other", "v1")
	healthy, stopped := newClient("healthy"), newClient("stopped")
	base := []string{healthy.sidecar("./*"), stopped.sidecar("./*"), service("web", web), service("other", other)}
	m := startMesh(t, server.RoutesAuto, base...)
	healthy.start(t, m, sotw)
	stopped.start(t, m, sotw)

	m.write("routes.yaml", routes("web", to("other")))
	status, out := m.ask("wait", filepath.Join(m.dir, "routes.yaml"), "--timeout", "30s")
	require.Zero(t, status, out)
	require.Contains(t, out, "VirtualService/shop/web: distributed to 2 of 2 proxies (100 %)")
	requireAnswers(t, m, healthy)
	requireReason(t, m, other)

	// Stopped: it does not answer and stays connected.
	halt.Process(t, stopped.process.Pid())
	resume := func() { _ = stopped.process.Signal(syscall.SIGCONT) }
	t.Cleanup(resume)
	m.write("routes.yaml", routes("web", to("web")))
	status, out = m.ask("wait", filepath.Join(m.dir, "routes.yaml"), "--for", "distribution=50%", "--timeout", "30s")
	require.Zero(t, status, out)
	status, out = m.ask("wait", filepath.Join(m.dir, "routes.yaml"), "--timeout", "2s")
	require.Equal(t, 3, status, out)
	require.Contains(t, out, "distributed to 1 of 2 proxies (50 %); 1 behind")
	require.Regexp(t, `(?m)^  stopped\.shop: has not answered `+routeType+` for `, out)
	e := m.explained("vs/web", func(e *explain.Explanation) bool { return e.Counts.Behind == 1 })
	require.Equal(t, "stopped", e.Proxies[0].Name)
	require.Equal(t, distribution.CauseUnanswered, e.Proxies[0].Reasons[0].Cause)
	status, out = m.ask("wait", "vs/web", "-n", "shop", "--for", "distribution=50%", "--timeout", "30s")
	require.Zero(t, status, out)
	_, out = m.ask("proxies")
	require.Regexp(t, `(?m)^stopped +shop +BEHIND `, out)
	requireStale(t, m, base, resume, web)
	status, out = m.ask("wait", "vs/web", "-n", "shop", "--timeout", "30s")
	require.Zero(t, status, out)

	// Refused: only Envoy knows that the file does not exist.
	m.write("tls.yaml", tlsTo("other", "/nonexistent/roots.pem"))
	status, out = m.ask("wait", filepath.Join(m.dir, "tls.yaml"), "--timeout", "30s")
	require.Equal(t, 4, status, out)
	require.Contains(t, out, "refused CDS outbound|15080||other.shop.svc.cluster.local: ")
	require.Contains(t, out, "/nonexistent/roots.pem")
	m.explained("dr/other", func(e *explain.Explanation) bool { return e.Counts.Refused == 2 })
	status, out = m.ask("proxy-config", "clusters", "healthy.shop", "--admin", healthy.socket)
	require.Zero(t, status, out)
	require.Regexp(t, `(?m)^other\.shop\.svc\.cluster\.local +15080 +- +outbound +EDS +other\.shop +refused +differs$`, out)
	m.write("tls.yaml")

	// Cut off: its stream has ended, and it has not reconnected.
	m.explained("dr/other", func(e *explain.Explanation) bool { return e.Operation == "deleted" && e.Counts.Behind == 0 })
	m.write("pod.yaml", fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: stopped, namespace: shop}\nstatus: {podIP: %s, phase: Running}", stopped.ip))
	m.explained("pod/stopped", func(e *explain.Explanation) bool { return e.Exists && e.Everywhere() })
	stopped.process.Kill()
	eventually(t, "it is gone", func() bool { return m.proxy("stopped") == nil }, nil)
	m.write("routes.yaml", routes("web", to("other")))
	status, out = m.ask("wait", filepath.Join(m.dir, "routes.yaml"), "--timeout", "30s")
	require.Zero(t, status, out)
	require.Contains(t, out, "distributed to 1 of 1 proxies (100 %); 1 disconnected without it")
	e = m.explained("vs/web", func(e *explain.Explanation) bool { return e.Counts.Disconnected == 1 })
	require.Equal(t, "stopped", e.Proxies[0].Name)
	require.Equal(t, distribution.CauseDisconnected, e.Proxies[0].Reasons[0].Cause)
}

// requireAnswers checks that the proxy has what it should have and what it was sent.
func requireAnswers(t *testing.T, m *mesh, c *client) {
	t.Helper()
	for _, section := range []string{"listeners", "routes", "clusters", "endpoints", "all"} {
		var status int
		var out string
		eventually(t, section+" are the same", func() bool {
			status, out = m.ask("proxy-config", section, c.name+".shop", "--admin", c.socket)
			return status == 0 && !strings.Contains(out, "differs") && !strings.Contains(out, "missing") && !strings.Contains(out, "extra")
		}, func() string { return out })
		require.Contains(t, out, "ACKed")
		require.Contains(t, out, "same")
	}
}

// requireReason checks that the predicted endpoint is the one that the call reaches, and that the answer names the
// objects that decide it.
func requireReason(t *testing.T, m *mesh, to *app) {
	t.Helper()
	status, out := m.ask("why", "healthy.shop", "http://web/hello", "-H", "end-user: jason")
	require.Zero(t, status, out)
	require.Regexp(t, `^=> reaches \S+\n\nhealthy\.shop calls GET http://web/hello\n`, out)
	require.Regexp(t, `(?m)^  route +\(unnamed\)  VirtualService/shop/web$`, out)
	require.Regexp(t, `(?m)^  cluster +outbound\|15080\|\|other\.shop\.svc\.cluster\.local  100 %$`, out)
	require.Regexp(t, `(?m)^    endpoint +`+fmt.Sprintf("%s:%d", to.ip, to.port)+`  100 %$`, out)
	require.Contains(t, out, "    VirtualService/shop/web: route by http[0]  "+filepath.Join(m.dir, "routes.yaml")+":7\n")
	require.Contains(t, out, "    Sidecar/shop/healthy: what the proxy sees  ")
	require.Contains(t, out, "    Service/shop/other: cluster outbound|15080||other.shop.svc.cluster.local  ")
	status, out = m.ask("why", "healthy.shop", "http://nowhere.example/")
	require.Zero(t, status, out)
	require.Contains(t, out, "no Service or ServiceEntry has the host nowhere.example\n")
	status, out = m.ask("why", "absent.shop", "http://web/")
	require.Equal(t, 1, status)
	require.Contains(t, out, `proxy "absent.shop" is not connected`)
}

// requireStale checks that the stopped proxy is reported with a removed endpoint until it continues.
func requireStale(t *testing.T, m *mesh, base []string, resume func(), gone *app) {
	t.Helper()
	m.write("mesh.yaml", append(base[:2:2], service("web"), base[3])...) // no endpoints of web
	var out string
	eventually(t, "it is known to be stale", func() bool {
		_, out = m.ask("stale")
		return strings.Contains(out, "stopped.shop") && !strings.Contains(out, "healthy.shop")
	}, func() string { return out })
	require.Regexp(t, `(?m)^stopped\.shop +`+gone.ip+` +\S+ +outbound\|15080\|\|web\.shop\.svc\.cluster\.local +has not answered EDS for `, out)
	resume()
	eventually(t, "it is reported", func() bool {
		_, out = m.ask("stale")
		return strings.Contains(out, "no connected proxy holds a removed endpoint")
	}, func() string { return out })
	m.write("mesh.yaml", base...)
}
