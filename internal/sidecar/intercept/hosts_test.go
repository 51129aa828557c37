//go:build linux

package intercept

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/moonsail/moonsail/test/netns"
)

// patience bounds waits that succeed. No test waits for it to end.
const patience = time.Minute

// listen answers connections to a host with a word and their original destination.
func listen(t *testing.T, h *netns.Host, address, word string, transparent bool) {
	t.Helper()
	var ln net.Listener
	h.Do(t, func() {
		config := net.ListenConfig{}
		if transparent {
			config.Control = func(_, _ string, c syscall.RawConn) error {
				var failed error
				err := c.Control(func(fd uintptr) {
					failed = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1)
					if failed == nil {
						failed = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1)
					}
					if failed == unix.ENOPROTOOPT {
						failed = nil // a socket of IPv4
					}
				})
				if err != nil {
					return err
				}
				return failed
			}
		}
		var err error
		ln, err = config.Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
		}
	})
	require.NotNil(t, ln)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "%s for %s from %s", word, original(c), c.RemoteAddr().(*net.TCPAddr).IP)
			_ = c.Close()
		}
	}()
}

// original returns the destination of a connection before its redirection.
func original(c net.Conn) string {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err.Error()
	}
	local := c.LocalAddr().(*net.TCPAddr).AddrPort()
	out := netip.AddrPortFrom(local.Addr().Unmap(), local.Port()).String()
	_ = raw.Control(func(fd uintptr) {
		if local.Addr().Unmap().Is4() {
			var sa unix.RawSockaddrInet4
			size := uint32(unsafe.Sizeof(sa))
			if _, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_IP, unix.SO_ORIGINAL_DST, uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)), 0); e == 0 { //nolint:gosec // the kernel's own form
				out = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), swap(sa.Port)).String()
			}
			return
		}
		var sa unix.RawSockaddrInet6
		size := uint32(unsafe.Sizeof(sa))
		if _, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_IPV6, unix.SO_ORIGINAL_DST, uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)), 0); e == 0 { //nolint:gosec // the kernel's own form
			out = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), swap(sa.Port)).String()
		}
	})
	return out
}

func swap(p uint16) uint16 {
	return binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, p))
}

// call connects from a host and returns the answer.
func call(t *testing.T, h *netns.Host, to string) string {
	t.Helper()
	return callWithin(t, h, to, patience)
}

// callUnanswered calls an address whose packets are dropped. It waits a moment: an answer comes at once, as both ends
// are on this machine.
func callUnanswered(t *testing.T, h *netns.Host, to string) string {
	t.Helper()
	return callWithin(t, h, to, 200*time.Millisecond)
}

func callWithin(t *testing.T, h *netns.Host, to string, limit time.Duration) string {
	t.Helper()
	var conn net.Conn
	var err error
	h.Do(t, func() { conn, err = (&net.Dialer{Timeout: limit}).DialContext(t.Context(), "tcp", to) })
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return "no answer"
	}
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	text, err := io.ReadAll(conn)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// backends set rules. iptables has two forms, which use the kernel's own tables or those of nftables.
var backends = []struct {
	backend Backend
	form    string // of iptables
}{{NFTables, ""}, {IPTables, "legacy"}, {IPTables, "nft"}}

// overBackends runs a test with each of them.
func overBackends(t *testing.T, test func(*testing.T, Backend)) {
	t.Helper()
	for _, w := range backends {
		t.Run(strings.TrimSuffix(string(w.backend)+"-"+w.form, "-"), func(t *testing.T) {
			if w.form != "" {
				useIPTables(t, w.form)
			}
			test(t, w.backend)
		})
	}
}

// useIPTables makes the commands of iptables those of one form until the test ends.
func useIPTables(t *testing.T, form string) {
	t.Helper()
	dir := t.TempDir()
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			name := family + "-" + form + verb
			netns.RequireCommand(t, name, "iptables")
			path, err := exec.LookPath(name)
			require.NoError(t, err)
			require.NoError(t, os.Symlink(path, filepath.Join(dir, family+verb)))
		}
	}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
}

func apply(t *testing.T, h *netns.Host, b Backend, change func(*Settings)) {
	t.Helper()
	applyConfig(t, h, b, change, func(*Config) {})
}

func applyConfig(t *testing.T, h *netns.Host, b Backend, change func(*Settings), changeConfig func(*Config)) {
	t.Helper()
	s := Default()
	change(&s)
	c, err := s.Parse()
	require.NoError(t, err)
	changeConfig(c)
	for range 2 { // the second finds the rules of the first
		h.Do(t, func() {
			c.IPv6 = NeedsIPv6(nil)
			_, err = Apply(context.Background(), c, b)
		})
		require.NoError(t, err)
	}
}

func undo(t *testing.T, h *netns.Host) {
	t.Helper()
	var err error
	h.Do(t, func() { err = Undo(context.Background()) })
	require.NoError(t, err)
}

func at(a netip.Addr, port int) string { return net.JoinHostPort(a.String(), strconv.Itoa(port)) }

// onHost runs a program on a host and returns its output.
func onHost(t *testing.T, h *netns.Host, name string, args ...string) string {
	t.Helper()
	out, err := h.Command(t, name, args...).CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// callAs calls as another user.
func callAs(t *testing.T, h *netns.Host, uid int, to string) string {
	t.Helper()
	var text string
	h.Do(t, func() {
		// The change concerns only this thread, which ends.
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
			text = e.Error()
			return
		}
		conn, err := (&net.Dialer{Timeout: patience}).DialContext(context.Background(), "tcp", to)
		if err != nil {
			text = err.Error()
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		answer, _ := io.ReadAll(conn)
		text = string(answer)
	})
	return text
}
