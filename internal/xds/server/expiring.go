package server

import (
	"net"
	"time"

	"google.golang.org/grpc/credentials"
)

// expiring has grpc-go's connections end when the certificate expires that their peer has shown, as those of
// package http2 do: grpc-go looks at it once.
type expiring struct {
	credentials.TransportCredentials
	grace time.Duration
}

// farthest is what a connection is not going to see: certificates that last longer are as those without an end,
// which say 9999, farther than a time.Duration goes.
const farthest = 10 * 365 * 24 * time.Hour

// ServerHandshake implements credentials.TransportCredentials.
func (e expiring) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := e.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return conn, info, err
	}
	t, ok := info.(credentials.TLSInfo)
	if !ok || len(t.State.PeerCertificates) == 0 {
		return conn, info, nil
	}
	left := time.Until(t.State.PeerCertificates[0].NotAfter)
	if left > farthest {
		return conn, info, nil
	}
	return expiringConn{conn, time.AfterFunc(left+e.grace, func() { _ = raw.Close() })}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (e expiring) Clone() credentials.TransportCredentials {
	return expiring{e.TransportCredentials.Clone(), e.grace}
}

// expiringConn stops its timer when it ends before.
type expiringConn struct {
	net.Conn
	timer *time.Timer
}

// Close implements net.Conn.
func (c expiringConn) Close() error {
	c.timer.Stop()
	return c.Conn.Close()
}
