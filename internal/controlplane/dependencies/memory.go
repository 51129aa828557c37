package dependencies

import (
	"cmp"
	"context"
	"maps"
	"math"
	"regexp"
	"slices"
	"sort"
	"strings"
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

// WorkloadOf returns the workload of a proxy. Its namespace and service account are those of its certificate, if it has one.
// The name is the first of those that the proxy reports that Kubernetes accepts, because people apply objects with it;
// without one it is empty, and nothing is learned.
func WorkloadOf(p *model.Proxy) Workload {
	w := Workload{Namespace: p.Namespace, ServiceAccount: cmp.Or(p.ServiceAccount, "default")}
	for _, name := range []string{p.Metadata["WORKLOAD_NAME"], callstats.CanonicalService(p.Labels, ""), p.Name} {
		if isName(name) {
			w.Name = name
			break
		}
	}
	return w
}

// Names of namespaces, and of other objects, in Kubernetes: RFC 1123.
const (
	labelForm = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
	mostLabel = 63
	mostName  = 253
)

var (
	labelOf1123 = regexp.MustCompile("^" + labelForm + "$")
	nameOf1123  = regexp.MustCompile("^" + labelForm + "([.]" + labelForm + ")*$")
)

func isName(s string) bool { return len(s) <= mostName && nameOf1123.MatchString(s) }

// isValid reports whether Kubernetes accepts all names of a workload.
func (w Workload) isValid() bool {
	return len(w.Namespace) <= mostLabel && labelOf1123.MatchString(w.Namespace) && isName(w.ServiceAccount) && isName(w.Name)
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

// isValid reports whether a target can be one of a service. Proxies and stored records name any.
func (t Target) isValid() bool {
	return t.Host != "" && areOfNames(string(t.Host)) && areOfNames(t.Subset) && t.Port <= math.MaxUint16 && (t.Port != 0 || t.Subset == "")
}

// areOfNames reports whether a text has at most as many characters as names of hosts have, and no others than theirs.
func areOfNames(s string) bool {
	return len(s) <= mostName && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._*", r)
	})
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

// Asked implements server.Learned. Of one request it takes as many clusters as are remembered of a workload.
func (m *Memory) Asked(p *model.Proxy, clusters []string, again bool) {
	w, now := WorkloadOf(p), m.now().Truncate(time.Second)
	var targets []Target
	for _, name := range clusters {
		if c, ok := resourcename.ParseCluster(name); ok && len(targets) < maxCalls {
			targets = append(targets, Target{c.Host, c.Port, c.Subset})
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range targets {
		if known := m.workloads[w][t]; known == nil || !again { // again: it may have been called long ago
			m.add(w, t, now, now)
		}
	}
	m.limit(w)
}

// Called records that a workload called hosts, by its metrics. Without a port, all known targets of the host count.
func (m *Memory) Called(w Workload, hosts []model.Host) {
	now := m.now().Truncate(time.Second)
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.limit(w)
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
	defer m.limit(w)
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

// add records a call. A target with a port replaces the one of its host without, which is ignored if a port is known. The
// result is nil if nothing is recorded. The caller calls limit after its last call. The lock is held.
func (m *Memory) add(w Workload, t Target, first, last time.Time) *times {
	if !w.isValid() || !t.isValid() {
		return nil
	}
	calls := m.workloads[w]
	portless := Target{Host: t.Host}
	switch unknown := calls[portless]; {
	case t.Port != 0 && unknown != nil:
		first, last = earlier(first, unknown.first), later(last, unknown.last)
		m.drop(w, portless)
		calls = m.workloads[w]
	case t.Port == 0 && unknown == nil && m.knows(w, t.Host):
		return nil
	}
	if calls == nil {
		m.roomForWorkload(w)
		calls = map[Target]*times{}
		m.workloads[w] = calls
		m.accounts[account{w.Namespace, w.ServiceAccount}]++
	}
	at := calls[t]
	if at == nil {
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

// limit forgets what exceeds the bounds after calls of a workload were added: those that were made last the longest ago. The
// lock is held.
func (m *Memory) limit(w Workload) {
	if calls := m.workloads[w]; len(calls) > maxCalls {
		oldest := slices.SortedFunc(maps.Keys(calls), func(a, b Target) int {
			return cmp.Or(calls[a].last.Compare(calls[b].last), a.compare(b))
		})
		for _, t := range oldest[:len(oldest)-maxCalls] {
			m.drop(w, t)
		}
	}
	if m.total > maxTotal {
		m.shrink()
	}
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

// shrink forgets a tenth of all calls. The namespaces with the most calls give them up, of these the service accounts with
// the most, and of these the calls that were made the longest ago: no account takes the place of others. The lock is held.
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
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b call) int {
		return cmp.Or(a.last.Compare(b.last), a.w.compare(b.w), a.t.compare(b.t))
	})
	namespaces, accounts := newTally[string](), map[string]*tally[account]{}
	for _, c := range all {
		ns := c.w.Namespace
		if accounts[ns] == nil {
			accounts[ns] = newTally[account]()
		}
		namespaces.add(ns)
		accounts[ns].add(account{ns, c.w.ServiceAccount})
	}
	cut := map[account]int{}
	for ns, n := range namespaces.cuts(len(all)/10 + 1) {
		maps.Copy(cut, accounts[ns].cuts(n))
	}
	for _, c := range all {
		of := account{c.w.Namespace, c.w.ServiceAccount}
		if cut[of] > 0 {
			cut[of]--
			m.drop(c.w, c.t)
		}
	}
}

// tally counts what each of several owners has.
type tally[K comparable] struct {
	order []K // in which they were added first
	count map[K]int
}

func newTally[K comparable]() *tally[K] { return &tally[K]{count: map[K]int{}} }

func (t *tally[K]) add(k K) {
	if t.count[k]++; t.count[k] == 1 {
		t.order = append(t.order, k)
	}
}

// cuts returns how many each owner gives up, n together: those with the most, until they have as many as others. n is at
// most the sum of all.
func (t *tally[K]) cuts(n int) map[K]int {
	above := func(level int) (sum int) {
		for _, has := range t.count {
			sum += max(0, has-level)
		}
		return sum
	}
	level := sort.Search(slices.Max(slices.Collect(maps.Values(t.count))), func(level int) bool { return above(level) <= n })
	rest := n - above(level)
	out := map[K]int{}
	for _, k := range t.order {
		out[k] = max(0, t.count[k]-level)
		if rest > 0 && t.count[k] >= level && level > 0 {
			out[k]++
			rest--
		}
	}
	return out
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
