package drain

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
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
}

// Registry keeps the drain notices of this control plane. A notice takes effect as an object
// that goes through the intake, like those of every source.
type Registry struct {
	// Read-only.
	Intake  *store.Intake
	Changes *changelog.Log
	Proxies Proxies
	// Lists returns those of the addresses that a source lists.
	Lists          func(ctx context.Context, addresses []string) []string
	ReconnectGrace time.Duration // 0: DefaultReconnectGrace
	Peers          *peers.Peers  // nil: this control plane is alone
	Log            *slog.Logger

	settled chan struct{} // closed once the peers' notices are known, after a start

	mu        sync.Mutex // guards the fields below
	started   time.Time
	notices   map[model.Key]*notice
	byAddress map[string]*notice
	serial    uint64
}

// notice is a workload that drains.
type notice struct {
	object    *model.DrainNotice
	instance  string
	since     time.Time
	began     chan struct{} // closed when rev is known
	rev       model.Revision
	withdrawn chan struct{} // closed when the notice ends
	answered  bool
}

// New returns a registry without notices.
func New(in *store.Intake, changes *changelog.Log, log *slog.Logger) *Registry {
	return &Registry{
		Intake: in, Changes: changes, Log: log, ReconnectGrace: DefaultReconnectGrace,
		settled: make(chan struct{}), started: time.Now(), notices: map[model.Key]*notice{}, byAddress: map[string]*notice{},
	}
}

// add adds the notice of p, or returns the one that is there; fresh reports which.
func (k *Registry) add(p *model.Proxy, since time.Time) (n *notice, fresh bool, err error) {
	key := keyOf(p)
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.notices[key]; n != nil {
		if n.instance == p.Instance && slices.Equal(n.object.Addresses, p.IPs) {
			return n, false, nil
		}
		k.remove(n)
	}
	if len(k.notices) >= maxNotices {
		return nil, false, server.Unavailable("%d workloads drain at the same time, which is the limit: try again later", maxNotices)
	}
	k.serial++
	n = &notice{
		object:   &model.DrainNotice{Meta: model.Meta{Key: key, ResourceVersion: strconv.FormatUint(k.serial, 10), Origin: p.ID}, Addresses: p.IPs},
		instance: p.Instance, since: since, began: make(chan struct{}), withdrawn: make(chan struct{}),
	}
	k.notices[key] = n
	for _, a := range p.IPs {
		k.byAddress[a] = n
	}
	return n, true, nil
}

func keyOf(p *model.Proxy) model.Key {
	return model.Key{Kind: model.KindDrainNotice, Namespace: p.Namespace, Name: p.Name}
}

// remove removes a notice from the registry. The caller holds mu.
func (k *Registry) remove(n *notice) {
	delete(k.notices, n.object.Key)
	for _, a := range n.object.Addresses {
		if k.byAddress[a] == n {
			delete(k.byAddress, a)
		}
	}
	close(n.withdrawn)
}

// withdraw ends a notice. Endpoints that sources still list get calls again.
func (k *Registry) withdraw(n *notice, reason string) {
	k.mu.Lock()
	if k.notices[n.object.Key] != n {
		k.mu.Unlock()
		return
	}
	k.remove(n)
	// Under the lock, so that a later notice of the workload enters the intake after this event.
	k.Intake.Put(store.Event{Key: n.object.Key, Observed: time.Now()})
	k.mu.Unlock()
	k.Log.Info("workload drains no more", "workload", n.object.Namespace+"/"+n.object.Name, "reason", reason)
}

// Connected ends the notices that a new connection proves wrong: another instance runs by the
// same name or at the same address. The server calls it for each proxy that connects.
func (k *Registry) Connected(p *model.Proxy) {
	k.mu.Lock()
	found := []*notice{k.notices[keyOf(p)]}
	for _, a := range p.IPs {
		found = append(found, k.byAddress[a])
	}
	k.mu.Unlock()
	for _, n := range found {
		if n != nil && n.object.Origin+n.instance != p.ID+p.Instance {
			k.withdraw(n, "another instance has connected: "+p.ID)
		}
	}
}

// draining reports whether a workload has a notice.
func (k *Registry) draining(ns, name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.notices[model.Key{Kind: model.KindDrainNotice, Namespace: ns, Name: name}] != nil
}

// Run ends notices that have served their purpose, until ctx ends: no source lists their
// addresses, or they are too old, or their workload has connected to another control plane.
func (k *Registry) Run(ctx context.Context) {
	k.learn(ctx)
	sweep := time.NewTicker(sweepInterval)
	defer sweep.Stop()
	returned := time.NewTicker(returnedInterval)
	defer returned.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-sweep.C:
			k.sweep(ctx, now)
		case <-returned.C:
			k.findReturned(ctx)
		}
	}
}

func (k *Registry) sweep(ctx context.Context, now time.Time) {
	k.mu.Lock()
	addresses := make([]string, 0, len(k.byAddress))
	for a := range k.byAddress {
		addresses = append(addresses, a)
	}
	old := make([]*notice, 0, len(k.notices))
	for _, n := range k.notices {
		if n.answered && now.Sub(n.since) > minAge {
			old = append(old, n)
		}
	}
	k.mu.Unlock()
	if len(old) == 0 {
		return
	}
	listed := map[string]bool{}
	for _, a := range k.Lists(ctx, addresses) {
		listed[a] = true
	}
	if ctx.Err() != nil {
		return
	}
	for _, n := range old {
		switch {
		case now.Sub(n.since) > maxAge:
			k.withdraw(n, "its endpoints are still listed after "+maxAge.String())
		case !slices.ContainsFunc(n.object.Addresses, func(a string) bool { return listed[a] }):
			k.withdraw(n, "no source lists its endpoints")
		}
	}
}
