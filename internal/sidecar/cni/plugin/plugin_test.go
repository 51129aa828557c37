//go:build linux

package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/sidecar/cni"
	"github.com/moonsail/moonsail/internal/sidecar/intercept"
	"github.com/moonsail/moonsail/test/netns"
)

// TestMain runs the plugin itself if a test starts this binary as a container runtime does.
func TestMain(m *testing.M) {
	if os.Getenv("CNI_COMMAND") != "" {
		Main()
		return
	}
	goleak.VerifyTestMain(m)
}

// agent is a node agent that gives one answer, and records Pods and results.
type agent struct {
	socket string
	answer cni.Answer

	mu      sync.Mutex
	asked   []cni.Pod
	results []cni.Result
}

func newAgent(t *testing.T, answer cni.Answer) *agent {
	t.Helper()
	a := &agent{socket: filepath.Join(t.TempDir(), "agent.sock"), answer: answer}
	a.run(t)
	return a
}

func (a *agent) run(t *testing.T) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", a.socket)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	server := &cni.Server{
		Answer: func(_ context.Context, pod cni.Pod) cni.Answer {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.asked = append(a.asked, pod)
			return a.answer
		},
		Done: func(_ cni.Pod, r cni.Result) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.results = append(a.results, r)
		},
	}
	go func() { done <- server.Serve(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
}

// have returns what the agent recorded, once it has n results.
func (a *agent) have(t *testing.T, n int) ([]cni.Pod, []cni.Result) {
	t.Helper()
	require.Eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.results) == n
	}, time.Minute, time.Millisecond)
	return a.asked, a.results
}

// previous is the result of the plugins before: with a field that the plugin does not know, and a number that a float64
// does not hold.
const previous = `{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"/x","mtu":1500}],"ips":[{"address":"10.91.0.11/24","interface":0},{"address":"fd91::11/64","interface":0}],"dns":{},"own":{"b":1,"a":9007199254740993}}`

// input is the configuration that the runtime passes.
func (a *agent) input(t *testing.T, entry map[string]any) []byte {
	t.Helper()
	c := map[string]any{"cniVersion": "1.1.0", "name": "net", "type": cni.PluginName, "socket": a.socket, "prevResult": json.RawMessage(previous)}
	for k, v := range entry {
		c[k] = v
	}
	text, err := json.Marshal(c)
	require.NoError(t, err)
	return text
}

const shopCart = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-1;K8S_POD_INFRA_CONTAINER_ID=c;K8S_POD_UID=u1"

// run runs a command as a container runtime does: the binary, with environment and input.
func run(t *testing.T, command, netnsFile, args string, input []byte) (stdout string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID=c", "CNI_NETNS="+netnsFile, "CNI_IFNAME=eth0", "CNI_PATH=/x", "CNI_ARGS="+args)
	cmd.Stdin = bytes.NewReader(input)
	out, err := cmd.Output()
	return string(out), err
}

func fileOf(h *netns.Host) string { return "/var/run/netns/" + h.Name }

// TestAdd runs the plugin for a Pod with a sidecar, twice, and checks which connections its rules redirect.
func TestAdd(t *testing.T) {
	n := netns.New(t, true)
	pod, other := n.Host(), n.Host()
	settings := intercept.Default()
	settings.ExcludeInboundPorts = "7000"
	a := newAgent(t, cni.Answer{Redirect: true, Settings: settings})
	for i := range 2 {
		out, err := run(t, "ADD", fileOf(pod), shopCart, a.input(t, nil))
		require.NoError(t, err, out)
		require.Equal(t, previous+"\n", out)
		asked, results := a.have(t, i+1)
		require.Equal(t, cni.Pod{Namespace: "shop", Name: "cart-1", UID: "u1"}, asked[i])
		require.Equal(t, cni.Result{Backend: intercept.NFTables}, results[i])
	}
	for port, want := range map[int]string{intercept.DefaultInboundPort: "envoy", 8080: "app", 7000: "excluded"} {
		listen(t, pod, port, want)
	}
	require.Equal(t, "envoy", call(t, other, at(pod.IP, 8080)))
	require.Equal(t, "envoy", call(t, other, at(pod.IP6, 8080)))
	require.Equal(t, "excluded", call(t, other, at(pod.IP, 7000)))

	out, err := run(t, "CHECK", fileOf(pod), shopCart, a.input(t, nil))
	require.NoError(t, err, out)
	out, err = run(t, "DEL", fileOf(pod), shopCart, a.input(t, nil))
	require.NoError(t, err, out)
	require.Empty(t, out)
	out, err = run(t, "CHECK", fileOf(other), shopCart, a.input(t, nil))
	require.Error(t, err)
	require.Equal(t, uint(codeRules), failure(t, out).Code)
	require.Contains(t, out, "no rules of interception")
	a.have(t, 2) // CHECK has no result
}

// TestOtherAddresses checks that IPv6 passes by the sidecar of a Pod that has such an address only at an interface of another network: Envoy
// does not listen there.
func TestOtherAddresses(t *testing.T) {
	n := netns.New(t, true)
	pod, other := n.Host(), n.Host()
	a := newAgent(t, cni.Answer{Redirect: true, Settings: intercept.Default()})
	only4 := json.RawMessage(`{"cniVersion":"1.1.0","ips":[{"address":"10.91.0.11/24"}]}`)
	out, err := run(t, "ADD", fileOf(pod), shopCart, a.input(t, map[string]any{"prevResult": only4}))
	require.NoError(t, err, out)
	listen(t, pod, intercept.DefaultInboundPort, "envoy")
	listen(t, pod, 8080, "app")
	require.Equal(t, "envoy", call(t, other, at(pod.IP, 8080)))
	require.Equal(t, "app", call(t, other, at(pod.IP6, 8080)))
}

func failure(t *testing.T, out string) types.Error {
	t.Helper()
	var e types.Error
	require.NoError(t, json.Unmarshal([]byte(out), &e), out)
	return e
}

func at(a netip.Addr, port uint16) string { return netip.AddrPortFrom(a, port).String() }

func listen(t *testing.T, h *netns.Host, port int, word string) {
	t.Helper()
	var ln net.Listener
	h.Do(t, func() {
		var err error
		ln, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("[::]:%d", port))
		require.NoError(t, err)
	})
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, word)
			_ = c.Close()
		}
	}()
}

func call(t *testing.T, from *netns.Host, to string) string {
	t.Helper()
	var b bytes.Buffer
	from.Do(t, func() {
		c, err := (&net.Dialer{Timeout: time.Minute}).DialContext(t.Context(), "tcp", to)
		require.NoError(t, err)
		defer c.Close()
		_, err = b.ReadFrom(c)
		require.NoError(t, err)
	})
	return b.String()
}

// TestPodsWithoutRules checks that Pods which need no rules get none, and which of them start without the node agent.
func TestPodsWithoutRules(t *testing.T) {
	h := netns.New(t, false).Host()
	for name, tc := range map[string]struct {
		args  string
		entry map[string]any
		asks  bool
	}{
		"no sidecar":            {shopCart, nil, true},
		"not Kubernetes":        {"IgnoreUnknown=1", nil, false},
		"an excluded namespace": {shopCart, map[string]any{"exclude_namespaces": []string{"kube-system", "shop"}}, false},
		"the agent itself":      {shopCart, map[string]any{"agent_pods": "shop/cart-"}, false},
		"another namespace":     {shopCart, map[string]any{"agent_pods": "shop2/cart-"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t, cni.Answer{Why: "it has no sidecar"})
			var out bytes.Buffer
			require.NoError(t, add(&skel.CmdArgs{Netns: fileOf(h), Args: tc.args, StdinData: a.input(t, tc.entry)}, &out, time.Minute))
			require.Equal(t, previous+"\n", out.String())
			require.Equal(t, tc.asks, len(a.asked) == 1)
			there, err := cni.RulesInForce(t.Context(), fileOf(h))
			require.NoError(t, err)
			require.False(t, there)
		})
	}
}

// TestWithoutPrevious checks the result of a plugin that is not in a chain, as Multus runs it.
func TestWithoutPrevious(t *testing.T) {
	a := newAgent(t, cni.Answer{})
	var out bytes.Buffer
	require.NoError(t, add(&skel.CmdArgs{Args: shopCart, StdinData: fmt.Appendf(nil, `{"cniVersion":"1.0.0","socket":%q}`, a.socket)}, &out, time.Minute))
	require.JSONEq(t, `{"cniVersion":"1.0.0"}`, out.String())
}

// TestPodDoesNotStart checks that each failure for a Pod that may need rules fails its start, in words, and with a code
// that distinguishes what another attempt can solve.
func TestPodDoesNotStart(t *testing.T) {
	h := netns.New(t, false).Host()
	wrong := intercept.Default()
	wrong.ExcludeInboundPorts = "http"
	for name, tc := range map[string]struct {
		answer cni.Answer
		netns  string
		code   uint
		want   string
	}{
		"the agent cannot decide":               {cni.Answer{Problem: "the API server does not answer"}, fileOf(h), types.ErrTryAgainLater, "the API server does not answer"},
		"invalid annotation":                    {cni.Answer{Problem: "annotation x: invalid", Invalid: true}, fileOf(h), codeInvalid, "annotation x: invalid"},
		"no namespace":                          {cni.Answer{Redirect: true, Settings: intercept.Default()}, "/var/run/netns/none", codeRules, "/var/run/netns/none"},
		"settings of an agent that checks less": {cni.Answer{Redirect: true, Settings: wrong}, fileOf(h), codeRules, "invalid port"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t, tc.answer)
			out, err := run(t, "ADD", tc.netns, shopCart, a.input(t, nil))
			require.Error(t, err)
			e := failure(t, out)
			require.Equal(t, tc.code, e.Code)
			require.Contains(t, e.Msg, "Pod shop/cart-1")
			require.Contains(t, e.Details, tc.want)
			if tc.answer.Redirect {
				_, results := a.have(t, 1)
				require.Contains(t, results[0].Problem, tc.want)
			}
		})
	}
	t.Run("invalid input", func(t *testing.T) {
		out, err := run(t, "ADD", fileOf(h), shopCart, []byte(`{"cniVersion":"1.0.0","name":"net","socket":7}`))
		require.Error(t, err)
		require.Equal(t, types.ErrDecodingFailure, failure(t, out).Code)
	})
}

// TestWaitsForAgent checks that a Pod waits while its node's agent restarts, and fails with advice if none comes.
func TestWaitsForAgent(t *testing.T) {
	a := &agent{socket: filepath.Join(t.TempDir(), "agent.sock")}
	args := &skel.CmdArgs{Args: shopCart, StdinData: a.input(t, nil)}

	var e *types.Error
	require.ErrorAs(t, add(args, &bytes.Buffer{}, time.Millisecond), &e)
	require.Equal(t, types.ErrTryAgainLater, e.Code)
	require.Contains(t, e.Details, "check that a Pod of DaemonSet ")

	result := make(chan error, 1)
	go func() { result <- add(args, &bytes.Buffer{}, time.Minute) }()
	a.run(t)
	require.NoError(t, <-result)
}

// TestProtocolVersions checks the versions of the CNI specification, and the commands of version 1.1.
func TestProtocolVersions(t *testing.T) {
	out, err := run(t, "VERSION", "", "", []byte(`{"cniVersion":"1.1.0"}`))
	require.NoError(t, err)
	require.JSONEq(t, `{"cniVersion":"1.1.0","supportedVersions":["0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}`, out)
	for _, command := range []string{"STATUS", "GC"} {
		out, err := run(t, command, "", "", []byte(`{"cniVersion":"1.1.0","name":"net","type":"moonsail-cni","socket":"/nowhere","cni.dev/valid-attachments":[]}`))
		require.NoError(t, err, out)
		require.Empty(t, out)
	}
}
