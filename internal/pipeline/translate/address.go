package translate

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/moonsail/moonsail/internal/model"
)

// unixPath gives the path of a Unix socket, "" for other addresses.
func unixPath(address string) string {
	path := strings.TrimPrefix(address, "unix://")
	if strings.HasPrefix(path, "/") || strings.HasPrefix(path, "@") {
		return path
	}
	return ""
}

// isReachable tells whether an address needs no resolving.
func isReachable(address string) bool { return unixPath(address) != "" || model.IsIP(address) }

func addressOf(address string, port uint32) *corev3.Address {
	if path := unixPath(address); path != "" {
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: socketAddress(address, port)}}
}

func socketAddress(address string, port uint32) *corev3.SocketAddress {
	return &corev3.SocketAddress{
		Address:       address,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}
}
