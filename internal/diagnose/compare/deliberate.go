package compare

import (
	"net"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/moonsail/moonsail/internal/diagnose/outcome"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// Deliberate is a difference between Istio and Moonsail that is on purpose. Two control planes of the same kind, or of unknown
// kinds, have none.
type Deliberate struct {
	Reason string `json:"reason"`
	Page   string `json:"page"` // of the documentation
}

// decided is a call with its outcomes on both sides.
type decided struct {
	call        *Call
	left, right *followed
}

// deliberate is a difference on purpose with how it shows.
type deliberate struct {
	Deliberate
	matches func(*decided, Change) bool
}

const trafficPage = "docs/reference/differences.md#traffic"

// known has the differences on purpose. Either side may be Moonsail.
var known = []deliberate{
	{Deliberate{"Moonsail's sidecars use HTTP/2 between them: it costs less CPU for each request", trafficPage}, func(_ *decided, c Change) bool {
		return c.What == "protocol" && has(c, "http1", "http2")
	}},
	{Deliberate{"Moonsail removes the trailing dot of a host", trafficPage}, func(d *decided, c Change) bool {
		host, _, _ := strings.Cut(d.call.Host, ":")
		return c.What == "host" && strings.HasSuffix(host, ".") && (c.Left == outcome.None || c.Right == outcome.None)
	}},
	{Deliberate{"Istio applies a VirtualService at port 80 even if the service does not have this port; Moonsail passes such calls to their address", trafficPage}, func(d *decided, _ Change) bool {
		return d.call.isAt80() && len(d.left.objects.route) != len(d.right.objects.route) && !d.left.serves(d.call) && !d.right.serves(d.call)
	}},
}

// isAt80 reports whether a workload calls port 80 of a host.
func (c *Call) isAt80() bool {
	_, port, err := net.SplitHostPort(c.To)
	return err == nil && port == "80" && !c.Inbound && !c.Direct
}

// serves reports whether the caller's proxy has a cluster for port 80 of the host of a call.
func (f *followed) serves(c *Call) bool {
	return slices.ContainsFunc(f.world.Clusters, func(cl *clusterv3.Cluster) bool {
		of, ok := resourcename.ParseCluster(cl.GetName())
		return ok && of.Port == 80 && strings.EqualFold(string(of.Host), strings.TrimSuffix(c.Host, "."))
	})
}

// has reports whether the two sides of a change have these texts, in any order.
func has(c Change, a, b string) bool {
	return c.Left == a && c.Right == b || c.Left == b && c.Right == a
}

// onPurpose returns why all changes of a call are on purpose; nil: some are not. The sides have different kinds.
func onPurpose(d *decided, changes []Change) *Deliberate {
	var out *Deliberate
	for _, c := range changes {
		i := slices.IndexFunc(known, func(k deliberate) bool { return k.matches(d, c) })
		if i < 0 {
			return nil
		}
		if out == nil {
			out = &known[i].Deliberate
		}
	}
	return out
}
