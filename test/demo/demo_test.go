// Package demo runs the demo with few workloads and real Envoys. The processes that it starts are this test's binary,
// so that -race checks all of them.
package demo

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/cli"
	"github.com/moonsail/moonsail/internal/demo"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/netns"
)

// TestMain acts as moonsail if the arguments begin with a command: tests have flags only.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"serve", "agent", "demo", "diff", "explain"}, os.Args[1]) {
		os.Exit(cli.Execute())
	}
	netns.Isolate()
	goleak.VerifyTestMain(m)
}

// output is what the demo prints. It reports when a text has appeared.
type output struct {
	mu   sync.Mutex // guards the fields below
	text bytes.Buffer
	want string
	come chan struct{}
}

func newOutput(want string) *output { return &output{want: want, come: make(chan struct{})} }

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	had := strings.Contains(o.text.String(), o.want)
	o.text.Write(b)
	if !had && strings.Contains(o.text.String(), o.want) {
		close(o.come)
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// small are options of a short demo.
func small(t *testing.T, out *output) demo.Options {
	t.Helper()
	_, err := envoy.Find("")
	require.NoError(t, err, "these tests need Envoy: make envoy")
	binary, err := os.Executable()
	require.NoError(t, err)
	return demo.Options{
		Binary: binary, Dir: filepath.Join(t.TempDir(), "demo"), Out: out,
		Workloads: demo.MinWorkloads, Rate: 60, Sample: 120, Flips: 6,
	}
}

// left returns the processes that run in a directory.
func left(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cwd")
	require.NoError(t, err)
	require.NotEmpty(t, all, "this test looks at /proc")
	var out []string
	for _, p := range all {
		cwd, err := os.Readlink(p)
		if err != nil || cwd != dir {
			continue // it has ended, or is not ours
		}
		command, _ := os.ReadFile(filepath.Join(filepath.Dir(p), "cmdline")) // it may end any time
		out = append(out, strings.ReplaceAll(string(command), "\x00", " "))
	}
	return out
}

// checkLogs searches the logs for messages that no process may write.
func checkLogs(t *testing.T, dir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "logs", "*.log"))
	require.NoError(t, err)
	require.NotEmpty(t, logs)
	for _, log := range logs {
		content, err := os.ReadFile(log)
		require.NoError(t, err)
		for _, bad := range []string{"DATA RACE", "panic:", "goroutine "} {
			require.NotContains(t, string(content), bad, log)
		}
	}
}

func TestDemo(t *testing.T) {
	out := newOutput("none lost")
	o := small(t, out)
	err := demo.Run(t.Context(), o)
	t.Log(out)
	require.NoError(t, err)
	for _, want := range []string{
		"destination       v1 -> v1 90%, v2 10%",
		"intended 0/100, measured 0.0/100.0",
		"testers (header x-demo-user: tester) get v3: 20 of 20",
		"removed everywhere: 0 of",
		"20 of 20 requests with x-demo: abort are answered 418",
		"spec.http[0].timeout",
		"still in force: v1/v2 0/100",
		"$ moonsail explain virtualservice/reviews -n shop",
		"VirtualService/shop/reviews  updated, in ",
		"last proxy answered",
		"proxies (100 %)",
		"re-sent:",
		"of 8/8 ACKs: median",
		"control plane killed, restarted",
		"none lost",
		"a plain-text call to frontend-1 fails",
		"were mutually authenticated.",
	} {
		require.Contains(t, out.String(), want)
	}
	require.NotContains(t, out.String(), "created together with", "explain shows a change, not the start of a control plane")
	require.NotContains(t, out.String(), "\x1b", "colours are for terminals")
	require.Empty(t, left(t, o.Dir))
	checkLogs(t, o.Dir)
}

func TestInterruptLeavesNothingBehind(t *testing.T) {
	out := newOutput("ACKed by")
	o := small(t, out)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- demo.Run(ctx, o) }()
	select {
	case <-out.come:
	case err := <-ended:
		t.Fatalf("%v\n%s", err, out)
	}
	require.NotEmpty(t, left(t, o.Dir))
	cancel()
	require.ErrorIs(t, await.From(t, ended), context.Canceled)
	require.Contains(t, out.String(), "All processes have ended")
	require.Empty(t, left(t, o.Dir))
}

// TestKillLeavesNothingBehind kills the demo, so that it cannot end its processes itself.
func TestKillLeavesNothingBehind(t *testing.T) {
	out := newOutput("requests per second:")
	o := small(t, out)
	cmd := exec.Command(o.Binary, "demo", "--dir", o.Dir, "--workloads", fmt.Sprint(o.Workloads))
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-out.come:
	case err := <-ended:
		t.Fatalf("%v\n%s", err, out)
	}
	require.Len(t, left(t, o.Dir), 1+7+2*o.Workloads, "control plane, applications, agents and Envoys")
	require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	require.Error(t, await.From(t, ended))
	require.Eventually(t, func() bool { return len(left(t, o.Dir)) == 0 }, time.Minute, 10*time.Millisecond,
		"processes outlive the demo")
}

// TestCrashEndsTheDemo kills a sidecar of the demo.
func TestCrashEndsTheDemo(t *testing.T) {
	out := newOutput("requests per second:")
	o := small(t, out)
	ended := make(chan error, 1)
	go func() { ended <- demo.Run(t.Context(), o) }()
	select {
	case <-out.come:
	case err := <-ended:
		t.Fatalf("%v\n%s", err, out)
	}
	killOne(t, o.Dir, "app --name cart-1 ")
	err := await.From(t, ended)
	require.ErrorContains(t, err, "app-cart-1: ended unexpectedly (signal: killed)")
	require.ErrorContains(t, err, "cart-1 listens on", "the end of its log")
	require.Empty(t, left(t, o.Dir))
}

func killOne(t *testing.T, dir, command string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cwd")
	require.NoError(t, err)
	for _, p := range all {
		pid := filepath.Base(filepath.Dir(p))
		words, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline")) // it may end any time
		if cwd, err := os.Readlink(p); err != nil || cwd != dir || !strings.Contains(strings.ReplaceAll(string(words), "\x00", " "), command) {
			continue
		}
		var n int
		_, err := fmt.Sscan(pid, &n)
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(n, syscall.SIGKILL))
		return
	}
	t.Fatalf("no process %q runs in %s", command, dir)
}
