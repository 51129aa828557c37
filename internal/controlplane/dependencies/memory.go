package dependencies

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/callstats"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Bounds.
const (
	// Keep is how long a dependency that is not called is remembered.
	Keep = 30 * 24 * time.Hour

	maxCalls     = 256    // of one workload; the one that was called last the longest ago makes room
	maxWorkloads = 64     // of one service account
	maxTotal     = 50_000 // calls of all workloads

	// coarse is how much newer the time of a call must be to be worth a write.
	coarse = time.Hour
	// loadWait bounds how long a proxy waits until what was stored is read.
	loadWait = 2 * time.Second
)

// Workload is who calls. The group is the name of the workload, such as a Deployment; see WorkloadOf.
type Workload struct {
	Namespace      string `json:"namespace"`
	ServiceAccount string `json:"serviceAccount"`
	Name           string `json:"workload"`
}

func (w Workload) compare(o Workload) int {
	return cmp.Or(cmp.Compare(w.Namespace, o.Namespace), cmp.Compare(w.Name, o.Name), cmp.Compare(w.ServiceAccount, o.ServiceAccount))
}

// maxNameOf bounds the name of a workload, which proxies report. It is that of names in Kubernetes.
const maxNameOf = 253

// WorkloadOf returns the workload of a proxy. Its namespace and service account are those of its certificate, if it has one.
func WorkloadOf(p *model.Proxy) Workload {
	name := cmp.Or(p.Metadata["WORKLOAD_NAME"], callstats.CanonicalService(p.Labels, p.Name))
	return Workload{p.Namespace, cmp.Or(p.ServiceAccount, "default"), name[:min(len(name), maxNameOf)]}
}

// Target is what is called.
type Target struct {
	Host   model.Host `json:"host"`
	Port   uint32     `json:"port,omitempty"`   // 0: unknown, because metrics do not have it
	Subset string     `json:"subset,omitempty"` // of a DestinationRule
}

func (t Target) compare(o Target) int {
	return cmp.Or(cmp.Compare(t.Host, o.Host), cmp.Compare(t.Port, o.Port), cmp.Compare(t.Subset, o.Subset))
}

// times are when a target was called, in whole seconds.
type times struct {
	first, last time.Time
	stored      time.Time // the value of last that was stored; zero: none
}

// Memory remembers calls. Its methods may be called at any time, by many goroutines.
type Memory struct {
	now  func() time.Time
	news chan struct{} // capacity one: something is worth a write

	loaded   chan struct{} // closed once the store was read, or does not exist
	deadline time.Time     // from then on no proxy waits for loaded
	loading  sync.Once

	mu        sync.Mutex // guards the fields below
	workloads map[Workload]map[Target]*times
	accounts  map[account]int // number of workloads
	total     int             // calls of all workloads
	dirty     bool            // something is worth a write
}

// account is a service account.
type account struct{ namespace, name string }

// NewMemory returns an empty memory, for a clock.
func NewMemory(now func() time.Time) *Memory {
	return &Memory{
		now: now, news: make(chan struct{}, 1), loaded: make(chan struct{}), deadline: now().Add(loadWait),
		workloads: map[Workload]map[Target]*times{}, accounts: map[account]int{},
	}
}

// Asked implements server.Learned.
func (m *Memory) Asked(p *model.Proxy, clusters []string, again bool) {
	w, now := WorkloadOf(p), m.now().Truncate(time.Second)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range clusters {
		if c, ok := resourcename.ParseCluster(name); ok && c.Host != "" {
			m.addAsked(w, Target{c.Host, c.Port, c.Subset}, now, again)
		}
	}
}

func (m *Memory) addAsked(w Workload, t Target, now time.Time, again bool) {
	first := now
	if unknown := m.workloads[w][Target{Host: t.Host}]; t.Port != 0 && unknown != nil {
		first = unknown.first
		m.drop(w, Target{Host: t.Host})
	}
	if known := m.workloads[w][t]; known != nil && again {
		return // it may have been called long ago
	}
	m.add(w, t, first, now)
}

// Called records that a workload called hosts, by its metrics. Without a port, all known targets of the host count.
func (m *Memory) Called(w Workload, hosts []model.Host) {
	now := m.now().Truncate(time.Second)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range hosts {
		found := false
		for t, at := range m.workloads[w] {
			if t.Host == h {
				m.touch(at, at.first, now)
				found = true
			}
		}
		if !found {
			m.add(w, Target{Host: h}, now, now)
		}
	}
}

// Seen records hosts that a workload called at some time. It proves no call of those that are known.
func (m *Memory) Seen(w Workload, hosts []model.Host) {
	now := m.now().Truncate(time.Second)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range hosts {
		if !m.knows(w, h) {
			m.add(w, Target{Host: h}, now, now)
		}
	}
}

func (m *Memory) knows(w Workload, h model.Host) bool {
	for t := range m.workloads[w] {
		if t.Host == h {
			return true
		}
	}
	return false
}

// Known implements server.Learned.
func (m *Memory) Known(ctx context.Context, p *model.Proxy) (out server.Known) {
	m.awaitLoaded(ctx)
	oldest := m.now().Add(-Keep)
	m.mu.Lock()
	defer m.mu.Unlock()
	for t, at := range m.workloads[WorkloadOf(p)] {
		switch {
		case at.last.Before(oldest):
		case t.Port == 0:
			out.Hosts = append(out.Hosts, t.Host)
		default:
			out.Clusters = append(out.Clusters, resourcename.Cluster{Direction: resourcename.Outbound, Port: t.Port, Subset: t.Subset, Host: t.Host}.String())
		}
	}
	return out
}

func (m *Memory) awaitLoaded(ctx context.Context) {
	left := m.deadline.Sub(m.now())
	if left <= 0 {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-m.loaded:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// setLoaded ends the wait for the store.
func (m *Memory) setLoaded() { m.loading.Do(func() { close(m.loaded) }) }

// add records a call. The lock is held.
func (m *Memory) add(w Workload, t Target, first, last time.Time) *times {
	calls := m.workloads[w]
	if calls == nil {
		m.roomForWorkload(w)
		calls = map[Target]*times{}
		m.workloads[w] = calls
		m.accounts[account{w.Namespace, w.ServiceAccount}]++
	}
	at := calls[t]
	if at == nil {
		if len(calls) >= maxCalls {
			m.drop(w, oldestOf(calls))
		}
		if m.total >= maxTotal {
			m.shrink()
			if m.workloads[w] == nil {
				return m.add(w, t, first, last)
			}
		}
		at = &times{first: first}
		calls[t] = at
		m.total++
	}
	m.touch(at, first, last)
	return at
}

// touch extends the times of a call. The lock is held.
func (m *Memory) touch(at *times, first, last time.Time) {
	if first.Before(at.first) {
		at.first = first
	}
	if last.After(at.last) {
		at.last = last
	}
	if at.last.Sub(at.stored) >= coarse {
		m.wantsWrite()
	}
}

func (m *Memory) wantsWrite() {
	m.dirty = true
	select {
	case m.news <- struct{}{}:
	default:
	}
}

// drop forgets a call, and a workload without calls. The lock is held.
func (m *Memory) drop(w Workload, t Target) {
	calls := m.workloads[w]
	if calls[t] == nil {
		return
	}
	delete(calls, t)
	m.total--
	if len(calls) > 0 {
		return
	}
	delete(m.workloads, w)
	of := account{w.Namespace, w.ServiceAccount}
	if m.accounts[of]--; m.accounts[of] == 0 {
		delete(m.accounts, of)
	}
}

// oldestOf returns the call that was made last the longest ago.
func oldestOf(calls map[Target]*times) Target {
	return slices.MinFunc(slices.Collect(maps.Keys(calls)), func(a, b Target) int {
		return cmp.Or(calls[a].last.Compare(calls[b].last), a.compare(b))
	})
}

// roomForWorkload forgets the workload of the same service account that called last the longest ago, if there are
// maxWorkloads: names of workloads are what proxies report. The lock is held.
func (m *Memory) roomForWorkload(w Workload) {
	of := account{w.Namespace, w.ServiceAccount}
	if m.accounts[of] < maxWorkloads {
		return
	}
	var oldest Workload
	var at time.Time
	for other, calls := range m.workloads {
		if (account{other.Namespace, other.ServiceAccount}) != of {
			continue
		}
		newest := newestOf(calls)
		if at.IsZero() || newest.Before(at) || newest.Equal(at) && other.compare(oldest) < 0 {
			oldest, at = other, newest
		}
	}
	for t := range m.workloads[oldest] {
		m.drop(oldest, t)
	}
}

func newestOf(calls map[Target]*times) (newest time.Time) {
	for _, at := range calls {
		if at.last.After(newest) {
			newest = at.last
		}
	}
	return newest
}

// shrink forgets the tenth of all calls that were made the longest ago. The lock is held.
func (m *Memory) shrink() {
	type call struct {
		w Workload
		t Target
		*times
	}
	var all []call
	for w, calls := range m.workloads {
		for t, at := range calls {
			all = append(all, call{w, t, at})
		}
	}
	slices.SortFunc(all, func(a, b call) int {
		return cmp.Or(a.last.Compare(b.last), a.w.compare(b.w), a.t.compare(b.t))
	})
	for _, c := range all[:len(all)/10+1] {
		m.drop(c.w, c.t)
	}
}

// expire forgets what was not called for Keep. The lock is held.
func (m *Memory) expire() {
	oldest := m.now().Add(-Keep)
	for w, calls := range m.workloads {
		for t, at := range calls {
			if at.last.Before(oldest) {
				m.drop(w, t)
			}
		}
	}
}
