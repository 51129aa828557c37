package pair

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/lab/load"
)

// Setup describes a pair.
type Setup struct {
	Client, Server bool // which of them have a sidecar
	MTLS           bool // STRICT; otherwise DISABLE, plain text
	TCP            bool // the service's port is tcp, so that both forward bytes
	HTTP1          bool // between the sidecars, also with mTLS (h2UpgradePolicy: DO_NOT_UPGRADE)
	Concurrency    int  // worker threads of each Envoy; 0: one for each CPU
	// AnyWorker lets the kernel choose the worker of the server's connections: without
	// exact_balance, as in Istio.
	AnyWorker bool
	// Hosts are what both see in addition to their namespace, as in Sidecars: "mesh/*".
	Hosts []string
	// Objects are additional YAML of the pair's namespace. $NAMESPACE stands for its name.
	Objects []string
	// AgentFlags are added to those of both agents, annotations to the Pods.
	AgentFlags        []string
	ClientAnnotations map[string]string
	ServerAnnotations map[string]string
}

// Pair is a client and a server that are ready. Client and Server are nil without a sidecar.
type Pair struct {
	Setup
	Namespace      string
	Client, Server *Sidecar
	// URL and Host are what a load calls: the client's sidecar, the server's, or the application, and the host of its
	// requests.
	URL, Host string

	mesh               *Mesh
	clientIP, serverIP string // also without a sidecar
}

const (
	clientName  = "client"
	serverName  = "server"
	servicePort = 20080 // of the service, at the client's sidecar
	meshPort    = 18080 // of the server's sidecar
)

// Pair starts a pair, and waits until requests are answered.
func (m *Mesh) Pair(ctx context.Context, s Setup) (*Pair, error) {
	p := &Pair{Setup: s, mesh: m, Host: serverName}
	if err := m.place(p); err != nil {
		return nil, err
	}
	if err := p.start(ctx); err != nil {
		p.Stop()
		return nil, fmt.Errorf("pair %s: %w", p.Namespace, err)
	}
	return p, nil
}

// place assigns a namespace and addresses to a pair.
func (m *Mesh) place(p *Pair) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pairs == mostPairs {
		return fmt.Errorf("too many pairs: at most %d", mostPairs)
	}
	p.Namespace = namespaceOf(m.pairs)
	m.pairs++
	if p.clientIP, err = m.freeAddress(); err != nil {
		return err
	}
	p.serverIP, err = m.freeAddress()
	return err
}

func (p *Pair) start(ctx context.Context) error {
	if err := p.mesh.write(p.Namespace+".yaml", p.allObjects()...); err != nil {
		return err
	}
	if p.Setup.Server {
		p.Server = newSidecar(serverName, p.serverIP)
		if err := p.Server.start(ctx, p); err != nil {
			return err
		}
	}
	if p.Setup.Client {
		p.Client = newSidecar(clientName, p.clientIP)
		if err := p.Client.start(ctx, p); err != nil {
			return err
		}
	}
	p.URL = "http://" + p.address() + "/?size=1024"
	return p.await(ctx)
}

// address returns what a load connects to.
func (p *Pair) address() string {
	switch {
	case p.Client != nil:
		return fmt.Sprintf("%s:%d", p.Client.IP, servicePort)
	case p.Server != nil:
		return fmt.Sprintf("%s:%d", p.Server.IP, meshPort)
	}
	return p.mesh.Backend()
}

// Load sends the number and rate of requests in the options through the pair.
func (p *Pair) Load(ctx context.Context, o load.Options) (*load.Result, error) {
	o.URL, o.Host = p.URL, p.Host
	for _, s := range p.Sidecars() {
		if err := s.process.Ended(); err != nil {
			return nil, err
		}
	}
	return load.Command(ctx, p.mesh.options.Programs.Lab, o)
}

// Sidecars returns those that the pair has.
func (p *Pair) Sidecars() (out []*Sidecar) {
	for _, s := range []*Sidecar{p.Client, p.Server} {
		if s != nil && s.process != nil {
			out = append(out, s)
		}
	}
	return out
}

// Apply replaces the additional objects, and returns when the control plane has them. Proxies may not have them yet.
func (p *Pair) Apply(objects ...string) error {
	p.Objects = objects
	return p.mesh.write(p.Namespace+".yaml", p.allObjects()...)
}

// readyTime is how long a pair may take until requests are answered.
const readyTime = 30 * time.Second

// await waits until a request is answered.
func (p *Pair) await(ctx context.Context) error {
	return until(ctx, readyTime, "answers to requests", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL, http.NoBody)
		if err != nil {
			return err
		}
		req.Host, req.Close = p.Host, true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

// pollTime is the interval of polls.
const pollTime = 20 * time.Millisecond

// until calls check until it returns nil.
func until(ctx context.Context, limit time.Duration, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollTime)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited for %s: %w (%w)", what, context.Cause(ctx), err)
		}
	}
}

// Stop kills the pair's sidecars.
func (p *Pair) Stop() {
	for _, s := range p.Sidecars() {
		s.process.Kill()
		_ = os.RemoveAll(s.dir) // the mesh removes the rest
	}
}

// allObjects returns the pair's objects, with the name of its namespace.
func (p *Pair) allObjects() []string {
	out := p.own()
	for _, o := range p.Objects {
		out = append(out, strings.ReplaceAll(o, "$NAMESPACE", p.Namespace))
	}
	return out
}
