package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
)

// Replica is one control plane that commands ask: the one at an address, or a Pod of a cluster.
type Replica struct {
	Name string // the Pod's name, or the address

	plane  *ControlPlane
	base   string // URL without a path
	http   *http.Client
	pod    *kube.Pod    // nil: not in a cluster
	kube   *kube.Client // its API server; nil: not in a cluster
	tunnel *kube.Tunnel // to the Pod
}

// DefaultPort is the port of debug pages.
const DefaultPort = 15014

// portName is the name of this port in Pods, as in istiod's.
const portName = "http-monitoring"

// replicaAt returns the control plane at an address: host:port or a URL.
func (c *ControlPlane) replicaAt(address string) *Replica {
	base := "http://" + address
	if strings.Contains(address, "://") {
		base = strings.TrimSuffix(address, "/")
	}
	// Debug pages do not redirect. A client that followed a redirect would send the token to its target, perhaps in plain text.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Replica{Name: terminal.WithoutPassword(address), plane: c, base: base, http: &c.http}
}

// replicaIn returns the control plane in a Pod. Each connection is a stream to the Pod's loopback address.
func (c *ControlPlane) replicaIn(cluster *kube.Client, pod *kube.Pod) (*Replica, error) {
	port := int32(DefaultPort)
	for _, container := range pod.Containers {
		if p := container.Ports[portName]; p != 0 {
			port = p
		}
	}
	tunnel, err := cluster.Tunnel(pod.Namespace, pod.Name, port)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return tunnel.Dial(ctx) }}
	return &Replica{
		Name: pod.Name, plane: c, base: fmt.Sprintf("http://localhost:%d", port), http: &http.Client{Transport: transport}, pod: pod, kube: cluster, tunnel: tunnel,
	}, nil
}

// HasLog reports whether Log can be read: the control plane runs in a Pod.
func (r *Replica) HasLog() bool { return r.pod != nil && len(r.pod.Containers) > 0 }

// Log returns the last lines of the control plane's log, if there is one.
func (r *Replica) Log(ctx context.Context, lines int) ([]byte, error) {
	if !r.HasLog() {
		return nil, errors.New("it runs in no Pod")
	}
	container := r.pod.Containers[0].Name
	for _, c := range r.pod.Containers {
		if c.Ports[portName] != 0 {
			container = c.Name
		}
	}
	return r.kube.Log(ctx, r.pod.Namespace, r.pod.Name, container, lines)
}

// String names the control plane in a sentence.
func (r *Replica) String() string {
	if r.pod == nil {
		return "the control plane at " + r.Name
	}
	return "the control plane " + r.pod.Name + "." + r.pod.Namespace
}

// isLocal reports whether the control plane is at a loopback address of this machine.
func (r *Replica) isLocal(ctx context.Context) bool {
	at, err := url.Parse(r.base)
	if r.pod != nil || err != nil {
		return false
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", at.Hostname())
	return err == nil && len(found) > 0 && !slices.ContainsFunc(found, func(a netip.Addr) bool { return !a.Unmap().IsLoopback() })
}

func (r *Replica) close() {
	if r.tunnel != nil {
		r.http.CloseIdleConnections()
		r.tunnel.Close()
	}
}

// where names the control plane in an error. Users do not know its pages.
func (r *Replica) where() string {
	if r.pod == nil {
		return "control plane at " + r.Name
	}
	return "control plane " + r.pod.Name + "." + r.pod.Namespace
}

// Get reads the JSON of a debug page into answer.
func (r *Replica) Get(ctx context.Context, path string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	resp, err := r.open(ctx, path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	r.plane.noteOthers(resp.Header.Get(debug.HeaderOthers))
	if resp.StatusCode != http.StatusOK {
		return r.refused(resp)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(answer); err != nil {
		return &terminal.UserError{What: "invalid answer", Where: r.where(), Err: err,
			Next: "check that it is a Moonsail control plane of this version (moonsail version)"}
	}
	return nil
}

// Text reads a page unchanged. The deadline of ctx may be later than Timeout, for pages that take longer.
func (r *Replica) Text(ctx context.Context, path string) ([]byte, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, Timeout)
		defer cancel()
	}
	resp, err := r.open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, r.refused(resp)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
}

// open requests a page. The caller closes the body.
func (r *Replica) open(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+path, http.NoBody)
	if err != nil {
		return nil, terminal.UsageError{Err: fmt.Errorf("--address %q: invalid address: %w", r.Name, causeOf(err))}
	}
	if err := r.plane.authorize(req); err != nil {
		return nil, err
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return nil, r.unreachable(err)
	}
	return resp, nil
}

// unreachableError is the error of a control plane that does not answer.
type unreachableError struct{ *terminal.UserError }

// Unwrap returns the error that users see.
func (e unreachableError) Unwrap() error { return e.UserError }

// causeOf returns an error without the method and URL of the request. The URL may have a password.
func causeOf(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}

func (r *Replica) unreachable(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	err = causeOf(err) // Where has the address
	var port kube.UnreachableError
	if errors.As(err, &port) {
		err = port // without what net/http was doing
	}
	if r.pod != nil {
		return unreachableError{&terminal.UserError{What: "no answer from this Pod", Where: r.where(), Err: err, Next: r.nextForPod(err)}}
	}
	return unreachableError{&terminal.UserError{What: "no control plane answers", Where: r.where(), Err: err,
		Next: "start one (see 'moonsail serve --help'), or set --address"}}
}

// nextForPod returns what to do if a Pod cannot be asked.
func (r *Replica) nextForPod(err error) string {
	if strings.Contains(err.Error(), "forbidden") { // the answer to an upgrade is only a text
		return "grant this user the right to create pods/portforward in namespace " + r.pod.Namespace + ", or ask an --address"
	}
	return fmt.Sprintf("check with 'kubectl -n %s logs %s'", r.pod.Namespace, r.pod.Name)
}

// refused returns the error for an answer that is not 200.
func (r *Replica) refused(resp *http.Response) error {
	var f debug.Failure
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // part of the answer is as good as none
	if err := json.Unmarshal(text, &f); err != nil || f.Error == "" {
		f = debug.Failure{Error: "the control plane answered " + resp.Status, Next: "check that --address is Moonsail's --http-addr"}
		switch to := resp.Header.Get("Location"); {
		case resp.StatusCode >= 300 && resp.StatusCode < 400 && to != "":
			f = debug.Failure{Error: "the answer is a redirect to " + terminal.Escape(terminal.WithoutPassword(to)) + ", which is not followed", Next: "if you trust that address, set --address to it"}
		case strings.Contains(string(text), "HTTP request to an HTTPS server"):
			f = debug.Failure{Error: "the control plane serves these pages with TLS only (--http-cert)", Next: "use --address https://HOST:PORT with --ca-file"}
		case r.pod != nil && resp.StatusCode == http.StatusNotFound:
			f = debug.Failure{Error: "it has no such page", Next: "check that it is a Moonsail control plane of this version (moonsail version): istiod answers only 'moonsail doctor'"}
		}
	}
	return answerError{&terminal.UserError{What: terminal.Escape(f.Error), Where: r.where(), Next: terminal.Escape(f.Next)}, resp.StatusCode, f.Missing}
}

// answerError is an answer that is not 200.
type answerError struct {
	*terminal.UserError
	status  int
	missing string // the object that the control plane does not have; empty: the answer is not about that
}

// Unwrap returns the error that users see.
func (e answerError) Unwrap() error { return e.UserError }

// RefusedAsWrong reports whether the control plane could not parse the request, for example its URL.
func (e answerError) RefusedAsWrong() bool {
	return e.status == http.StatusBadRequest && e.Next == ""
}

// IsTimeout reports whether no answer came in time, from the control plane or from the proxy that it asked.
func IsTimeout(err error) bool {
	var answer answerError
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &answer) && answer.status == http.StatusGatewayTimeout
}

// IsNotFound reports whether the control plane answered 404.
func IsNotFound(err error) bool {
	var answer answerError
	return errors.As(err, &answer) && answer.status == http.StatusNotFound
}

// AdviceOf returns what to do about an error, as the control plane's answer or this program names it; "": nothing.
func AdviceOf(err error) string {
	if e, ok := errors.AsType[*terminal.UserError](err); ok {
		return e.Next
	}
	return ""
}
