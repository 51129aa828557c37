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
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Proxies knows who is connected; *server.Server.
type Proxies interface {
	Proxy(id string) (server.ProxyState, bool)
	ProxyAt(ip string) (id string, ok bool)
	Distribution(*server.Query) []server.ProxySyncStatus
}

// Registry keeps who leaves. What it decides goes through the intake like all else.
type Registry struct {
	// Read-only.
	Intake  *store.Intake
	Changes *changelog.Log
	Proxies Proxies
	// Lists gives those of the addresses that some source lists.
	Lists   func(ctx context.Context, addresses []string) []string
	Absence time.Duration // 0: DefaultAbsence
	Peers   *peers.Peers  // nil: this control plane is alone
	Log     *slog.Logger

	settled chan struct{} // closed when it is known who leaves, after a start

	mu      sync.Mutex // guards the fields below
	started time.Time
	marks   map[model.Key]*mark
	at      map[string]*mark // by address
	serial  uint64
}

// mark is a workload that leaves.
type mark struct {
	departure *model.DrainNotice
	instance  string
	since     time.Time
	began     chan struct{} // closed when rev is known
	rev       model.Revision
	withdrawn chan struct{} // closed with the mark's end
	answered  bool
}

// New makes a keeper of nobody.
func New(in *store.Intake, changes *changelog.Log, log *slog.Logger) *Registry {
	return &Registry{
		Intake: in, Changes: changes, Log: log, Absence: DefaultAbsence,
		settled: make(chan struct{}), started: time.Now(), marks: map[model.Key]*mark{}, at: map[string]*mark{},
	}
}

// mark notes that p leaves since then, or finds that it was noted; fresh tells which.
func (k *Registry) mark(p *model.Proxy, since time.Time) (m *mark, fresh bool, err error) {
	key := keyOf(p)
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.marks[key]; m != nil {
		if m.instance == p.Instance && slices.Equal(m.departure.Addresses, p.IPs) {
			return m, false, nil
		}
		k.unmark(m)
	}
	if len(k.marks) >= maxMarks {
		return nil, false, server.Unavailable("%d workloads leave at the same time: no more are noted", maxMarks)
	}
	k.serial++
	m = &mark{
		departure: &model.DrainNotice{Meta: model.Meta{Key: key, ResourceVersion: strconv.FormatUint(k.serial, 10), Origin: p.ID}, Addresses: p.IPs},
		instance:  p.Instance, since: since, began: make(chan struct{}), withdrawn: make(chan struct{}),
	}
	k.marks[key] = m
	for _, a := range p.IPs {
		k.at[a] = m
	}
	return m, true, nil
}

func keyOf(p *model.Proxy) model.Key {
	return model.Key{Kind: model.KindDrainNotice, Namespace: p.Namespace, Name: p.Name}
}

// unmark forgets a mark; mu is held.
func (k *Registry) unmark(m *mark) {
	delete(k.marks, m.departure.Key)
	for _, a := range m.departure.Addresses {
		if k.at[a] == m {
			delete(k.at, a)
		}
	}
	close(m.withdrawn)
}

// withdraw ends a mark: what its workload is listed as counts again.
func (k *Registry) withdraw(m *mark, why string) {
	k.mu.Lock()
	if k.marks[m.departure.Key] != m {
		k.mu.Unlock()
		return
	}
	k.unmark(m)
	// Within the lock, so that a mark after this one is put after it.
	k.Intake.Put(store.Event{Key: m.departure.Key, Observed: time.Now()})
	k.mu.Unlock()
	k.Log.Info("workload leaves no more", "workload", m.departure.Namespace+"/"+m.departure.Name, "reason", why)
}

// Connected is told of each proxy that connects. One that came after the one that left, at
// the same address or by the same name, does not leave.
func (k *Registry) Connected(p *model.Proxy) {
	k.mu.Lock()
	gone := []*mark{k.marks[keyOf(p)]}
	for _, a := range p.IPs {
		gone = append(gone, k.at[a])
	}
	k.mu.Unlock()
	for _, m := range gone {
		if m != nil && m.departure.Origin+m.instance != p.ID+p.Instance {
			k.withdraw(m, "another one has connected: "+p.ID)
		}
	}
}

// Left tells whether a proxy has left in order.
func (k *Registry) left(ns, name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.marks[model.Key{Kind: model.KindDrainNotice, Namespace: ns, Name: name}] != nil
}

// Run withdraws marks that nothing needs any more, until ctx ends: their addresses are not
// listed by any source, or they are too old, or their workload has come back elsewhere.
func (k *Registry) Run(ctx context.Context) {
	k.learn(ctx)
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	ask := time.NewTicker(askReturnedEvery)
	defer ask.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			k.sweep(ctx, now)
		case <-ask.C:
			k.askReturned(ctx)
		}
	}
}

func (k *Registry) sweep(ctx context.Context, now time.Time) {
	k.mu.Lock()
	addresses := make([]string, 0, len(k.at))
	for a := range k.at {
		addresses = append(addresses, a)
	}
	marks := make([]*mark, 0, len(k.marks))
	for _, m := range k.marks {
		if m.answered && now.Sub(m.since) > minMark {
			marks = append(marks, m)
		}
	}
	k.mu.Unlock()
	if len(marks) == 0 {
		return
	}
	listed := map[string]bool{}
	for _, a := range k.Lists(ctx, addresses) {
		listed[a] = true
	}
	if ctx.Err() != nil {
		return
	}
	for _, m := range marks {
		switch {
		case now.Sub(m.since) > maxMark:
			k.withdraw(m, "it has left for an hour, and its endpoints are listed still")
		case !slices.ContainsFunc(m.departure.Addresses, func(a string) bool { return listed[a] }):
			k.withdraw(m, "nothing lists it any more")
		}
	}
}
