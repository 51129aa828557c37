// Package analyze finds problems between objects, such as a route to a subset that no DestinationRule
// defines. Packages istio, gatewayapi and kube find the problems of single objects.
//
// It is pure. The problems do not keep an object from being used. An error means that requests fail or are
// routed differently than written, a warning that something has no effect, and an info that something can be improved.
package analyze

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// Input is a configuration without a running mesh.
type Input struct {
	Objects []model.Object
	// Templates are the workloads that Deployments and other owners of Pods make.
	Templates []*model.Workload
	// Raw are the objects of the Gateway API as JSON, also those that are not used.
	Raw map[model.Key][]byte
	// Drafts are objects with errors, without their invalid fields.
	Drafts []model.Object
	// Broken are the keys of objects with errors: references to them are not wrong.
	Broken map[model.Key]bool
	// Files: the objects come from files, so that others may be elsewhere.
	Files bool
	// Root is the namespace whose policies are for all, if no MeshConfig is among the objects; empty: the default.
	Root string
}

// Check returns the problems between objects. Problems name object and field; the caller knows the files and
// lines.
func Check(objects []model.Object, domain string) problem.List {
	return CheckAll(Input{Objects: objects}, domain)
}

// CheckAll is Check for all that files have.
func CheckAll(in Input, domain string) problem.List {
	objects := append(slices.Clone(in.Objects), in.Drafts...)
	slices.SortFunc(objects, func(a, b model.Object) int { return a.Metadata().Key.Compare(b.Metadata().Key) })
	c := &checker{index: newIndex(objects, in.Root), domain: domain, whole: true, onlyFiles: in.Files, broken: in.Broken, raw: in.Raw}
	templates := slices.Clone(in.Templates)
	slices.SortFunc(templates, func(a, b *model.Workload) int { return a.Key.Compare(b.Key) })
	for _, w := range templates {
		c.workloads[w.Namespace] = append(c.workloads[w.Namespace], w)
	}
	for _, o := range objects {
		c.object(o)
	}
	serviceChecks{c}.conflicts()
	c.misspelt(objects)
	apiChecks{checker: c, attached: map[model.Key]map[string]int{}}.all()
	for _, w := range templates {
		injectionChecks{c}.template(w)
	}
	c.problems.Sort()
	return c.problems
}

// CheckOne returns the problems between one object and the others, in which it replaces the object with its key.
func CheckOne(o model.Object, others []model.Object, domain string) problem.List {
	key := o.Metadata().Key
	all := slices.DeleteFunc(slices.Clone(others), func(other model.Object) bool { return other.Metadata().Key == key })
	c := &checker{index: newIndex(append(all, o), ""), domain: domain}
	c.object(o)
	serviceChecks{c}.conflicts()
	c.problems = slices.DeleteFunc(c.problems, func(p problem.Problem) bool { return p.Object != key })
	c.problems.Sort()
	return c.problems
}

func (c *checker) object(o model.Object) {
	switch o := o.(type) {
	case *model.VirtualService:
		if o.Kind == model.KindVirtualService {
			routeChecks{c}.virtualService(o)
			silentChecks{c}.virtualService(o)
		} else {
			gatewayChecks{c}.attached(o)
		}
	case *model.DestinationRule:
		ruleChecks{c}.destinationRule(o)
	case *model.BackendTLSPolicy:
		gatewayChecks{c}.backendTLS(o)
	case *model.ReferenceGrant:
		c.grant(o)
	case *model.Namespace:
		injectionChecks{c}.namespace(o)
	case *model.Workload:
		injectionChecks{c}.labels(o)
	case *model.Sidecar:
		ruleChecks{c}.sidecar(o)
	case *model.Service:
		serviceChecks{c}.service(o)
	case *model.ServiceEntry:
		serviceChecks{c}.serviceEntry(o)
		silentChecks{c}.serviceEntry(o)
	case *model.EndpointSlice:
		serviceChecks{c}.endpointSlice(o)
	case *model.AuthorizationPolicy:
		securityChecks{c}.authorizationPolicy(o)
		silentChecks{c}.authorizationPolicy(o)
	case *model.RequestAuthentication:
		securityChecks{c}.requestAuthentication(o)
	case *model.PeerAuthentication:
		securityChecks{c}.peerAuthentication(o)
	case *model.EnvoyFilter, *model.WasmPlugin:
		securityChecks{c}.policyTargets(o.(model.Selecting))
	case *model.Telemetry:
		securityChecks{c}.policyTargets(o)
		telemetryChecks{c}.telemetry(o)
	case *model.ProxyConfig:
		serviceChecks{c}.proxyConfig(o)
	case *model.Ingress:
		gatewayChecks{c}.kubernetesIngress(o)
	case *model.Gateway:
		switch o.Kind {
		case model.KindGateway:
			gatewayChecks{c}.gateway(o)
		case model.KindKubernetesGateway:
			gatewayChecks{c}.kubernetesGateway(o)
		case model.KindListenerSet:
			gatewayChecks{c}.listenerSet(o)
		}
	}
}

// checker collects problems.
type checker struct {
	*index
	domain string
	whole  bool // there are no objects but those that are known
	// onlyFiles: the objects come from files, so that running workloads and other owners' objects are not among them.
	onlyFiles bool
	broken    map[model.Key]bool   // objects with errors, which need not be among the others
	raw       map[model.Key][]byte // see Input
	problems  problem.List
	mentioned map[mention]bool // what elsewhere has reported
}

func (c *checker) add(id code.Code, s problem.Severity, o model.Object, field, format string, args ...any) *problem.Problem {
	return c.report(id, s, o.Metadata().Key, field, format, args...)
}

// report adds a problem, and returns it until the next one is added.
func (c *checker) report(id code.Code, s problem.Severity, k model.Key, field, format string, args ...any) *problem.Problem {
	c.problems = append(c.problems, problem.Problem{Severity: s, Code: id, Object: k, Field: field, Message: fmt.Sprintf(format, args...)})
	return &c.problems[len(c.problems)-1]
}

func (c *checker) errorf(id code.Code, o model.Object, field, format string, args ...any) {
	c.add(id, problem.SeverityError, o, field, format, args...)
}

func (c *checker) warnf(id code.Code, o model.Object, field, format string, args ...any) *problem.Problem {
	return c.add(id, problem.SeverityWarning, o, field, format, args...)
}

func (c *checker) infof(id code.Code, o model.Object, field, format string, args ...any) {
	c.add(id, problem.SeverityInfo, o, field, format, args...)
}

// Checks of one topic each. They add to the problems of the one checker that they share.
type (
	// routeChecks are about VirtualServices.
	routeChecks struct{ *checker }
	// destinationChecks are about what routes and policies send to: hosts, ports and subsets.
	destinationChecks struct{ *checker }
	// ruleChecks are about DestinationRules and Sidecars.
	ruleChecks struct{ *checker }
	// gatewayChecks are about servers of Gateways, ingress listeners of Sidecars and BackendTLSPolicies.
	gatewayChecks struct{ *checker }
	// securityChecks are about mutual TLS, AuthorizationPolicies and RequestAuthentications.
	securityChecks struct{ *checker }
	// secretChecks are about credentials that others name.
	secretChecks struct{ *checker }
	// serviceChecks are about Services, ServiceEntries and objects that concern the same host.
	serviceChecks struct{ *checker }
	// silentChecks are about fields of one object that have another effect than they seem to have.
	silentChecks struct{ *checker }
	// injectionChecks are about labels and annotations of injection.
	injectionChecks struct{ *checker }
	// telemetryChecks are about Telemetries.
	telemetryChecks struct{ *checker }
)

// index finds objects by what others call them.
type index struct {
	services  []*model.Service // one a host
	byHost    map[model.Host][]*model.Service
	byPlace   map[string][]*model.Service  // by namespace
	workloads map[string][]*model.Workload // by namespace
	// namespaces are the objects. A namespace may have none, and its labels are unknown then.
	namespaces map[string]*model.Namespace
	rules      map[model.Host][]*model.DestinationRule
	virtuals   map[model.Key]*model.VirtualService
	sidecars   map[string][]*model.Sidecar // by namespace
	secrets    map[model.Key]*model.Secret
	// backendPolicies are in the order of their keys.
	backendPolicies []*model.BackendTLSPolicy
	grants          map[string][]*model.ReferenceGrant // by namespace
	gateways        gateways
	classes         map[string]*model.IngressClass
	mesh            *model.MeshConfig // nil: none
	proxies         model.ProxyConfigs
	security        security
	peers           peerPolicies
	telemetries     []*model.Telemetry
	// membership is what members has found.
	membership map[*model.Service]membership
}

func newIndex(objects []model.Object, root string) *index {
	root = cmp.Or(root, model.DefaultMesh().RootNamespace)
	x := &index{
		security:   security{root: root},
		peers:      peerPolicies{root: root},
		byHost:     map[model.Host][]*model.Service{},
		byPlace:    map[string][]*model.Service{},
		workloads:  map[string][]*model.Workload{},
		namespaces: map[string]*model.Namespace{},
		rules:      map[model.Host][]*model.DestinationRule{},
		virtuals:   map[model.Key]*model.VirtualService{},
		sidecars:   map[string][]*model.Sidecar{},
		secrets:    map[model.Key]*model.Secret{},
		grants:     map[string][]*model.ReferenceGrant{},
		classes:    map[string]*model.IngressClass{},
		membership: map[*model.Service]membership{},
	}
	for _, o := range objects {
		x.add(o)
	}
	x.peers.finish()
	return x
}

func (x *index) add(o model.Object) {
	ns := o.Metadata().Namespace
	x.security.add(o)
	switch o := o.(type) {
	case *model.Service:
		x.addService(o)
	case *model.ServiceEntry:
		for _, s := range o.Services() {
			x.addService(s)
		}
	case *model.Workload:
		x.workloads[ns] = append(x.workloads[ns], o)
	case *model.Namespace:
		x.namespaces[o.Name] = o
	case *model.IngressClass:
		x.classes[o.Name] = o
	case *model.ReferenceGrant:
		x.grants[ns] = append(x.grants[ns], o)
	case *model.BackendTLSPolicy:
		x.backendPolicies = append(x.backendPolicies, o)
	case *model.DestinationRule:
		x.rules[o.Host] = append(x.rules[o.Host], o)
	case *model.VirtualService:
		if o.Kind == model.KindVirtualService {
			x.virtuals[o.Key] = o
		}
	case *model.Sidecar:
		x.sidecars[ns] = append(x.sidecars[ns], o)
	case *model.ProxyConfig:
		x.proxies.Add(o)
	case *model.Telemetry:
		x.telemetries = append(x.telemetries, o)
	case *model.Gateway:
		x.gateways.add(o)
	case *model.Secret:
		x.secrets[o.Key] = o
	case *model.PeerAuthentication:
		x.peers.list = append(x.peers.list, o)
	case *model.MeshConfig:
		x.peers.root, x.mesh = ns, o
	}
}

func (x *index) addService(s *model.Service) {
	x.services = append(x.services, s)
	x.byHost[s.Hostname] = append(x.byHost[s.Hostname], s)
	x.byPlace[s.Namespace] = append(x.byPlace[s.Namespace], s)
}

// selected returns the workloads of a namespace that a selector selects. Labels of topology do not count: where workloads run
// is not known.
func (x *index) selected(ns string, selector map[string]string) []*model.Workload {
	var out []*model.Workload
	selector = model.WithoutTopology(selector)
	for _, w := range x.workloads[ns] {
		if model.SelectorMatches(selector, w.Labels) {
			out = append(out, w)
		}
	}
	return out
}

// find returns the services of a host, which may be services of a wildcard. hidden reports that services exist, but none that
// namespace ns may see.
func (x *index) find(h model.Host, ns string) (found []*model.Service, hidden bool) {
	for _, covering := range h.Covering() {
		for _, s := range x.byHost[covering] {
			if s.Visibility.Sees(ns) {
				found = append(found, s)
			} else {
				hidden = true
			}
		}
		if len(found) > 0 {
			return found, false
		}
	}
	return nil, hidden
}

// rulesFor returns the DestinationRules that apply to a host.
func (x *index) rulesFor(h model.Host, ns string) []*model.DestinationRule {
	var out []*model.DestinationRule
	for _, covering := range h.Covering() {
		for _, r := range x.rules[covering] {
			if r.Visibility.Sees(ns) {
				out = append(out, r)
			}
		}
	}
	return out
}

// member is a workload of a service.
type member struct {
	labels  map[string]string
	sidecar bool            // with an identity
	pod     *model.Workload // nil: it is an endpoint of the ServiceEntry
}

type membership struct {
	members []member
	known   bool
}

// members are the workloads of a service; known is false if they are unknown: the
// configuration has no workloads of that namespace, for example only Deployments.
func (x *index) members(s *model.Service) (out []member, known bool) {
	found, done := x.membership[s]
	if !done {
		found.members, found.known = x.findMembers(s)
		x.membership[s] = found
	}
	return found.members, found.known
}

func (x *index) findMembers(s *model.Service) (out []member, known bool) {
	for i := range s.Inline {
		out, known = append(out, member{labels: s.Inline[i].Labels, sidecar: s.Inline[i].Sidecar}), true
	}
	if len(s.Selector) == 0 {
		return out, known
	}
	list := x.workloads[s.Namespace]
	for _, w := range list {
		if model.SelectorMatches(s.Selector, w.Labels) {
			out = append(out, member{w.Labels, w.SpeaksMTLS(), w})
		}
	}
	return out, known || len(list) > 0
}

// hosts lists every host that namespace ns can see, for suggestions.
func (x *index) hosts(ns string) []string {
	var out []string
	for _, s := range x.services {
		if s.Visibility.Sees(ns) {
			out = append(out, string(s.Hostname))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
