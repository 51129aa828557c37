package istiodebug

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// Service is istiod's Service, an element of registryz and instancesz.
type Service struct {
	Attributes      Attributes
	Ports           []ServicePort `json:"ports,omitempty"`
	CreationTime    time.Time     `json:"creationTime,omitzero"`
	Hostname        model.Host    `json:"hostname"`
	ClusterVIPs     addressMap    `json:"clusterVIPs"`
	DefaultAddress  string        `json:"defaultAddress,omitempty"`
	AutoIPv4        string        `json:"autoAllocatedIPv4Address,omitempty"`
	AutoIPv6        string        `json:"autoAllocatedIPv6Address,omitempty"`
	Resolution      int
	MeshExternal    bool
	ResourceVersion string
}

// Attributes are a Service's.
type Attributes struct {
	ServiceRegistry string
	Name, Namespace string
	Labels          map[string]string
	ExportTo        map[string]struct{}
	LabelSelectors  map[string]string
	Type            string `json:",omitempty"`
	ExternalName    string `json:",omitempty"`
}

// ServicePort is a port of a Service.
type ServicePort struct {
	Name     string `json:"name,omitempty"`
	Port     uint32 `json:"port"`
	Protocol string `json:"protocol,omitempty"`
}

type addressMap struct {
	Addresses map[string][]string `json:"Addresses,omitempty"`
}

// resolutions are istiod's numbers.
var resolutions = map[model.Resolution]int{
	model.ResolutionStatic: 0, model.ResolutionDNS: 1, model.ResolutionNone: 2, model.ResolutionDNSRoundRobin: 3, model.ResolutionDynamicDNS: 5,
}

// protocols are istiod's names that are not those of model in capitals.
var protocols = map[model.Protocol]string{
	model.ProtocolAuto: "UnsupportedProtocol", model.ProtocolMySQL: "MySQL", model.ProtocolMongo: "Mongo", model.ProtocolRedis: "Redis",
	model.ProtocolGRPCWeb: "GRPC-Web",
}

func (p *Pages) registryz(w http.ResponseWriter, _ *http.Request) {
	out := []Service{}
	for _, s := range services(p.Snapshot()) {
		out = append(out, istioService(s))
	}
	reply(w, out)
}

// services returns the services of all Services and ServiceEntries, by host and namespace.
func services(snap *store.Snapshot) []*model.Service {
	var out []*model.Service
	for o := range snap.All(model.KindService) {
		out = append(out, o.(*model.Service))
	}
	for o := range snap.All(model.KindServiceEntry) {
		out = append(out, o.(*model.ServiceEntry).Services()...)
	}
	slices.SortFunc(out, func(a, b *model.Service) int {
		return cmp.Or(cmp.Compare(a.Hostname, b.Hostname), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// registryOf returns the registry of a service.
func registryOf(s *model.Service) string {
	if s.Kind == model.KindServiceEntry {
		return "External"
	}
	return "Kubernetes"
}

func istioService(s *model.Service) Service {
	out := Service{
		Attributes: Attributes{
			ServiceRegistry: registryOf(s), Name: s.Name, Namespace: s.Namespace, Labels: s.Labels, ExportTo: exportTo(s.Visibility),
			LabelSelectors: s.Selector, ExternalName: string(s.ExternalName),
		},
		CreationTime: s.Created, Hostname: s.Hostname, DefaultAddress: "0.0.0.0", Resolution: resolutions[s.Resolution], MeshExternal: s.External,
		ResourceVersion: s.ResourceVersion,
	}
	switch {
	case s.Kind == model.KindServiceEntry:
		out.Attributes.Name = string(s.Hostname) // as in istiod
	case s.ExternalName != "":
		out.Attributes.Type = "ExternalName"
	case s.Balanced:
		out.Attributes.Type = "LoadBalancer"
	default:
		out.Attributes.Type = "ClusterIP"
	}
	for i := range s.Ports {
		out.Ports = append(out.Ports, ServicePort{s.Ports[i].Name, s.Ports[i].Number, protocolName(s.Ports[i].Protocol)})
	}
	var addresses []string
	for _, a := range s.Addresses {
		addresses = append(addresses, addressText(a))
	}
	if len(addresses) > 0 {
		out.DefaultAddress = addresses[0]
		out.ClusterVIPs.Addresses = map[string][]string{defaultCluster: addresses}
	}
	for _, a := range s.Auto {
		if a.Is4() {
			out.AutoIPv4 = a.String()
		} else {
			out.AutoIPv6 = a.String()
		}
	}
	return out
}

func protocolName(p model.Protocol) string {
	if name, ok := protocols[p]; ok {
		return name
	}
	return strings.ToUpper(string(p))
}

// addressText returns an address without the length of its prefix if it is that of one host.
func addressText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

func exportTo(v model.Visibility) map[string]struct{} {
	switch {
	case !v.Private:
		return map[string]struct{}{"*": {}}
	case len(v.Namespaces) == 0:
		return map[string]struct{}{"~": {}}
	}
	out := map[string]struct{}{}
	for _, ns := range v.Namespaces {
		out[ns] = struct{}{}
	}
	return out
}
