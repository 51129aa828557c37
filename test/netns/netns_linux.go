// Package netns gives tests network namespaces: hosts on this machine, joined by a bridge. It needs root.
package netns

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// RequireVariable is a variable that, set to anything, makes tests fail which would be skipped without root.
const RequireVariable = "MOONSAIL_TEST_ROOT"

// RequireRoot skips a test that cannot run here, with a note. Continuous integration does not permit that.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		skip(t, "it sets rules in network namespaces, which takes root: run it as root (for example sudo -E make e2e)")
	} else {
		RequireCommand(t, "ip", "iproute2")
	}
}

// RequireCommand is RequireRoot for a program of a Debian package that a test runs.
func RequireCommand(t testing.TB, name, debian string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		skip(t, "there is no "+name+": apt-get install "+debian)
	}
}

func skip(t testing.TB, why string) {
	t.Helper()
	if os.Getenv(RequireVariable) != "" {
		t.Fatalf("%s is set, and this test cannot run: %s", RequireVariable, why)
	}
	fmt.Fprintf(os.Stderr, "*** NOT TESTED: %s: %s\n", t.Name(), why)
	t.Skip(why)
}

// Host is a network namespace with one interface, eth0, on the network's bridge.
type Host struct {
	Name string // for ip netns
	IP   netip.Addr
	IP6  netip.Addr // zero: the network has no IPv6
}

// Network is a bridge in a separate namespace, and the hosts on it.
type Network struct {
	t     testing.TB
	name  string
	v6    bool
	hosts int
}

var networks atomic.Uint32

// New creates a network that ends with the test.
func New(t testing.TB, ipv6 bool) *Network {
	t.Helper()
	RequireRoot(t)
	n := &Network{t: t, name: fmt.Sprintf("ms%d-%d", os.Getpid(), networks.Add(1)), v6: ipv6}
	n.namespace(n.name)
	n.ip("-n", n.name, "link", "add", "br0", "type", "bridge")
	n.ip("-n", n.name, "addr", "add", "10.91.0.1/24", "dev", "br0")
	n.ip("-n", n.name, "link", "set", "br0", "up")
	return n
}

func (n *Network) namespace(name string) {
	n.t.Helper()
	n.ip("netns", "add", name)
	n.t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	n.ip("-n", name, "link", "set", "lo", "up")
}

// Host adds a host, which reaches all others and has a default route that leads nowhere.
func (n *Network) Host() *Host {
	n.t.Helper()
	n.hosts++
	h := &Host{Name: fmt.Sprintf("%s-h%d", n.name, n.hosts), IP: netip.AddrFrom4([4]byte{10, 91, 0, byte(10 + n.hosts)})}
	n.namespace(h.Name)
	port := fmt.Sprintf("p%d", n.hosts)
	n.ip("-n", n.name, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", h.Name)
	n.ip("-n", n.name, "link", "set", port, "master", "br0", "up")
	n.ip("-n", h.Name, "addr", "add", h.IP.String()+"/24", "dev", "eth0")
	if n.v6 {
		h.IP6 = netip.MustParseAddr(fmt.Sprintf("fd91::%x", 10+n.hosts))
		n.ip("-n", h.Name, "addr", "add", h.IP6.String()+"/64", "dev", "eth0", "nodad")
	}
	n.ip("-n", h.Name, "link", "set", "eth0", "up")
	n.ip("-n", h.Name, "route", "add", "default", "via", "10.91.0.1")
	if n.v6 {
		n.ip("-n", h.Name, "-6", "route", "add", "default", "via", "fd91::1")
	}
	return h
}

func (n *Network) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.CommandContext(n.t.Context(), "ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// Gateway is an address of the bridge, which hosts reach as a neighbour.
func (n *Network) Gateway() netip.Addr { return netip.MustParseAddr("10.91.0.1") }

// Do runs f in the host's network namespace: sockets that it opens and processes that it starts are there, and stay
// there.
func (h *Host) Do(t testing.TB, f func()) {
	t.Helper()
	if err := h.Try(f); err != nil {
		t.Fatal(err)
	}
}

// Try is Do for other goroutines than the test's.
func (h *Host) Try(f func()) error {
	failed := make(chan error, 1)
	go func() {
		// The thread ends with the goroutine because it is not unlocked.
		runtime.LockOSThread()
		err := enter(h.Name)
		if err == nil {
			f()
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		return fmt.Errorf("network namespace %s: %w", h.Name, err)
	}
	return nil
}

func enter(name string) error {
	file, err := os.Open(filepath.Join("/run/netns", name))
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
}

// Command returns a command that will run on the host, with this process's standard streams.
func (h *Host) Command(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), "ip", append([]string{"netns", "exec", h.Name, name}, args...)...)
}
