// Package appprobe answers the kubelet's probes and lifecycle hooks for applications. The injector replaces those of a
// Pod by HTTP requests to the agent, which probes the application past Envoy.
package appprobe

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// ProbersVariable holds the probes of the Pod's applications, a JSON object of probes by path. The injector sets it, in
// Istio's form.
const ProbersVariable = "ISTIO_KUBE_APP_PROBERS"

// LocalProbesVariable is "true" if Envoy calls applications at the loopback address. The name is Istio's.
const LocalProbesVariable = "REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION"

// probe is one probe or hook of an application. Exactly one of HTTPGet, TCPSocket, GRPC and Sleep is set.
type probe struct {
	HTTPGet *struct {
		Path     string `json:"path"`
		Port     uint16 `json:"port"`
		Scheme   string `json:"scheme"`   // empty: HTTP
		Protocol string `json:"protocol"` // HTTP2: without TLS, and without an upgrade; empty: HTTP1
		Headers  []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"httpHeaders"`
	} `json:"httpGet"`
	TCPSocket *struct {
		Port uint16 `json:"port"`
	} `json:"tcpSocket"`
	GRPC *struct {
		Port    uint16  `json:"port"`
		Service *string `json:"service"`
		Mode    string  `json:"mode"` // TLS: with any certificate; empty: Plaintext
	} `json:"grpc"`
	Sleep *struct { // only a preStop hook; a field of ours
		Seconds int64 `json:"seconds"`
	} `json:"sleep"`
	TimeoutSeconds int `json:"timeoutSeconds"` // 0: 1, Kubernetes' default; hooks have none
}

// kinds counts the kinds of probe that are set.
func (p *probe) kinds() (n int) {
	if p == nil {
		return 0
	}
	for _, set := range []bool{p.HTTPGet != nil, p.TCPSocket != nil, p.GRPC != nil, p.Sleep != nil} {
		if set {
			n++
		}
	}
	return n
}

// Paths of probes and of lifecycle hooks, Istio's: PREFIX CONTAINER "/" NAME.
const (
	HealthPrefix    = "/app-health/"
	LifecyclePrefix = "/app-lifecycle/"
	preStopSuffix   = "/prestopz"
)

// PreStopPath returns the path of a container's preStop hook.
func PreStopPath(container string) string { return LifecyclePrefix + container + preStopSuffix }

var prefixes = []string{HealthPrefix, LifecyclePrefix}

// Draining is what probes and hooks need to know of the sidecar's drain.
type Draining struct {
	// Hold returns when an application may end.
	Hold func(context.Context)
	// Begin is called when a preStop hook begins, and end when it has ended.
	Begin func() (end func())
	// Released reports whether applications may have ended. From then on a probe of one that has closed its port
	// succeeds: the kubelet probes readiness until the whole Pod has ended, and would report each failure.
	Released func() bool
}

// Register adds the probes of ProbersVariable to mux. podIP is the address of the applications, unless
// LocalProbesVariable is "true". A preStop hook of any container is answered when Hold has returned, and then runs the
// container's own, if ProbersVariable has one for this path.
func Register(mux *http.ServeMux, podIP string, draining Draining) error {
	probes, err := read()
	if err != nil {
		return err
	}
	host := podIP
	if local, _ := strconv.ParseBool(os.Getenv(LocalProbesVariable)); local {
		host = loopback(host)
	}
	for _, prefix := range prefixes { // not the paths themselves: a mux panics if one is an invalid pattern
		mux.HandleFunc("GET "+prefix, func(w http.ResponseWriter, r *http.Request) {
			switch p := probes[r.URL.Path]; {
			case isPreStop(r.URL.Path) && (p != nil || strings.HasSuffix(r.URL.Path, preStopSuffix)):
				defer draining.Begin()()
				preStop(w, r, p, host, draining.Hold)
			case p != nil:
				p.answer(w, r, host, draining.Released)
			default:
				http.NotFound(w, r)
			}
		})
	}
	return nil
}

// isPreStop reports whether path is that of a container's preStop hook. The path of a hook that the agent runs ends in a key, because
// any host can call the agent.
func isPreStop(path string) bool {
	rest, ok := strings.CutPrefix(path, LifecyclePrefix)
	container, key, ok2 := strings.Cut(rest, preStopSuffix)
	return ok && ok2 && container != "" && !strings.Contains(container, "/") && (key == "" || key[0] == '/')
}

// preStop holds the application. A hook that sleeps sleeps meanwhile. Another one, which may end the application's
// listener, runs afterwards. p is nil if the container has none.
func preStop(w http.ResponseWriter, r *http.Request, p *probe, host string, hold func(context.Context)) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // the kubelet limits hooks; tests' writers have no deadline
	var least time.Duration
	if p != nil && p.Sleep != nil {
		least = time.Duration(p.Sleep.Seconds) * time.Second
	}
	sleep := time.NewTimer(least)
	defer sleep.Stop()
	hold(r.Context())
	select {
	case <-sleep.C:
	case <-r.Context().Done():
		return
	}
	if p != nil && p.Sleep == nil {
		p.answer(w, r, host, func() bool { return false })
	}
}

// read decodes and checks ProbersVariable.
func read() (map[string]*probe, error) {
	probes := map[string]*probe{}
	text := os.Getenv(ProbersVariable)
	if text == "" {
		return probes, nil
	}
	if err := json.Unmarshal([]byte(text), &probes); err != nil {
		return nil, fmt.Errorf("environment variable %s: not a JSON object of probes by path: %w", ProbersVariable, err)
	}
	for path, p := range probes {
		if !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
			return nil, fmt.Errorf("environment variable %s: invalid path %q: begin it with %s", ProbersVariable, path, strings.Join(prefixes, " or "))
		}
		if p.kinds() != 1 {
			return nil, fmt.Errorf("environment variable %s: %s: set exactly one of httpGet, tcpSocket, grpc, sleep", ProbersVariable, path)
		}
		if p.Sleep != nil && !isPreStop(path) {
			return nil, fmt.Errorf("environment variable %s: %s: only a preStop hook can sleep: set httpGet, tcpSocket or grpc", ProbersVariable, path)
		}
	}
	return probes, nil
}

// loopback returns the loopback address of address's family.
func loopback(address string) string {
	if strings.Contains(address, ":") {
		return "::1"
	}
	return "127.0.0.1"
}

func (p *probe) answer(w http.ResponseWriter, r *http.Request, host string, released func() bool) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // the probe has a timeout; tests' writers have no deadline
	ctx := r.Context()
	if !strings.HasPrefix(r.URL.Path, LifecyclePrefix) { // the kubelet limits hooks
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(max(p.TimeoutSeconds, 1))*time.Second)
		defer cancel()
	}
	var err error
	switch {
	case p.HTTPGet != nil:
		var code int
		if code, err = p.askHTTP(ctx, host, r.Header); err == nil {
			w.WriteHeader(code)
			return
		}
	case p.TCPSocket != nil:
		err = p.askTCP(ctx, host)
	default:
		err = p.askGRPC(ctx, host)
	}
	if err != nil && !(released() && hasEnded(err)) {
		http.Error(w, "application: "+err.Error(), http.StatusInternalServerError)
	}
}

// hasEnded reports whether the error of a probe is that of an application that has closed its port.
func hasEnded(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) ||
		status.Code(err) == codes.Unavailable // gRPC hides the cause
}

// source4 and source6 are the source addresses of probes. Interception skips connections from them, although the agent
// runs as Envoy's user.
var (
	source4 = net.TCPAddr{IP: net.IPv4(127, 0, 0, 6)}
	source6 = net.TCPAddr{IP: net.ParseIP("::6")}
)

// dialApp connects to the application past Envoy. The source address of IPv6 exists only if IPv6 is intercepted.
func dialApp(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &source6}
	if to, err := netip.ParseAddrPort(address); err == nil && to.Addr().Is4() {
		d.LocalAddr = &source4
	}
	conn, err := d.DialContext(ctx, "tcp", address)
	if d.LocalAddr == &source6 && errors.Is(err, syscall.EADDRNOTAVAIL) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	return conn, err
}

func appAddress(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

func (p *probe) askTCP(ctx context.Context, host string) error {
	conn, err := dialApp(ctx, appAddress(host, p.TCPSocket.Port))
	if err == nil {
		_ = conn.Close()
	}
	return err
}

const (
	maxRedirects = 10 // as the kubelet
	maxStatus    = 999
)

// askHTTP returns the application's status. Like the kubelet, it accepts any certificate and follows redirects on the same
// host.
func (p *probe) askHTTP(ctx context.Context, host string, from http.Header) (int, error) {
	h := p.HTTPGet
	scheme := strings.ToLower(cmp.Or(h.Scheme, "HTTP"))
	url := scheme + "://" + appAddress(host, h.Port) + "/" + strings.TrimPrefix(h.Path, "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	for _, name := range []string{"User-Agent", "Accept"} {
		if v := from.Get(name); v != "" {
			req.Header.Set(name, v)
		}
	}
	for _, header := range h.Headers {
		if strings.EqualFold(header.Name, "host") {
			req.Host = header.Value
		} else {
			req.Header.Add(header.Name, header.Value)
		}
	}
	transport := &http.Transport{
		Protocols:         p.httpProtocols(),
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, address string) (net.Conn, error) { return dialApp(ctx, address) },
		TLSClientConfig:   anyCertificate(),
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		switch {
		case next.URL.Hostname() != host:
			return http.ErrUseLastResponse
		case len(via) >= maxRedirects:
			return fmt.Errorf("it redirected %d times", maxRedirects)
		}
		return nil
	}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close()
	if resp.StatusCode < http.StatusOK || resp.StatusCode > maxStatus {
		return 0, fmt.Errorf("invalid status %d", resp.StatusCode)
	}
	return resp.StatusCode, nil
}

// httpProtocols returns the versions of HTTP that a probe may use. Over TLS the application chooses, as for the kubelet.
func (p *probe) httpProtocols() *http.Protocols {
	out := &http.Protocols{}
	out.SetHTTP2(true)
	if p.HTTPGet.Protocol == "HTTP2" {
		out.SetUnencryptedHTTP2(true)
	} else {
		out.SetHTTP1(true)
	}
	return out
}

// anyCertificate returns TLS settings like the kubelet's: it has no roots for applications.
func anyCertificate() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true} //nolint:gosec // see above
}

func (p *probe) askGRPC(ctx context.Context, host string) error {
	transport := insecure.NewCredentials()
	if p.GRPC.Mode == "TLS" {
		transport = credentials.NewTLS(anyCertificate())
	}
	conn, err := grpc.NewClient("passthrough:///"+appAddress(host, p.GRPC.Port), grpc.WithTransportCredentials(transport),
		grpc.WithContextDialer(dialApp), grpc.WithNoProxy(), grpc.WithUserAgent("kube-probe"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	req := &healthv1.HealthCheckRequest{}
	if p.GRPC.Service != nil {
		req.Service = *p.GRPC.Service
	}
	resp, err := healthv1.NewHealthClient(conn).Check(ctx, req)
	if err != nil {
		return err
	}
	if resp.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		return errors.New("health: " + resp.GetStatus().String())
	}
	return nil
}
