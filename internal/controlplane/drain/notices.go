package drain

import (
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// notices are the drain notices of a control plane. A notice takes effect as an object that goes through
// the intake, like those of every source.
type notices struct {
	intake *store.Intake
	log    *slog.Logger

	mu        sync.Mutex // guards the fields below
	all       map[model.Key]*notice
	byAddress map[string]*notice
	counts    map[string]int // by namespace
	serial    uint64
}

func newNotices(in *store.Intake, log *slog.Logger) *notices {
	return &notices{intake: in, log: log, all: map[model.Key]*notice{}, byAddress: map[string]*notice{}, counts: map[string]int{}}
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

// add adds the notice of p, or returns the one that is there; fresh reports which.
func (s *notices) add(p *model.Proxy, since time.Time) (n *notice, fresh bool, err error) {
	key := keyOf(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.all[key]; n != nil {
		if n.instance == p.Instance && slices.Equal(n.object.Addresses, p.IPs) {
			return n, false, nil
		}
		s.remove(n)
	}
	if len(s.all) >= maxNotices {
		return nil, false, server.Unavailable("%d workloads drain at the same time, which is the limit: try again later", maxNotices)
	}
	if s.counts[p.Namespace] >= maxNoticesOfNamespace {
		return nil, false, server.Unavailable("%d workloads of the namespace %s drain at the same time, which is the limit: try again later", maxNoticesOfNamespace, p.Namespace)
	}
	s.serial++
	n = &notice{
		object: &model.DrainNotice{Meta: model.Meta{Key: key, ResourceVersion: strconv.FormatUint(s.serial, 10), Origin: p.ID},
			Addresses: p.IPs, ServiceAccount: p.ServiceAccount},
		instance: p.Instance, since: since, began: make(chan struct{}), withdrawn: make(chan struct{}),
	}
	s.all[key] = n
	s.counts[key.Namespace]++
	for _, a := range p.IPs {
		s.byAddress[a] = n
	}
	return n, true, nil
}

func keyOf(p *model.Proxy) model.Key {
	return model.Key{Kind: model.KindDrainNotice, Namespace: p.Namespace, Name: p.Name}
}

// remove removes a notice from the registry. The caller holds mu.
func (s *notices) remove(n *notice) {
	delete(s.all, n.object.Key)
	if s.counts[n.object.Namespace]--; s.counts[n.object.Namespace] == 0 {
		delete(s.counts, n.object.Namespace)
	}
	for _, a := range n.object.Addresses {
		if s.byAddress[a] == n {
			delete(s.byAddress, a)
		}
	}
	close(n.withdrawn)
}

// withdraw ends a notice. Endpoints that sources still list get calls again.
func (s *notices) withdraw(n *notice, reason string) {
	s.mu.Lock()
	if s.all[n.object.Key] != n {
		s.mu.Unlock()
		return
	}
	s.remove(n)
	// Under the lock, so that a later notice of the workload enters the intake after this event.
	s.intake.Put(store.Event{Key: n.object.Key, Observed: time.Now()})
	s.mu.Unlock()
	s.log.Info("workload drains no more", "workload", n.object.Namespace+"/"+n.object.Name, "reason", reason)
}

// draining reports whether a workload has a notice.
func (s *notices) draining(ns, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[model.Key{Kind: model.KindDrainNotice, Namespace: ns, Name: name}] != nil
}

// put puts a notice into the intake, unless it was withdrawn meanwhile.
func (s *notices) put(n *notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[n.object.Key] == n {
		s.intake.Put(store.Event{Key: n.object.Key, Object: n.object, Observed: n.since, Urgent: true})
	}
}

func (s *notices) list() *noticeList {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &noticeList{}
	for _, n := range s.all {
		out.Requests = append(out.Requests, agentapi.DeregisterRequest{
			Node: n.object.Origin, Instance: n.instance, Addresses: n.object.Addresses, ServiceAccount: n.object.ServiceAccount})
		out.AgesMillis = append(out.AgesMillis, time.Since(n.since).Milliseconds())
	}
	return out
}

// cancel withdraws the notice of p, if there is one.
func (s *notices) cancel(p *model.Proxy, reason string) {
	s.mu.Lock()
	n := s.all[keyOf(p)]
	s.mu.Unlock()
	if n != nil && n.instance == p.Instance {
		s.withdraw(n, reason)
	}
}

// markAnswered notes that a request about the notice is answered, or was answered by another control plane.
func (s *notices) markAnswered(n *notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.answered = true
}

// at lists the notices at the name and the addresses of a proxy.
func (s *notices) at(p *model.Proxy) []*notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*notice
	for _, n := range append([]*notice{s.all[keyOf(p)]}, s.atAddresses(p.IPs)...) {
		if n != nil {
			out = append(out, n)
		}
	}
	return out
}

// atAddresses lists the notices at some addresses; nil where there is none. The caller holds mu.
func (s *notices) atAddresses(addresses []string) []*notice {
	var out []*notice
	for _, a := range addresses {
		out = append(out, s.byAddress[a])
	}
	return out
}

// old lists the notices that are answered and older than minAge, and the addresses of all notices.
func (s *notices) old(now time.Time) (old []*notice, addresses []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.all {
		if n.answered && now.Sub(n.since) > minAge {
			old = append(old, n)
		}
	}
	for a := range s.byAddress {
		addresses = append(addresses, a)
	}
	return old, addresses
}
