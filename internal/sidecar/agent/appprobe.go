package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
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
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// AppProbersVariable has the probes of the pod's applications, which the injector has led here:
// Istio's form, a prober by path.
const AppProbersVariable = "ISTIO_KUBE_APP_PROBERS"

// LocalProbesVariable is "true" where applications are called at the loopback address, as the mesh says: Istio's name.
const LocalProbesVariable = "REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION"

// appProbe is what is asked an application. Exactly one of the first three is set.
type appProbe struct {
	HTTPGet *struct {
		Path    string `json:"path"`
		Port    uint16 `json:"port"`
		Scheme  string `json:"scheme"` // HTTP where empty
		Headers []struct {
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
	} `json:"grpc"`
	TimeoutSeconds int `json:"timeoutSeconds"` // 0: Kubernetes' default, 1
}

// asks counts what of an application is to be asked.
func (p *appProbe) asks() (n int) {
	if p == nil {
		return 0
	}
	for _, set := range []bool{p.HTTPGet != nil, p.TCPSocket != nil, p.GRPC != nil} {
		if set {
			n++
		}
	}
	return n
}

// probePrefixes are what the paths of probes begin with, and those of hooks.
var probePrefixes = []string{"/app-health/", "/app-lifecycle/"}

// serveAppProbes answers the kubelet for the applications.
func (a *agent) serveAppProbes(mux *http.ServeMux) error {
	text := os.Getenv(AppProbersVariable)
	if text == "" {
		return nil
	}
	probes := map[string]*appProbe{}
	if err := json.Unmarshal([]byte(text), &probes); err != nil {
		return fmt.Errorf("environment variable %s holds no probers by path: %w", AppProbersVariable, err)
	}
	host := a.Workload.IPs[0]
	if local, _ := strconv.ParseBool(os.Getenv(LocalProbesVariable)); local {
		host = loopback(host)
	}
	for path, p := range probes {
		if !slices.ContainsFunc(probePrefixes, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
			return fmt.Errorf("environment variable %s: path %q begins neither with %s", AppProbersVariable, path, strings.Join(probePrefixes, " nor with "))
		}
		if p.asks() != 1 {
			return fmt.Errorf("environment variable %s: %s has not exactly one of httpGet, tcpSocket, grpc", AppProbersVariable, path)
		}
	}
	answer := func(w http.ResponseWriter, r *http.Request) {
		if p := probes[r.URL.Path]; p != nil {
			p.answer(w, r, host)
		} else {
			http.NotFound(w, r)
		}
	}
	for _, prefix := range probePrefixes { // paths are no patterns: a mux panics at those that it does not like
		mux.HandleFunc("GET "+prefix, answer)
	}
	return nil
}

// loopback is the address of this host in the family of an address.
func loopback(address string) string {
	if strings.Contains(address, ":") {
		return "::1"
	}
	return "127.0.0.1"
}

func (p *appProbe) answer(w http.ResponseWriter, r *http.Request, host string) {
	takeTime(w)
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(max(p.TimeoutSeconds, 1))*time.Second)
	defer cancel()
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
	if err != nil {
		http.Error(w, "the application: "+err.Error(), http.StatusInternalServerError)
	}
}

// appSource4 and appSource6 are whom probes come from: connections of these addresses are not
// intercepted, though the agent's user is Envoy's.
var (
	appSource4 = net.TCPAddr{IP: net.IPv4(127, 0, 0, 6)}
	appSource6 = net.TCPAddr{IP: net.ParseIP("::6")}
)

// dialApp connects to the application past Envoy. The address of IPv6 is only there where
// connections of IPv6 are intercepted.
func dialApp(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &appSource6}
	if to, err := netip.ParseAddrPort(address); err == nil && to.Addr().Is4() {
		d.LocalAddr = &appSource4
	}
	conn, err := d.DialContext(ctx, "tcp", address)
	if d.LocalAddr == &appSource6 && errors.Is(err, syscall.EADDRNOTAVAIL) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	return conn, err
}

func appAddress(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

func (p *appProbe) askTCP(ctx context.Context, host string) error {
	conn, err := dialApp(ctx, appAddress(host, p.TCPSocket.Port))
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// maxAppRedirects bounds how far a probe is sent about on the application's host, as the kubelet does, and maxStatus is the
// highest status that there is.
const (
	maxAppRedirects = 10
	maxStatus       = 999
)

// askHTTP gives the application's status. As with the kubelet a certificate is not checked, and
// redirections are followed on the same host.
func (p *appProbe) askHTTP(ctx context.Context, host string, from http.Header) (int, error) {
	h := p.HTTPGet
	scheme := strings.ToLower(orDefault(h.Scheme, "HTTP"))
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
		DisableKeepAlives: true,
		ForceAttemptHTTP2: true, // over TLS, as the kubelet does
		DialContext:       func(ctx context.Context, _, address string) (net.Conn, error) { return dialApp(ctx, address) },
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as the kubelet does: it has no roots for it
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		switch {
		case next.URL.Hostname() != host:
			return http.ErrUseLastResponse
		case len(via) >= maxAppRedirects:
			return fmt.Errorf("it has redirected %d times", maxAppRedirects)
		}
		return nil
	}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close()
	if resp.StatusCode < http.StatusOK || resp.StatusCode > maxStatus {
		return 0, fmt.Errorf("it answers with status %d", resp.StatusCode)
	}
	return resp.StatusCode, nil
}

func (p *appProbe) askGRPC(ctx context.Context, host string) error {
	conn, err := grpc.NewClient("passthrough:///"+appAddress(host, p.GRPC.Port), grpc.WithTransportCredentials(insecure.NewCredentials()),
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
