package drain

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/controlplane/peers"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Proxies answers for the connected proxies. *server.Server implements it.
type Proxies interface {
	Proxy(id string) (server.ProxyState, bool)
	ProxyAt(ip string) (id string, ok bool)
	Distribution(*distribution.Query) []distribution.ProxySyncStatus
	Away(ids []string) bool
}

// Registry keeps the drain notices of this control plane and answers the requests that make them.
type Registry struct {
	// Read-only.
	Changes *changelog.Log
	Proxies Proxies
	// Lists returns those of the addresses that a source lists.
	Lists          func(ctx context.Context, addresses []string) []string
	ReconnectGrace time.Duration // 0: DefaultReconnectGrace
	Peers          *peers.Peers  // nil: this control plane is alone
	Log            *slog.Logger

	settled chan struct{} // closed once the peers' notices are known, after a start
	started time.Time     // read-only
	notices *notices
}

// New returns a registry without notices.
func New(in *store.Intake, changes *changelog.Log, log *slog.Logger) *Registry {
	return &Registry{
		Changes: changes, Log: log, ReconnectGrace: DefaultReconnectGrace,
		settled: make(chan struct{}), started: time.Now(), notices: newNotices(in, log),
	}
}

// Connected ends the notices that a new connection proves wrong: another instance runs by the
// same name or at the same address. The server calls it for each proxy that connects.
func (r *Registry) Connected(p *model.Proxy) {
	for _, n := range r.notices.at(p) {
		d := n.object
		if d.Origin+n.instance != p.ID+p.Instance && replaces(p, d.Namespace, d.ServiceAccount, d.Addresses) {
			r.notices.withdraw(n, "another instance has connected: "+p.ID)
		}
	}
}

// replaces reports whether a proxy with the name or an address of a workload that drains shows that the
// workload is back, or that another one has its address. A proxy may claim any address, so it must have
// the identity of the workload or connect from the address.
func replaces(p *model.Proxy, namespace, account string, addresses []string) bool {
	same := p.Namespace == namespace && (account == "" || p.ServiceAccount == account)
	return same || slices.Contains(addresses, p.Peer)
}

// Run ends notices that have served their purpose, until ctx ends: no source lists their
// addresses, or they are too old, or their workload has connected to another control plane.
func (r *Registry) Run(ctx context.Context) {
	r.learn(ctx)
	sweep := time.NewTicker(sweepInterval)
	defer sweep.Stop()
	returned := time.NewTicker(returnedInterval)
	defer returned.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-sweep.C:
			r.sweep(ctx, now)
		case <-returned.C:
			r.findReturned(ctx)
		}
	}
}

func (r *Registry) sweep(ctx context.Context, now time.Time) {
	old, addresses := r.notices.old(now)
	if len(old) == 0 {
		return
	}
	listed := map[string]bool{}
	for _, a := range r.Lists(ctx, addresses) {
		listed[a] = true
	}
	if ctx.Err() != nil {
		return
	}
	for _, n := range old {
		switch {
		case now.Sub(n.since) > maxAge:
			r.notices.withdraw(n, "its endpoints are still listed after "+maxAge.String())
		case !slices.ContainsFunc(n.object.Addresses, func(a string) bool { return listed[a] }):
			r.notices.withdraw(n, "no source lists its endpoints")
		}
	}
}

func (r *Registry) reconnectGrace() time.Duration {
	return cmp.Or(r.ReconnectGrace, DefaultReconnectGrace)
}
