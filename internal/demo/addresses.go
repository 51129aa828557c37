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

// Addresses are those of the shop: 127.0.Subnet.N for workload N, with the same ports
// at each.
type Addresses struct {
	Subnet      uint8
	ServicePort uint16 // of all services: the sidecars' egress listeners, which applications call
	MeshPort    uint16 // the sidecars' ingress listeners, which other sidecars call
	AppPort     uint16 // the applications, which their own sidecar calls
}

// IP returns the address of a workload.
func (p Addresses) IP(w Workload) string {
	return netip.AddrFrom4([4]byte{127, 0, p.Subnet, byte(w.Number)}).String()
}

// sidecarPorts are further ports of each sidecar: admin, metrics, readiness,
// Envoy's own metrics.
var sidecarPorts = []uint16{15000, 15020, 15021, 15090}

// Subnets to choose from.
const (
	firstSubnet = 10
	lastSubnet  = 40
)

var portChoices = [][3]uint16{{8080, 9080, 9090}, {18080, 19080, 19090}, {28080, 29080, 29090}}

// claimNumber is the last part of an address that no workload has. A running demo listens on
// claimPort there, so that two demos that start at the same time choose different subnets.
const (
	claimNumber = 254
	claimPort   = 15000
)

// chooseAddresses finds free addresses and ports for n workloads, and reserves them
// against other demos until release is called.
func chooseAddresses(ctx context.Context, n int) (p Addresses, release func(), err error) {
	var first error
	for subnet := firstSubnet; subnet <= lastSubnet; subnet++ {
		for _, c := range portChoices {
			p := Addresses{uint8(subnet), c[0], c[1], c[2]}
			release, err := p.claim(ctx, n)
			if err == nil {
				return p, release, nil
			}
			if errors.Is(err, syscall.EADDRNOTAVAIL) {
				return Addresses{}, nil, fmt.Errorf("address %s: not on this machine: the demo needs all of 127.0.0.0/8: run it on Linux, or in a Linux container", p.IP(Workload{Number: 1}))
			}
			if first == nil {
				first = err
			}
		}
	}
	return Addresses{}, nil, fmt.Errorf("addresses 127.0.%d.1 to 127.0.%d.%d: in use: %w: end the processes that listen there (ss -ltnp lists them)", firstSubnet, lastSubnet, n, first)
}

func (p Addresses) claim(ctx context.Context, n int) (release func(), err error) {
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

// free returns nil if all ports that a workload needs are free.
func (p Addresses) free(ctx context.Context, ip string) error {
	for _, port := range append([]uint16{p.ServicePort, p.MeshPort, p.AppPort}, sidecarPorts...) {
		l, err := listen(ctx, ip, port)
		if err != nil {
			return err
		}
		l.Close()
	}
	return nil
}

// The ports of the control plane are Istio's for the first subnet, and portStep higher for each
// further one, so that demos do not share them. If a port is in use by
// another process, it moves up by portMove, a few times. It stays below the ports that the
// kernel assigns to clients, since such a port could be taken while a control plane restarts.
const (
	portStep  = 100
	portMove  = (lastSubnet - firstSubnet + 1) * portStep
	portMoves = 5
)

// freeAddress returns 127.0.0.1 with the wanted port, or with another one if it is in use.
func (p Addresses) freeAddress(ctx context.Context, wanted uint16) (string, error) {
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
	return "", fmt.Errorf("127.0.0.1: ports %d, %d, ... %d: in use: end the processes that listen there (ss -ltnp lists them)",
		wanted, wanted+portMove, wanted+(portMoves-1)*portMove)
}

func listen(ctx context.Context, ip string, port uint16) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(int(port))))
}
