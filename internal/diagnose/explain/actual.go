package explain

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/diagnose/configdump"
)

// Actual is what an Envoy has by xDS, read from its admin interface.
type Actual struct {
	has     map[held]proto.Message // in use
	warming map[held]bool          // newer forms that are not in use yet
	errors  map[held]string        // the proxy's messages about the last forms that it refused
	secrets []Secret
}

// held identifies a resource by the short name of its type and its name.
type held struct{ typ, name string }

// ParseDump reads a config dump that was requested with configdump.Query.
func ParseDump(text []byte) (*Actual, error) {
	d, err := configdump.Parse(text)
	if err != nil {
		return nil, err
	}
	a := &Actual{has: map[held]proto.Message{}, warming: map[held]bool{}, errors: map[held]string{}}
	for i := range d.Configs {
		c := &d.Configs[i]
		for _, cl := range c.Clusters {
			a.add(cl.Cluster)
		}
		for _, cl := range c.WarmingClusters {
			a.warm(cl.Cluster)
		}
		for j := range c.Listeners {
			a.listener(&c.Listeners[j])
		}
		for _, r := range c.Routes {
			a.add(r.RouteConfig)
		}
		for _, e := range c.Endpoints {
			a.add(e.Endpoints)
		}
		for _, s := range c.Secrets {
			a.secret(s, "active")
			a.credential(s, false)
		}
		for _, s := range c.WarmingSecrets {
			a.secret(s, Warming)
			a.credential(s, true)
		}
	}
	return a, nil
}

func (a *Actual) listener(l *configdump.Listener) {
	at := held{"LDS", l.Name}
	if l.Active != nil {
		a.add(l.Active.Listener)
	}
	if l.Warming != nil {
		a.warming[at] = true
	}
	if l.Error != nil {
		a.errors[at] = l.Error.Details
	}
}

// parse decodes a resource. It returns nil if the resource has extensions that this binary does not know.
func parse(text json.RawMessage) proto.Message {
	m, err := configdump.Resource(text)
	if err != nil {
		return nil
	}
	return m
}

func (a *Actual) add(text json.RawMessage) {
	switch m := parse(text).(type) {
	case *clusterv3.Cluster:
		a.has[held{"CDS", m.GetName()}] = m
	case *listenerv3.Listener:
		a.has[held{"LDS", m.GetName()}] = m
	case *endpointv3.ClusterLoadAssignment:
		a.has[held{"EDS", m.GetClusterName()}] = m
	case *routev3.RouteConfiguration:
		a.has[held{"RDS", m.GetName()}] = m
		for _, vh := range m.GetVirtualHosts() {
			a.has[held{"VHDS", vh.GetName()}] = vh
		}
	}
}

func (a *Actual) warm(text json.RawMessage) {
	if m, ok := parse(text).(*clusterv3.Cluster); ok {
		a.warming[held{"CDS", m.GetName()}] = true
	}
}

// Verdict compares what a proxy should have with what its Envoy has.
type Verdict struct {
	State string `json:"state"`
	// Differences read "path: intended X, actual Y". There are at most maxDifferences.
	Differences []string `json:"differences,omitempty"`
}

// The states of a Verdict.
const (
	Same    = "same"
	Differs = "differs"
	Missing = "missing" // Envoy does not have it
	Warming = "warming" // Envoy has it, or a newer form of it, and does not use it yet
	Extra   = "extra"   // Envoy has it, and should not
)

const maxDifferences = 10

// Compare compares a resource, which must be complete, with Envoy's.
func (a *Actual) Compare(r *ConfigResource) (Verdict, error) {
	at := held{r.Type, r.Name}
	intended, err := decodeAs(r.Type, r.Resource)
	if err != nil {
		return Verdict{}, fmt.Errorf("%s %s: %w", r.Type, r.Name, err)
	}
	actual := a.has[at]
	if actual == nil {
		if a.warming[at] {
			return Verdict{State: Warming}, nil
		}
		return Verdict{State: Missing}, nil
	}
	actual = comparable(intended, actual)
	if r.Type == "EDS" {
		return compareEndpoints(intended, actual), nil
	}
	diff := differences(intended, actual)
	switch {
	case a.warming[at]:
		return Verdict{State: Warming, Differences: diff}, nil
	case len(diff) > 0:
		return Verdict{State: Differs, Differences: diff}, nil
	}
	return Verdict{State: Same}, nil
}

// comparable removes the virtual hosts from Envoy's route configuration if they come by VHDS: they are
// compared one by one.
func comparable(intended, actual proto.Message) proto.Message {
	rc, ok := intended.(*routev3.RouteConfiguration)
	if !ok || rc.GetVhds() == nil {
		return actual
	}
	shell := proto.Clone(actual).(*routev3.RouteConfiguration)
	shell.VirtualHosts = nil
	return shell
}

// Extra lists what Envoy has of a section and should not have, by type and name.
func (a *Actual) Extra(section string, intended []ConfigResource) []ConfigResource {
	var out []ConfigResource
	there := map[held]bool{}
	for i := range intended {
		there[held{intended[i].Type, intended[i].Name}] = true
	}
	types, err := sectionTypes(section)
	if err != nil {
		return nil
	}
	for at := range maps.Keys(a.has) {
		wanted := slices.ContainsFunc(types, func(t typeName) bool { return t.String() == at.typ })
		if wanted && !there[at] && !a.inside(at, intended) {
			out = append(out, ConfigResource{Type: at.typ, Name: at.name})
		}
	}
	slices.SortFunc(out, func(x, y ConfigResource) int { return strings.Compare(x.Type+x.Name, y.Type+y.Name) })
	return out
}

// inside reports whether a resource is part of another one: endpoints of clusters that do not use EDS, and
// virtual hosts that came in their route configuration.
func (a *Actual) inside(at held, intended []ConfigResource) bool {
	switch at.typ {
	case "EDS":
		c, ok := a.has[held{"CDS", at.name}].(*clusterv3.Cluster)
		return !ok || c.GetType() != clusterv3.Cluster_EDS
	case "VHDS":
		return !slices.ContainsFunc(intended, func(r ConfigResource) bool { return r.Type == at.typ })
	}
	return false
}

// Secrets returns the certificates that Envoy has by SDS, without their keys.
func (a *Actual) Secrets() []Secret { return a.secrets }

// compareEndpoints compares addresses and health. Envoy makes its dump from its hosts, and not from what it
// was sent.
func compareEndpoints(intended, actual proto.Message) Verdict {
	want, got := addressesOf(intended), addressesOf(actual)
	var diff []string
	for _, address := range slices.Sorted(maps.Keys(want)) {
		switch status, ok := got[address]; {
		case !ok:
			diff = append(diff, address+": missing")
		case status != want[address]:
			diff = append(diff, fmt.Sprintf("%s: intended %s, actual %s", address, want[address], status))
		}
	}
	for _, address := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[address]; !ok {
			diff = append(diff, address+": extra")
		}
	}
	if len(diff) == 0 {
		return Verdict{State: Same}
	}
	return Verdict{State: Differs, Differences: diff[:min(len(diff), maxDifferences)]}
}

// addressesOf returns the addresses of an assignment with their health.
func addressesOf(m proto.Message) map[string]string {
	out := map[string]string{}
	a, ok := m.(*endpointv3.ClusterLoadAssignment)
	if !ok {
		return out
	}
	for _, l := range a.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			status := e.GetHealthStatus().String()
			if e.GetHealthStatus() == corev3.HealthStatus_UNKNOWN {
				status = corev3.HealthStatus_HEALTHY.String()
			}
			out[addressText(e.GetEndpoint().GetAddress())] = status
		}
	}
	return out
}

func addressText(a *corev3.Address) string {
	if s := a.GetSocketAddress(); s != nil {
		return net.JoinHostPort(s.GetAddress(), strconv.FormatUint(uint64(s.GetPortValue()), 10))
	}
	return a.GetPipe().GetPath()
}
