package traffic

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// Sources of a Graph.
const (
	SourceProxies    = "proxies"
	SourcePrometheus = "prometheus"
)

// Graph is the calls between workloads at one time.
type Graph struct {
	Now    time.Time `json:"now"`          // by the control plane's clock
	At     time.Time `json:"at,omitzero"`  // of the newest measurement; zero: none yet
	Source string    `json:"source"`       // SourceProxies or SourcePrometheus
	Every  float64   `json:"everySeconds"` // the time between two measurements, if they are fast
	Rated  bool      `json:"rated"`        // rates are known: two measurements were made
	// Complete: each connected proxy was asked for its metrics at least once.
	Complete bool `json:"complete"`
	// Proxies counts the proxies; it is empty with Prometheus.
	Proxies Coverage `json:"proxies"`
	// Failures are some of the errors of the last measurement.
	Failures []string `json:"failures,omitempty"`
	Edges    []Edge   `json:"edges"`
	LeftOut  int      `json:"leftOut,omitempty"` // edges that exceed the bound
}

// Coverage counts proxies.
type Coverage struct {
	Connected int `json:"connected"`
	Measured  int `json:"measured"` // their numbers are part of the graph
	Failed    int `json:"failed"`   // the last request for their metrics failed
}

// End is one end of a call.
type End struct {
	Namespace string `json:"namespace,omitempty"`
	Workload  string `json:"workload,omitempty"`
	Service   string `json:"service,omitempty"` // canonical
	Version   string `json:"version,omitempty"` // canonical revision
}

// Target is the service of a call. Outside of Kubernetes its name is a host.
type Target struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// Call is what all requests of an edge have in common.
type Call struct {
	Source      End    `json:"source"`
	Destination End    `json:"destination"`
	Target      Target `json:"target"`
	Protocol    string `json:"protocol"` // http, grpc or tcp
}

// Edge is the requests of one workload to another. Both ends count them if both have a sidecar.
type Edge struct {
	Call
	// Client and Server are the numbers of the two ends; nil: this end does not count.
	Client *Numbers `json:"client,omitempty"`
	Server *Numbers `json:"server,omitempty"`
}

// Numbers are rates for each second. For TCP, requests are connections.
type Numbers struct {
	Requests float64 `json:"requests"`
	Errors   float64 `json:"errors"`
	Bytes    float64 `json:"bytes,omitempty"`  // TCP, both directions
	Mutual   float64 `json:"mutual,omitempty"` // requests with mutual TLS; servers know it
	// MutualBytes are the part of Bytes with mutual TLS. Connections that were opened before the measurement have no requests.
	MutualBytes float64 `json:"mutualBytes,omitempty"`
	P50         float64 `json:"p50Ms,omitempty"` // milliseconds; 0: unknown
	P99         float64 `json:"p99Ms,omitempty"`
	Total       float64 `json:"total,omitempty"` // since the proxies started; Prometheus does not count it
	// Durations are the rates of requests by their duration, for sums of edges.
	Durations []Duration `json:"durations,omitempty"`
}

// Duration is a bucket of a histogram: Rate counts the requests of a second that took between From and To milliseconds. The last
// bucket has no upper bound; its To is 0.
type Duration struct {
	From float64 `json:"fromMs"`
	To   float64 `json:"toMs,omitempty"`
	Rate float64 `json:"rate"`
}

// sums are what a Numbers is made of. They are counters, or rates.
type sums struct {
	requests, errors, bytes, mutual, mutualBytes, total float64
	buckets                                             []bucket // sorted by le
}

// bucket counts the requests of at most le milliseconds.
type bucket struct{ le, count float64 }

// addBucket adds to a bucket. A new one is left out if there are maxBuckets.
func (s *sums) addBucket(le, count float64) {
	i, found := slices.BinarySearchFunc(s.buckets, le, func(b bucket, le float64) int { return cmp.Compare(b.le, le) })
	if found {
		s.buckets[i].count += count
		return
	}
	if len(s.buckets) < maxBuckets {
		s.buckets = slices.Insert(s.buckets, i, bucket{le, count})
	}
}

// add adds other, which has the same buckets or none.
func (s *sums) add(other *sums) {
	s.requests += other.requests
	s.errors += other.errors
	s.bytes += other.bytes
	s.mutual += other.mutual
	s.mutualBytes += other.mutualBytes
	s.total += other.total
	for _, b := range other.buckets {
		s.addBucket(b.le, b.count)
	}
}

// since returns the rates of counters since an earlier measurement; nil: they began at 0. Counters that decreased
// began at 0 again.
func (s *sums) since(before *sums, seconds float64) sums {
	if before == nil || before.total > s.total || before.bytes > s.bytes {
		before = &sums{}
	}
	rate := func(now, then float64) float64 { return max(0, now-then) / seconds }
	out := sums{
		requests: rate(s.requests, before.requests), errors: rate(s.errors, before.errors),
		bytes: rate(s.bytes, before.bytes), mutual: rate(s.mutual, before.mutual),
		mutualBytes: rate(s.mutualBytes, before.mutualBytes), total: s.total,
	}
	for i, b := range s.buckets {
		then := 0.0
		if i < len(before.buckets) && before.buckets[i].le == b.le {
			then = before.buckets[i].count
		}
		out.buckets = append(out.buckets, bucket{b.le, rate(b.count, then)})
	}
	return out
}

func (s *sums) numbers() *Numbers {
	n := &Numbers{Requests: s.requests, Errors: s.errors, Bytes: s.bytes, Mutual: s.mutual, MutualBytes: s.mutualBytes, Total: s.total}
	low, below := 0.0, 0.0
	for _, b := range s.buckets {
		if rate := b.count - below; rate > 0 {
			to := b.le
			if math.IsInf(to, 1) {
				to = 0
			}
			n.Durations = append(n.Durations, Duration{low, to, rate})
		}
		low, below = b.le, max(below, b.count)
	}
	n.setQuantiles()
	return n
}

func (n *Numbers) setQuantiles() {
	n.P50, n.P99 = quantile(n.Durations, 0.5), quantile(n.Durations, 0.99)
}

// quantile interpolates within a range, as Prometheus's histogram_quantile. Without requests it is 0.
func quantile(list []Duration, q float64) float64 {
	total, below := 0.0, 0.0
	for _, d := range list {
		total += d.Rate
	}
	for _, d := range list {
		if below+d.Rate >= q*total {
			if d.To == 0 {
				return d.From
			}
			return d.From + (d.To-d.From)*(q*total-below)/d.Rate
		}
		below += d.Rate
	}
	return 0
}

// pair are the sums of both ends.
type pair struct{ client, server *sums }

func (p *pair) of(server bool) **sums {
	if server {
		return &p.server
	}
	return &p.client
}

// edges returns at most maxEdges edges in a stable order, the busiest ones if there are more.
func edges(all map[Call]*pair) (list []Edge, leftOut int) {
	list = []Edge{}
	for call, p := range all {
		e := Edge{Call: call}
		if p.client != nil {
			e.Client = p.client.numbers()
		}
		if p.server != nil {
			e.Server = p.server.numbers()
		}
		list = append(list, e)
	}
	if leftOut = len(list) - maxEdges; leftOut > 0 {
		slices.SortFunc(list, func(a, b Edge) int {
			return cmp.Or(cmp.Compare(b.load(), a.load()), a.compare(&b.Call))
		})
		list = list[:maxEdges]
	}
	slices.SortFunc(list, func(a, b Edge) int { return a.compare(&b.Call) })
	return list, max(0, leftOut)
}

// requestBytes are the bytes of TCP that count as a request where edges are compared.
const requestBytes = 10_000

// load returns how busy an edge is, in requests for each second.
func (e *Edge) load() float64 {
	out := 0.0
	for _, n := range []*Numbers{e.Client, e.Server} {
		if n != nil {
			out = max(out, n.Requests+n.Bytes/requestBytes)
		}
	}
	return out
}

func (c *Call) compare(o *Call) int {
	return cmp.Or(
		c.Source.compare(&o.Source), c.Destination.compare(&o.Destination),
		strings.Compare(c.Target.Namespace, o.Target.Namespace), strings.Compare(c.Target.Name, o.Target.Name),
		strings.Compare(c.Protocol, o.Protocol),
	)
}

func (e *End) compare(o *End) int {
	return cmp.Or(
		strings.Compare(e.Namespace, o.Namespace), strings.Compare(e.Workload, o.Workload),
		strings.Compare(e.Service, o.Service), strings.Compare(e.Version, o.Version),
	)
}

// Join adds the graph of another control plane, which has other proxies.
func (g *Graph) Join(other *Graph) {
	at := make(map[Call]int, len(g.Edges))
	for i := range g.Edges {
		at[g.Edges[i].Call] = i
	}
	g.Edges = slices.Clone(g.Edges)
	for _, e := range other.Edges {
		i, found := at[e.Call]
		if !found {
			if len(g.Edges) >= maxEdges {
				g.LeftOut++
				continue
			}
			g.Edges = append(g.Edges, e)
			continue
		}
		g.Edges[i].Client, g.Edges[i].Server = g.Edges[i].Client.with(e.Client), g.Edges[i].Server.with(e.Server)
	}
	slices.SortFunc(g.Edges, func(a, b Edge) int { return a.compare(&b.Call) })
	g.LeftOut += other.LeftOut
	g.joinTime(other)
	g.Complete = g.Complete && other.Complete
	g.Proxies.Connected += other.Proxies.Connected
	g.Proxies.Measured += other.Proxies.Measured
	g.Proxies.Failed += other.Proxies.Failed
	room := max(0, maxErrors-len(g.Failures))
	g.Failures = slices.Concat(g.Failures, other.Failures[:min(room, len(other.Failures))])
}

// joinTime sets the time of a graph, and whether its rates are known. A graph without measured proxies has no rates and does
// not count. It must be called before the proxies are added.
func (g *Graph) joinTime(other *Graph) {
	if other.At.IsZero() {
		return // not measured yet
	}
	if other.Proxies.Measured > 0 {
		g.Rated = other.Rated || g.Rated && g.Proxies.Measured > 0
	}
	if g.At.IsZero() {
		g.At = g.Now.Add(other.At.Sub(other.Now)) // by the clock of g
	}
}

// with returns the sum with other. It changes neither.
func (n *Numbers) with(other *Numbers) *Numbers {
	if n == nil || other == nil {
		return cmp.Or(n, other)
	}
	out := &Numbers{
		Requests: n.Requests + other.Requests, Errors: n.Errors + other.Errors, Bytes: n.Bytes + other.Bytes,
		Mutual: n.Mutual + other.Mutual, MutualBytes: n.MutualBytes + other.MutualBytes, Total: n.Total + other.Total, Durations: slices.Clone(n.Durations),
	}
	for _, d := range other.Durations {
		i, found := slices.BinarySearchFunc(out.Durations, d, func(a, b Duration) int { return cmp.Compare(a.From, b.From) })
		if found {
			out.Durations[i].Rate += d.Rate
		} else {
			out.Durations = slices.Insert(out.Durations, i, d)
		}
	}
	out.setQuantiles()
	return out
}
