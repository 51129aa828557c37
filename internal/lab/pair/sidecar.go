package pair

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/moonsail/moonsail/internal/lab/child"
)

// Sidecar is an agent with its Envoy.
type Sidecar struct {
	Name  string // of the workload
	IP    string
	Admin string // host:port of Envoy's admin interface
	Pid   int    // of Envoy

	dir     string // of its files
	process *child.Process
}

func newSidecar(name, ip string) *Sidecar {
	return &Sidecar{Name: name, IP: ip, Admin: net.JoinHostPort(ip, "15000")}
}

// AgentPid returns the agent's process ID.
func (s *Sidecar) AgentPid() int { return s.process.Pid() }

// start starts the agent, and waits until its Envoy is ready.
func (s *Sidecar) start(ctx context.Context, p *Pair) (err error) {
	if s.dir, err = os.MkdirTemp(p.mesh.dir, s.Name); err != nil {
		return err
	}
	token := s.dir + "/token"
	if err := os.WriteFile(token, []byte(tokenOf(p.Namespace, s.Name)), 0o600); err != nil {
		return err
	}
	args := append([]string{
		"agent", "--pod", p.mesh.path("config") + "/" + p.Namespace + ".yaml", "--name", s.Name, "--log-format", "json",
		"--xds-address", p.mesh.plane.Addr(), "--xds-plaintext=false", "--xds-root-cert", p.mesh.root(), "--token-file", token,
		"--concurrency", strconv.Itoa(p.Concurrency), "--envoy", p.mesh.options.Envoy, "--work-dir", s.dir + "/work", "--drain-time", "0s",
	}, p.AgentFlags...)
	if s.process, err = child.StartAgent(ctx, "the sidecar of "+s.Name, commandLine(p.mesh.options.Programs.Moonsail, args...)...); err != nil {
		return err
	}
	s.Pid = s.process.EnvoyPid()
	return nil
}

// sidecarPorts are the ports at which a sidecar listens at its address.
var sidecarPorts = []int{15000, 15020, 15021, 15090, meshPort, servicePort}

// freeAddress returns a loopback address of this process at which all of them are free. Tests and demonstrations use
// lower ones.
func (m *Mesh) freeAddress() (string, error) {
	pid := os.Getpid()
	for m.hosts < 250 {
		m.hosts++
		ip := fmt.Sprintf("127.%d.%d.%d", 200+pid/250%50, pid%250, m.hosts)
		if free(ip) {
			return ip, nil
		}
	}
	return "", fmt.Errorf("no loopback address has free ports for a sidecar (%v)", sidecarPorts)
}

func free(ip string) bool {
	for _, port := range sidecarPorts {
		l, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(port))) //nolint:noctx // it takes no time
		if err != nil {
			return false
		}
		_ = l.Close() // it has no connections
	}
	return true
}
