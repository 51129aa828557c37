package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
)

// Place is where the shop is: an address a workload, 127.0.Subnet.N, and the same ports
// at each.
type Place struct {
	Subnet      uint8
	ServicePort uint16 // of all services: the sidecars' egress listeners, which applications call
	MeshPort    uint16 // the sidecars' ingress listeners, which other sidecars call
	AppPort     uint16 // the applications, which their own sidecar calls
}

// IP is a workload's address.
func (p Place) IP(w Workload) string {
	return netip.AddrFrom4([4]byte{127, 0, p.Subnet, byte(w.Number)}).String()
}

// sidecarPorts are those that each sidecar needs besides: admin, metrics, readiness,
// Envoy's own metrics.
var sidecarPorts = []uint16{15000, 15020, 15021, 15090}

// Where the shop may be.
const (
	firstSubnet = 10
	lastSubnet  = 40
)

var portChoices = [][3]uint16{{8080, 9080, 9090}, {18080, 19080, 19090}, {28080, 29080, 29090}}

// claimNumber is the last part of an address that no workload has. A running demo holds
// claimPort there, so that two that start at once do not choose one subnet.
const (
	claimNumber = 254
	claimPort   = 15000
)

// choosePlace finds addresses and ports that are free for n workloads, and keeps other
// demos away from them until release is called.
func choosePlace(ctx context.Context, n int) (p Place, release func(), err error) {
	var first error
	for subnet := firstSubnet; subnet <= lastSubnet; subnet++ {
		for _, c := range portChoices {
			p := Place{uint8(subnet), c[0], c[1], c[2]}
			release, err := p.claim(ctx, n)
			if err == nil {
				return p, release, nil
			}
			if errors.Is(err, syscall.EADDRNOTAVAIL) {
				return Place{}, nil, fmt.Errorf("this machine does not have the address %s: the demo needs all of 127.0.0.0/8, "+
					"as Linux has it; run it there, or in a Linux container", p.IP(Workload{Number: 1}))
			}
			if first == nil {
				first = err
			}
		}
	}
	return Place{}, nil, fmt.Errorf("no free addresses from 127.0.%d.1 to 127.0.%d.%d; the first problem: %w; "+
		"end what listens there (ss -ltnp shows it)", firstSubnet, lastSubnet, n, first)
}

func (p Place) claim(ctx context.Context, n int) (release func(), err error) {
	held, err := listen(ctx, p.IP(Workload{Number: claimNumber}), claimPort)
	if err != nil {
		return nil, err
	}
	for number := 1; number <= n; number++ {
		if err := p.free(ctx, p.IP(Workload{Number: number})); err != nil {
			held.Close()
			return nil, err
		}
	}
	return func() { held.Close() }, nil
}

// free is nil when nobody listens on any port that a workload needs.
func (p Place) free(ctx context.Context, ip string) error {
	for _, port := range append([]uint16{p.ServicePort, p.MeshPort, p.AppPort}, sidecarPorts...) {
		l, err := listen(ctx, ip, port)
		if err != nil {
			return err
		}
		l.Close()
	}
	return nil
}

// The control plane's ports are Istio's for the first subnet, and portStep higher for each
// further one, so that demos do not get into each other's way. Where one is taken by
// something else it is moved up by portMove, a few times: below the ports that the
// kernel gives to clients, as one of those could be taken while a control plane restarts.
const (
	portStep  = 100
	portMove  = (lastSubnet - firstSubnet + 1) * portStep
	portMoves = 5
)

// freeAddress is 127.0.0.1 with the wanted port, or with another where it is taken.
func (p Place) freeAddress(ctx context.Context, wanted uint16) (string, error) {
	wanted += uint16(p.Subnet-firstSubnet) * portStep
	for move := range portMoves {
		l, err := listen(ctx, "127.0.0.1", wanted+uint16(move)*portMove)
		if err == nil {
			l.Close()
			return l.Addr().String(), nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return "", err
		}
	}
	return "", fmt.Errorf("ports %d, %d and so on up to %d of 127.0.0.1 are all taken: end what listens there (ss -ltnp shows it)",
		wanted, wanted+portMove, wanted+(portMoves-1)*portMove)
}

func listen(ctx context.Context, ip string, port uint16) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(int(port))))
}
