package client_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/moonsail/moonsail/internal/cli/inspect"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/test/clitest"
)

// apiServer is an API server and kubelets: it lists Pods, and forwards connections to their ports to debug pages.
type apiServer struct {
	*httptest.Server
	pods   []corev1.Pod
	tagged string                  // the revision of the tag "default"; empty: there is none
	pages  map[string]http.Handler // by Pod; without an entry nothing listens
	deny   string                  // part of the path of requests that the user may not make
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{pages: map[string]http.Handler{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

// add adds a Pod of a control plane with the proxy of the same name and a change.
func (s *apiServer) add(name, args string, change func(*corev1.Pod)) {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "istio-system"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	p.Spec.Containers = []corev1.Container{{Name: "discovery", Args: strings.Fields(args)}}
	if change != nil {
		change(&p)
	}
	s.pods = append(s.pods, p)
	s.pages[name] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch page := r.URL.Path; {
		case r.Host != "localhost:15014":
			w.WriteHeader(http.StatusForbidden)
		case page == "/debug/changes":
			fmt.Fprintf(w, `{"now":"2026-01-02T12:00:00Z","newest":1,"changes":[{"revision":1,"observed":"2026-01-02T11:00:0%dZ","state":"distributed"}]}`, len(name)%10)
		case page == "/debug/proxies":
			fmt.Fprintf(w, `{"proxies":[{"name":"of-%s","namespace":"shop"}]}`, name)
		case page == "/debug/proxies/of-"+name+".shop":
			fmt.Fprintf(w, `{"proxy":{"name":"of-%s","namespace":"shop"}}`, name)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"error":"no proxy of this name is connected"}`)
		}
	})
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	switch {
	case s.deny != "" && strings.Contains(path, s.deny):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: "pods is forbidden: the user may not do this"})
	case strings.HasSuffix(path, "/pods"):
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
		for _, p := range s.pods {
			if strings.Contains(path, "/namespaces/"+p.Namespace+"/") {
				list.Items = append(list.Items, p)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
	case strings.HasSuffix(path, "/mutatingwebhookconfigurations/istio-revision-tag-default") && s.tagged != "":
		fmt.Fprintf(w, `{"metadata":{"labels":{"istio.io/rev":%q}}}`, s.tagged)
	case strings.HasSuffix(path, "/log"):
		fmt.Fprintf(w, "%s of %s: %s\n", r.URL.Query().Get("container"), strings.Split(path, "/")[6], r.URL.Query().Get("tailLines"))
	case strings.HasSuffix(path, "/portforward") && r.Method == http.MethodPost: // SPDY, as before Kubernetes 1.31
		s.forward(w, r, strings.Split(path, "/")[6])
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// forward serves a connection of port forwarding: each pair of streams is a connection to the Pod.
func (s *apiServer) forward(w http.ResponseWriter, r *http.Request, pod string) {
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	streams := make(chan httpstream.Stream, 16)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
		streams <- stream
		return nil
	})
	if conn == nil {
		return
	}
	defer func() { _ = conn.Close() }()
	listener := &streamListener{conns: make(chan net.Conn), done: make(chan struct{})}
	if pages := s.pages[pod]; pages != nil {
		server := &http.Server{Handler: pages, ReadHeaderTimeout: time.Minute, Protocols: &http.Protocols{}}
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetUnencryptedHTTP2(true) // gRPC
		go func() { _ = server.Serve(listener) }()
		defer func() { _ = server.Close() }()
	}
	var problems httpstream.Stream
	for {
		select {
		case stream := <-streams:
			switch {
			case stream.Headers().Get(corev1.StreamType) == corev1.StreamTypeError:
				problems = stream
			case s.pages[pod] == nil:
				_, _ = io.WriteString(problems, "nothing listens at port "+stream.Headers().Get(corev1.PortHeader))
				_, _ = problems.Close(), stream.Close()
			default:
				_ = problems.Close()
				select {
				case listener.conns <- streamConn{stream}:
				case <-conn.CloseChan():
				}
			}
		case <-conn.CloseChan():
			return
		}
	}
}

type streamListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *streamListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *streamListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *streamListener) Addr() net.Addr { return &net.TCPAddr{} }

type streamConn struct{ httpstream.Stream }

func (streamConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (streamConn) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (streamConn) SetDeadline(time.Time) error      { return nil }
func (streamConn) SetReadDeadline(time.Time) error  { return nil }
func (streamConn) SetWriteDeadline(time.Time) error { return nil }

// useKubeconfig makes a kubeconfig of the API server the one of kubectl.
func useKubeconfig(t *testing.T, s *apiServer) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(file, []byte(fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}],"users":[{"name":"c","user":{"token":"t"}}]}`, s.URL)), 0o600))
	t.Setenv("KUBECONFIG", file)
	return file
}

// TestFindsTheControlPlane checks that commands find the Pods of a control plane without an address, and ask all of them.
func TestFindsTheControlPlane(t *testing.T) {
	s := newAPIServer(t)
	useKubeconfig(t, s)
	s.add("moonsail-b", "serve", nil)
	s.add("moonsail-aa", "serve", nil)
	s.add("istiod-x", "discovery", nil)
	s.add("ended", "serve", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	s.add("gateway", "serve", func(p *corev1.Pod) { p.Spec.Containers[0].Name = "istio-proxy" })

	status, out, errOut := moonsail(t, "changes")
	require.Zero(t, status, errOut)
	require.Empty(t, errOut)
	require.Regexp(t, `(?s)CONTROL PLANE.* moonsail-b\s.* moonsail-aa\s`, out, "older changes first")
	require.NotContains(t, out, "istiod-x")

	for _, pod := range []string{"moonsail-b", "moonsail-aa"} {
		status, out, errOut = moonsail(t, "proxies", "of-"+pod+".shop")
		require.Zero(t, status, errOut)
		require.Contains(t, out, "of-"+pod+".shop\n")
	}
	status, _, errOut = moonsail(t, "proxies", "of-moonsail-zz.shop")
	require.Equal(t, 1, status)
	require.Contains(t, errOut, `no proxy of this name is connected; did you mean "of-moonsail-aa.shop"?`)
	require.Contains(t, errOut, "where: control plane moonsail-aa.istio-system\n")

	// A replica that does not answer is left out, with a note.
	delete(s.pages, "moonsail-aa")
	status, out, errOut = moonsail(t, "changes", "-o", "json")
	require.Zero(t, status, errOut)
	require.Contains(t, out, `"controlPlane": "moonsail-b"`)
	require.Contains(t, errOut, "note: this leaves out a control plane: control plane moonsail-aa.istio-system: no answer from this Pod: nothing listens at port 15014")
	status, out, errOut = moonsail(t, "proxies", "--context", "c")
	require.Zero(t, status, errOut)
	require.Contains(t, out, "of-moonsail-b")
	delete(s.pages, "moonsail-b")
	status, _, errOut = moonsail(t, "proxies")
	require.Equal(t, 1, status)
	require.Contains(t, errOut, "next:  check with 'kubectl -n istio-system logs moonsail-aa'")
}

// TestChoiceOfTheControlPlane checks the order of flags, and the errors without a control plane.
func TestChoiceOfTheControlPlane(t *testing.T) {
	s := newAPIServer(t)
	file := useKubeconfig(t, s)
	local := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"proxies":[{"name":"local","namespace":"shop"}]}`)
	}))
	defer local.Close()
	set := func(env string) func(*testing.T) { return func(t *testing.T) { t.Setenv("MOONSAIL_ADDRESS", env) } }
	revision := func(r string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Labels = map[string]string{"istio.io/rev": r} }
	}
	none := func(*apiServer) {}
	for name, c := range map[string]struct {
		args   []string
		pods   func(*apiServer)
		setUp  func(*testing.T)
		status int
		want   string // on standard output, or else in the error
	}{
		"an address":          {[]string{"--address", local.URL}, none, nil, 0, "local"},
		"an address from env": {nil, none, set(local.URL), 0, "local"},
		"a flag before env":   {[]string{"--kubeconfig", file}, func(s *apiServer) { s.add("one", "serve", nil) }, set(local.URL), 0, "of-one"},
		"both":                {[]string{"--address", local.URL, "-i", "istio-system"}, none, nil, 2, "--address excludes --kubeconfig"},
		"no Pods":             {nil, none, nil, 1, "no control plane found"},
		"another namespace":   {[]string{"-i", "mesh"}, func(s *apiServer) { s.add("one", "serve", nil) }, nil, 1, "where: namespace mesh"},
		"none runs": {nil, func(s *apiServer) {
			s.add("one", "serve", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })
		}, nil, 1, "see 'kubectl -n istio-system describe pod one'"},
		"only istiod": {nil, func(s *apiServer) { s.add("istiod", "discovery", nil) }, nil, 0, "of-istiod"},
		"default first": {nil, func(s *apiServer) {
			s.add("a", "serve --revision=canary", nil)
			s.add("b", "serve", nil)
		}, nil, 0, "of-b"},
		"a revision":        {[]string{"--revision", "canary"}, func(s *apiServer) { s.add("a", "serve", revision("canary")); s.add("b", "serve", nil) }, nil, 0, "of-a"},
		"the only revision": {nil, func(s *apiServer) { s.add("a", "serve --revision canary", nil) }, nil, 0, "of-a"},
		"several revisions": {nil, func(s *apiServer) { s.add("a", "serve", revision("x")); s.add("b", "serve", revision("y")) }, nil, 2, "with the revisions x, y: choose one with --revision"},
		"the tag default": {nil, func(s *apiServer) {
			s.add("a", "serve", revision("x"))
			s.add("b", "serve", revision("y"))
			s.tagged = "y"
		}, nil, 0, "of-b"},
		"the tag of a revision that does not run": {nil, func(s *apiServer) {
			s.add("a", "serve", revision("x"))
			s.add("b", "serve", revision("y"))
			s.tagged = "z"
		}, nil, 2, "choose one with --revision"},
		"unknown revision": {[]string{"--revision", "z"}, func(s *apiServer) { s.add("a", "serve", revision("x")) }, nil, 1, "no control plane has revision z"},
		"may not list":     {nil, func(s *apiServer) { s.deny = "/pods" }, nil, 1, "grant this user the rights to list pods"},
		"may not forward":  {nil, func(s *apiServer) { s.add("a", "serve", nil); s.deny = "/portforward" }, nil, 1, "grant this user the right to create pods/portforward in namespace istio-system"},
		"no such context":  {[]string{"--context", "nowhere"}, none, nil, 1, "nowhere"},
		"no such file":     {[]string{"--kubeconfig", "/nonexistent"}, none, nil, 1, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			s.pods, s.deny, s.tagged = nil, "", ""
			c.pods(s)
			if c.setUp != nil {
				c.setUp(t)
			}
			status, out, errOut := moonsail(t, append([]string{"proxies"}, c.args...)...)
			require.Equal(t, c.status, status, errOut)
			require.Contains(t, map[bool]string{true: out, false: errOut}[status == 0], c.want)
			require.Equal(t, name == "default first", strings.Contains(errOut, "note: this covers the revision default; the namespace has others too (canary)"), errOut)
		})
	}
}

// TestProfileNamesTheReplica checks that a profile names the replica that was profiled, if the first one does not answer.
func TestProfileNamesTheReplica(t *testing.T) {
	s := newAPIServer(t)
	useKubeconfig(t, s)
	s.add("one", "serve", nil)
	s.add("two", "serve", nil)
	delete(s.pages, "one")
	f := &profile.Function{ID: 1, Name: "main.work"}
	l := &profile.Location{ID: 1, Line: []profile.Line{{Function: f}}}
	samples := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}, DurationNanos: 1e9, Period: 1e7,
		Function: []*profile.Function{f}, Location: []*profile.Location{l}, Sample: []*profile.Sample{{Location: []*profile.Location{l}, Value: []int64{1, 1e7}}},
	}
	s.pages["two"] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = samples.Write(w) })
	status, out, errOut := moonsail(t, "profile", "control-plane", "--duration", "1s", "-o", "json")
	require.Zero(t, status, errOut)
	require.Contains(t, out, `"the control plane two.istio-system"`)
}

// TestDashboard checks that the command forwards a port to a Pod until it is interrupted.
func TestDashboard(t *testing.T) {
	s := newAPIServer(t)
	useKubeconfig(t, s)
	s.add("one", "serve", nil)
	pages := s.pages["one"]
	s.pages["one"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/dashboard" {
			_, _ = io.WriteString(w, "<html>")
			return
		}
		pages.ServeHTTP(w, r)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	root := clitest.Root(inspect.Commands()...)
	root.SetOut(w)
	root.SetErr(io.Discard)
	root.SetArgs([]string{"dashboard"})
	ended := make(chan int, 1)
	go func() { ended <- terminal.Run(ctx, root) }()
	url, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	require.Regexp(t, `^http://127.0.0.1:\d+/dashboard\n$`, url)
	for range 2 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSpace(url), http.NoBody)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "<html>", string(text))
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	require.Zero(t, <-ended)

	status, out, errOut := moonsail(t, "dashboard", "--port", "1", "--address", s.URL)
	require.Equal(t, 1, status, out)
	require.Contains(t, errOut, "where: control plane at "+s.URL+"\n")
}

// TestControlPlaneOnThisMachine checks that a control plane at the default address precedes the cluster, with a note.
func TestControlPlaneOnThisMachine(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:15014")
	if err != nil {
		t.Skip("the port is in use: ", err) // without root, tests have no network of their own
	}
	local := &httptest.Server{Listener: listener, Config: &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"proxies":[{"name":"local","namespace":"shop"}]}`)
	})}}
	local.Start()
	defer local.Close()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	status, out, errOut := moonsail(t, "proxies")
	require.Zero(t, status, errOut)
	require.Contains(t, out, "local")
	require.Empty(t, errOut)

	s := newAPIServer(t)
	useKubeconfig(t, s)
	s.add("one", "serve", nil)
	_, out, errOut = moonsail(t, "proxies")
	require.Contains(t, out, "local")
	require.Contains(t, errOut, "note: asked the control plane on this machine (127.0.0.1:15014)")
	_, out, errOut = moonsail(t, "proxies", "-i", "istio-system")
	require.Contains(t, out, "of-one")
	require.Empty(t, errOut)
}

// TestBugReportHasLogs checks that a report has the logs of all replicas.
func TestBugReportHasLogs(t *testing.T) {
	s := newAPIServer(t)
	useKubeconfig(t, s)
	s.add("one", "serve", nil)
	s.add("two", "serve", nil)
	file := filepath.Join(t.TempDir(), "report.tar.gz")
	status, _, errOut := moonsail(t, "bug-report", "--file", file)
	require.Zero(t, status, errOut)
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	zip, err := gzip.NewReader(f)
	require.NoError(t, err)
	text, err := io.ReadAll(zip)
	require.NoError(t, err)
	for _, log := range []string{"discovery of one: 10000\n", "discovery of two: 10000\n"} {
		require.Contains(t, string(text), log)
	}
}
