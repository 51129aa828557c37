package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/xds/callstats"
)

// Mesh is a running Envoy with its upstreams.
type Mesh struct {
	world     *simulate.World
	upstreams *upstreams
	authority *authority
	process   *exec.Cmd
	output    *bytes.Buffer
	exited    chan error
	addresses map[string]string // of listeners that accept connections, by name
	dir       string
	wait      time.Duration // ports of listeners, by the wait for clients
	silent    *Mesh         // the same for silent clients, once there was one
}

// Start runs a world. It writes files into dir. The caller must call Stop.
func Start(w *simulate.World, dir string) (*Mesh, error) { return start(w, dir, patience) }

func start(w *simulate.World, dir string, wait time.Duration) (*Mesh, error) {
	binary, err := envoy.Find("")
	if err != nil {
		return nil, err
	}
	u, err := startUpstreams(reachable(w))
	if err != nil {
		return nil, err
	}
	a, err := newAuthority()
	if err != nil {
		u.stop()
		return nil, err
	}
	m := &Mesh{world: w, upstreams: u, authority: a, output: &bytes.Buffer{}, exited: make(chan error, 1), dir: dir, wait: wait}
	if err := m.start(binary.Path); err != nil {
		m.Stop()
		return nil, err
	}
	return m, nil
}

// reachable returns the clusters that have endpoints.
func reachable(w *simulate.World) []string {
	var out []string
	for _, c := range w.Clusters {
		if w.HasEndpoints(c.GetName()) {
			out = append(out, c.GetName())
		}
	}
	return out
}

func (m *Mesh) start(binary string) error {
	config, err := bootstrap(m.world, m.upstreams.ports, m.authority, m.wait)
	if err != nil {
		return err
	}
	text, err := protojson.Marshal(config)
	if err != nil {
		return err
	}
	file, admin := filepath.Join(m.dir, "bootstrap.json"), filepath.Join(m.dir, "admin")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	m.process = exec.Command(binary, "--config-path", file, "--admin-address-path", admin, "--disable-hot-restart",
		"--concurrency", "1", "--log-level", "warning", "--base-id-path", filepath.Join(m.dir, "base"), "--use-dynamic-base-id")
	// The simulator does not know the environment and sends the format itself. So does Envoy here.
	m.process.Env = append(os.Environ(), callstats.EnvWorkload+"=%ENVIRONMENT("+callstats.EnvWorkload+"):400%")
	m.process.Stdout, m.process.Stderr = m.output, m.output
	if err := m.process.Start(); err != nil {
		return err
	}
	go func() { m.exited <- m.process.Wait() }()
	return m.await(admin)
}

// await waits until all listeners are ready, or Envoy has refused its configuration.
func (m *Mesh) await(admin string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-m.exited:
			m.exited <- err
			return fmt.Errorf("envoy: %w\n%s", errors.Join(err, errors.New("exited")), m.output)
		case <-ctx.Done():
			return fmt.Errorf("envoy is not ready: %w\n%s", ctx.Err(), m.output)
		case <-tick.C:
		}
		address, err := os.ReadFile(admin)
		if err != nil || !ready(ctx, string(address)) {
			continue
		}
		m.addresses, err = listening(ctx, string(address))
		return err
	}
}

func ready(ctx context.Context, admin string) bool {
	b, err := get(ctx, admin, "/ready")
	return err == nil && strings.TrimSpace(string(b)) == "LIVE"
}

// listening returns where the listeners accept connections.
func listening(ctx context.Context, admin string) (map[string]string, error) {
	b, err := get(ctx, admin, "/listeners?format=json")
	if err != nil {
		return nil, err
	}
	return addresses(b)
}

// addresses returns where listeners accept connections, by name, from the list of Envoy's admin interface.
func addresses(b []byte) (map[string]string, error) {
	var list struct {
		Statuses []struct {
			Name    string          `json:"name"`
			Address json.RawMessage `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, s := range list.Statuses {
		a := &corev3.Address{}
		if err := protojson.Unmarshal(s.Address, a); err != nil {
			return nil, err
		}
		if sa := a.GetSocketAddress(); strings.HasPrefix(sa.GetAddress(), "127.") {
			out[s.Name] = fmt.Sprintf("%s:%d", sa.GetAddress(), sa.GetPortValue())
		}
	}
	return out, nil
}

func get(ctx context.Context, admin, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+path, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.ReadAll(resp.Body)
}

// Stop ends Envoy and the upstreams.
func (m *Mesh) Stop() {
	if m.silent != nil {
		m.silent.Stop()
	}
	if m.process != nil && m.process.Process != nil {
		_ = m.process.Process.Kill()
		<-m.exited //nolint:errcheck // killed: the error says only that
	}
	m.upstreams.stop()
}

// Call makes a real call, with the interception of the world.
func (m *Mesh) Call(c simulate.Call) (*Answer, error) {
	if c.Silent && m.wait != silence {
		quick, err := m.forSilent()
		if err != nil {
			return nil, err
		}
		return quick.Call(c)
	}
	entry, err := m.world.Entry(c)
	if err != nil {
		return nil, err
	}
	address := m.addresses[entry]
	if address == "" {
		return &Answer{Closed: true}, nil
	}
	res, err := m.world.Call(c)
	if err != nil {
		return nil, err
	}
	if res.EndsTLS {
		return m.authority.callTLS(address, c)
	}
	return call(address, c)
}

// forSilent returns the Mesh for silent clients.
func (m *Mesh) forSilent() (*Mesh, error) {
	if m.silent != nil {
		return m.silent, nil
	}
	dir := filepath.Join(m.dir, "silent")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	quick, err := start(m.world, dir, silence)
	if err != nil {
		return nil, err
	}
	m.silent = quick
	return quick, nil
}

// Differences compares an answer with the simulator's result.
func Differences(want *simulate.Result, got *Answer) []string {
	var out []string
	addf := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	switch {
	case want.Closed != "":
		if !got.Closed {
			addf("the connection should be closed (%s); got %+v", want.Closed, got)
		}
		return out
	case got.Closed:
		addf("the connection was closed")
		return out
	case want.Status != 0:
		return answerDifferences(want, got)
	case got.Seen == nil:
		addf("no upstream was called: status %d, %q", got.Status, got.Body)
		return out
	}
	if want.Clusters[got.Seen.Cluster] == 0 {
		addf("cluster %s was called", got.Seen.Cluster)
	}
	if want.Tunnel != got.Seen.Tunnel {
		addf("got tunnel %q, want %q", got.Seen.Tunnel, want.Tunnel)
	}
	if want.RouteConfig == "" { // bytes, whatever they mean
		if want.EndsTLS && want.ALPN != got.ALPN {
			addf("ALPN %q was selected instead of %q", got.ALPN, want.ALPN)
		}
		return out
	}
	return append(out, requestDifferences(want, got)...)
}

func answerDifferences(want *simulate.Result, got *Answer) []string {
	var out []string
	if got.Seen != nil {
		out = append(out, "upstream "+got.Seen.Cluster+" was called")
	}
	status, code := want.Status, ""
	if want.GRPCStatus != nil {
		status, code = http.StatusOK, fmt.Sprint(*want.GRPCStatus)
	}
	if text := got.Headers.Get("Grpc-Status"); text != code {
		out = append(out, fmt.Sprintf("got gRPC status %q, want %q", text, code))
	}
	if got.Status != status || got.Location != want.Location {
		out = append(out, fmt.Sprintf("got status %d, location %q", got.Status, got.Location))
	}
	if want.Body != "" && got.Body != want.Body {
		out = append(out, fmt.Sprintf("got body %q", got.Body))
	}
	for k, v := range want.ResponseHeaders {
		if got.Headers.Get(k) != v {
			out = append(out, fmt.Sprintf("got response header %s: %q, want %q", k, got.Headers.Get(k), v))
		}
	}
	return out
}

func requestDifferences(want *simulate.Result, got *Answer) []string {
	var out []string
	compare := func(what, got, want string) {
		if got != want {
			out = append(out, fmt.Sprintf("got %s %q, want %q", what, got, want))
		}
	}
	authority, request, response := want.Authority, want.RequestHeaders, want.ResponseHeaders
	i := slices.IndexFunc(want.Upstreams, func(u simulate.Upstream) bool { return u.Cluster == got.Seen.Cluster })
	if i >= 0 && want.Upstreams[i].Authority != "" {
		u := want.Upstreams[i]
		authority, request, response = u.Authority, u.RequestHeaders, u.ResponseHeaders
	}
	compare("path", got.Seen.Path, want.Path)
	compare("authority", got.Seen.Authority, authority)
	for k, v := range request {
		compare("request header "+k, got.Seen.Headers[k], v)
	}
	for k, v := range response {
		compare("response header "+k, strings.Join(got.Headers.Values(k), ","), v)
	}
	for _, k := range want.ResponseRemoved {
		compare("response header "+k, got.Headers.Get(k), "")
	}
	return out
}
