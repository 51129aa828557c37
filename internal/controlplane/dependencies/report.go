package dependencies

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// Question selects what a report has. Empty fields select everything.
type Question struct {
	Namespace string `json:"namespace,omitempty"` // of the callers
	// Workload is the name of a workload or of a connected proxy; ".NAMESPACE" may follow.
	Workload string `json:"workload,omitempty"`
	// CallersOf is a host, or the name of a service; ".NAMESPACE" may follow.
	CallersOf string `json:"callersOf,omitempty"`
}

// Report is who calls what.
type Report struct {
	Now       time.Time        `json:"now"`
	Workloads []WorkloadReport `json:"workloads"`
	// RootNamespace is the control plane's.
	RootNamespace string `json:"rootNamespace"`
	LeftOut       int    `json:"leftOut,omitempty"` // workloads that exceed the bound of answers
	// LeftOutOf names them in an answer to a peer, which may have them.
	LeftOutOf []Workload `json:"leftOutOf,omitempty"`
	// Others are the control planes that were asked too.
	Others []explain.PeerQuery `json:"others,omitempty"`
}

// WorkloadReport is what a workload calls.
type WorkloadReport struct {
	Workload
	Proxies int `json:"proxies"` // connected
	// Proxy is the name.namespace of one of them.
	Proxy string `json:"proxy,omitempty"`
	// Selector are labels that select its Pods; empty: it has none now, or no labels.
	Selector map[string]string `json:"selector,omitempty"`
	// Shared: the selector also selects Pods of other workloads.
	Shared bool         `json:"selectorShared,omitempty"`
	Calls  []CallReport `json:"calls"`
}

// CallReport is the calls of a workload to a service.
type CallReport struct {
	Host    model.Host `json:"host"`
	Ports   []uint32   `json:"ports,omitempty"` // empty: unknown
	Subsets []string   `json:"subsets,omitempty"`
	First   time.Time  `json:"first"`
	Last    time.Time  `json:"last"`
	// Rate is requests or connections for each second, of all connected proxies of the workload; nil: unknown.
	Rate *float64 `json:"rate,omitempty"`
	// Measured is about the last calls of the proxies that were read; nil: unknown, or no calls.
	Measured *Measured `json:"measured,omitempty"`
	Service  Service   `json:"service"`
}

// Reporter answers questions.
type Reporter struct {
	Memory   *Memory
	Scraper  *Scraper
	Snapshot func() *store.Snapshot
	// RootNamespace is the control plane's.
	RootNamespace string
}

// Report returns what this control plane knows.
func (r *Reporter) Report(q Question) *Report {
	out := &Report{Now: time.Now(), Workloads: []WorkloadReport{}, RootNamespace: r.RootNamespace}
	snapshot := r.Snapshot()
	services, pods, used := servicesOf(snapshot), workloadsOf(snapshot), r.Scraper.usages()
	asked := r.Scraper.named(q.Workload)
	for _, record := range r.Memory.Records() {
		w := record.Workload
		if q.Namespace != "" && w.Namespace != q.Namespace || q.Workload != "" && !isNamed(w, q.Workload) && w != asked {
			continue
		}
		one := WorkloadReport{Workload: w, Calls: callsOf(&record, services, pods, q.CallersOf)}
		if len(one.Calls) == 0 {
			continue
		}
		if now := used[w]; now != nil {
			one.Proxies, one.Proxy = now.proxies, now.proxy
			one.addUsage(now)
		}
		one.Selector, one.Shared = pods.selector(w)
		out.Workloads = append(out.Workloads, one)
	}
	return out
}

func isNamed(w Workload, name string) bool { return name == w.Name || name == w.Name+"."+w.Namespace }

// callsOf returns the calls of a record by host.
func callsOf(record *Record, all services, pods workloads, to string) (out []CallReport) {
	for _, c := range record.Calls {
		if n := len(out); n > 0 && out[n-1].Host == c.Host { // they are in the order of hosts
			out[n-1].add(&c)
			continue
		}
		one := CallReport{Host: c.Host, First: c.First, Last: c.Last, Service: describe(all.of(c.Host, record.Namespace), pods)}
		if to != "" && !one.isTo(to) {
			continue
		}
		one.add(&c)
		out = append(out, one)
	}
	return out
}

func (c *CallReport) isTo(name string) bool {
	host := string(c.Host)
	if host == name || c.Service.Name == name || c.Service.Name+"."+c.Service.Namespace == name {
		return true
	}
	return strings.HasPrefix(host, name+".") && strings.Contains(host, ".svc.") && strings.Count(name, ".") <= 2
}

func (c *CallReport) add(o *Call) {
	c.First, c.Last = earlier(c.First, o.First), later(c.Last, o.Last)
	if o.Port != 0 {
		c.Ports = union(c.Ports, o.Port)
	}
	if o.Subset != "" {
		c.Subsets = union(c.Subsets, o.Subset)
	}
}

func (w *WorkloadReport) addUsage(now *usage) {
	if now.measured == 0 {
		return
	}
	for i := range w.Calls {
		n := now.rates[w.Calls[i].Host]
		w.Calls[i].Rate, w.Calls[i].Measured = &n, now.counts[w.Calls[i].Host]
	}
}

// Join adds the report of another control plane.
func (r *Report) Join(o *Report) {
	ahead := r.Now.Sub(o.Now)
	for i := range o.Workloads {
		w := &o.Workloads[i]
		for j := range w.Calls {
			explain.Shift(&w.Calls[j].First, ahead)
			explain.Shift(&w.Calls[j].Last, ahead)
		}
		at, found := r.find(w.Workload)
		if found {
			r.Workloads[at].join(w)
		} else {
			r.Workloads = slices.Insert(r.Workloads, at, *w)
		}
	}
	r.LeftOut += o.LeftOut - len(o.LeftOutOf)
	for _, w := range o.LeftOutOf {
		if !slices.Contains(r.LeftOutOf, w) {
			r.LeftOutOf, r.LeftOut = append(r.LeftOutOf, w), r.LeftOut+1
		}
	}
	r.LeftOutOf = slices.DeleteFunc(r.LeftOutOf, func(w Workload) bool {
		_, found := r.find(w)
		if found {
			r.LeftOut--
		}
		return found
	})
}

// find returns where the report of a workload is, or would be.
func (r *Report) find(w Workload) (at int, found bool) {
	return slices.BinarySearchFunc(r.Workloads, w, func(a WorkloadReport, b Workload) int { return a.compare(b) })
}

func (w *WorkloadReport) join(o *WorkloadReport) {
	w.Proxies += o.Proxies
	w.Proxy = cmp.Or(w.Proxy, o.Proxy)
	if len(w.Selector) == 0 {
		w.Selector, w.Shared = o.Selector, o.Shared
	}
	for i := range o.Calls {
		c := &o.Calls[i]
		at, found := slices.BinarySearchFunc(w.Calls, c.Host, func(a CallReport, h model.Host) int { return cmp.Compare(a.Host, h) })
		if !found {
			w.Calls = slices.Insert(w.Calls, at, *c)
			continue
		}
		w.Calls[at].join(c)
	}
}

func (c *CallReport) join(o *CallReport) {
	c.First, c.Last = earlier(c.First, o.First), later(c.Last, o.Last)
	for _, p := range o.Ports {
		c.Ports = union(c.Ports, p)
	}
	for _, s := range o.Subsets {
		c.Subsets = union(c.Subsets, s)
	}
	switch {
	case c.Rate == nil:
		c.Rate = o.Rate
	case o.Rate != nil:
		sum := *c.Rate + *o.Rate
		c.Rate = &sum
	}
	c.Measured = c.Measured.with(o.Measured)
	if c.Service.Kind == "" {
		c.Service = o.Service
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// union adds an element to a sorted list.
func union[T cmp.Ordered](list []T, one T) []T {
	at, found := slices.BinarySearch(list, one)
	if found {
		return list
	}
	return slices.Insert(list, at, one)
}
