package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
)

// Why follows the sidecars of maxInbound endpoints, and then only one of each further workload, up to maxWorkloads sidecars: an
// answer with more is long, and costs the control plane a simulation for each.
const (
	maxInbound   = 3
	maxWorkloads = 8
)

// notFollowed is the cause of an end at an endpoint whose sidecar was not followed.
const notFollowed = "if its sidecar accepts the call"

// arrivals are the ends of a call at the endpoints that were followed.
type arrivals struct {
	n       int               // of the sidecars that were followed
	ends    map[string][]*End // by workload and cluster
	assumed bool              // others were taken to decide the same
}

// follows reports whether another endpoint of a workload is followed.
func (a *arrivals) follows(workload string) bool {
	return a.n < maxInbound || a.n < maxWorkloads && len(a.ends[workload]) == 0
}

func (a *arrivals) add(workload string, e *End) {
	a.n++
	a.ends[workload] = append(a.ends[workload], e)
}

// assume returns the end of a call at an endpoint that was not followed. Its workload's sidecars decide as those that were
// followed, if these agree.
func (a *arrivals) assume(workload, at string) *End {
	known := a.ends[workload]
	if len(known) == 0 || slices.ContainsFunc(known, func(e *End) bool { return !e.same(known[0]) }) {
		return &End{Outcome: Reaches, At: []string{at}, Cause: notFollowed}
	}
	a.assumed = true
	e := *known[0]
	e.At = []string{at}
	return &e
}

func (a *arrivals) notes() []string {
	if !a.assumed {
		return nil
	}
	return []string{fmt.Sprintf("this answer follows the sidecars of %d endpoints, and assumes that others of the same workloads decide the same", a.n)}
}

// workload names the cluster of an endpoint and the workload behind it: two Pods of a Deployment have the same one.
func (f *sidecarsElsewhere) workload(u *simulate.Upstream, e *simulate.Endpoint) string {
	w, _ := f.at(e)
	if w == nil {
		return u.Cluster
	}
	labels := maps.Clone(w.Labels)
	for _, l := range model.PodLabels {
		delete(labels, l)
	}
	return strings.Join([]string{u.Cluster, w.Namespace, w.ServiceAccount, fmt.Sprint(labels, e.Plain)}, " ")
}
