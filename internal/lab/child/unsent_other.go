//go:build !linux

package child

import "net"

// Unsent returns true: only Linux provides the information.
func Unsent(string, net.Addr) (bool, error) { return true, nil }
