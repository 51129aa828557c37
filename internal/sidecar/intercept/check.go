package intercept

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
)

// probe is the address that Check calls, as Istio's istio-validation does. Nothing listens there: a connection succeeds
// only if rules redirect it.
var probe = netip.AddrPortFrom(inboundSource4.Addr(), 15002)

// probeEvery is the interval of attempts.
const probeEvery = 200 * time.Millisecond

// ErrNotInForce means that connections are not redirected.
var ErrNotInForce = errors.New("connections are not redirected to the sidecar")

// Check waits until rules of interception are in force in this network namespace, and returns ErrNotInForce if ctx ends
// before. It needs no privileges, but Envoy must not run yet: Check listens on Envoy's inbound port. Run it as Envoy's
// user if rules of istio-cni may be in force.
func Check(ctx context.Context, c *Config) error {
	if c.Mode == ModeNone {
		return nil
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(c.InboundPort))))
	if err != nil {
		return fmt.Errorf("cannot check the rules of interception: %w", err)
	}
	defer ln.Close()
	accepted := acceptAll(ln)
	for !probeOnce(ctx, accepted) {
		if clock.Sleep(ctx, probeEvery) != nil {
			return ErrNotInForce
		}
	}
	return nil
}

// acceptAll returns the remote addresses of accepted connections, until the listener is closed.
func acceptAll(ln net.Listener) <-chan string {
	out := make(chan string, 16)
	go func() {
		defer close(out)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			select {
			case out <- c.RemoteAddr().String():
			default: // connections of others
			}
			_ = c.Close()
		}
	}()
	return out
}

// probeOnce calls the probe's address, and reports whether the listener accepted that connection.
func probeOnce(ctx context.Context, accepted <-chan string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp4", probe.String())
	if err != nil {
		return false
	}
	defer c.Close()
	for {
		select {
		case <-ctx.Done():
			return false
		case from := <-accepted:
			if from == c.LocalAddr().String() {
				return true
			}
		}
	}
}
