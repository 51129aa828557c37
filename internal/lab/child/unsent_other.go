//go:build !linux

package child

import "net"

// Unsent is known on Linux only; elsewhere it is taken to be so.
func Unsent(string, net.Addr) (bool, error) { return true, nil }
