package node

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/moonsail/moonsail/internal/sidecar/intercept"
)

// findNamespace finds the network namespace with an address, among those of all processes of the node. proc is the
// node's /proc. Container runtimes keep their namespaces in different places; processes are in the same one on every
// node. The file is open, so that the namespace stays even if its process ends.
func findNamespace(proc string, address netip.Addr) (*os.File, error) {
	processes, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, own := range []string{"/proc/self/ns/net", filepath.Join(proc, "1", "ns", "net")} { // neither is a Pod's
		if id, err := os.Readlink(own); err == nil {
			seen[id] = true
		}
	}
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		file := filepath.Join(proc, p.Name(), "ns", "net")
		id, err := os.Readlink(file)
		if err != nil || seen[id] {
			continue // the process has ended
		}
		f, err := os.Open(filepath.Clean(file))
		if err != nil {
			continue
		}
		if has, err := hasAddress(f, address); has {
			return f, nil
		} else if err == nil {
			seen[id] = true
		}
		_ = f.Close()
	}
	return nil, fmt.Errorf("no network namespace with the address %s: the Pod may have ended", address)
}

// hasAddress reports whether an interface of a namespace has an address.
func hasAddress(namespace *os.File, address netip.Addr) (bool, error) {
	found := errors.New("found")
	err := intercept.Within(fileOf(namespace), func() error {
		list, err := net.InterfaceAddrs()
		if err != nil {
			return err
		}
		for _, a := range list {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(net.IP(address.AsSlice())) {
				return found
			}
		}
		return nil
	})
	if errors.Is(err, found) {
		return true, nil
	}
	return false, err
}

// fileOf returns a name that opens the same namespace again.
func fileOf(namespace *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", namespace.Fd()) }
