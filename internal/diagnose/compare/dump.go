package compare

import (
	"encoding/json"
	"errors"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/diagnose/configdump"
)

// ParseDump reads a proxy from the config dump of its Envoy: /config_dump?include_eds, or what "istioctl proxy-config all POD
// -o json" prints. The bootstrap in it names the proxy. Extensions that this binary does not know are kept by their type, as
// far as the simulator can do without their configuration.
func ParseDump(text []byte, nodes NodeParser) (*Proxy, error) {
	d, err := configdump.Parse(text)
	if err != nil {
		return nil, err
	}
	p, err := proxyOf(d, nodes)
	if err != nil {
		return nil, fmt.Errorf("config dump: %w", err)
	}
	p.Kind = kindOfDump(d)
	for i := range d.Configs {
		for _, text := range resourcesOf(&d.Configs[i]) {
			m, err := configdump.ResourceOfAnyExtension(text)
			if err != nil {
				return nil, fmt.Errorf("config dump of %s: %w", p.Name, err)
			}
			p.Add(m)
		}
	}
	if len(p.World.Listeners) == 0 {
		return nil, fmt.Errorf("config dump of %s: no dynamic listeners: dump all sections", p.Name)
	}
	return p, nil
}

// proxyOf returns the proxy of the bootstrap, without resources.
func proxyOf(d *configdump.Dump, nodes NodeParser) (*Proxy, error) {
	for i := range d.Configs {
		b := d.Configs[i].Bootstrap
		if b == nil {
			continue
		}
		envoy := &corev3.Node{}
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b.Node, envoy); err != nil {
			return nil, fmt.Errorf("node: %w", err)
		}
		n, err := nodes.parse(envoy)
		if err != nil {
			return nil, err
		}
		return n.proxy(), nil
	}
	return nil, errors.New("no bootstrap with a node id: dump all sections")
}

// kindOfDump returns the kind of the control plane of the dump's resources.
func kindOfDump(d *configdump.Dump) Kind {
	for i := range d.Configs {
		c := &d.Configs[i]
		versions := []string{c.Version}
		for _, l := range c.Listeners {
			if l.Active != nil {
				versions = append(versions, l.Active.Version)
			}
		}
		if k := Kind(c.ControlPlane); k == Istiod || k == Moonsail {
			return k
		}
		for _, v := range versions {
			if k := kindOf(v); k != Unknown {
				return k
			}
		}
	}
	return Unknown
}

// resourcesOf returns the resources that Envoy uses, encoded.
func resourcesOf(c *configdump.Section) []json.RawMessage {
	var out []json.RawMessage
	keep := func(text json.RawMessage) {
		if len(text) > 0 && string(text) != "null" {
			out = append(out, text)
		}
	}
	for _, list := range [][]configdump.Cluster{c.Clusters, c.StaticClusters} {
		for _, one := range list {
			keep(one.Cluster)
		}
	}
	for _, one := range c.Routes {
		keep(one.RouteConfig)
	}
	for _, list := range [][]configdump.Endpoint{c.Endpoints, c.StaticEndpoints} {
		for _, one := range list {
			keep(one.Endpoints)
		}
	}
	for _, one := range c.Listeners {
		if one.Active != nil {
			keep(one.Active.Listener)
		}
	}
	return out
}

// Add adds a resource.
func (p *Proxy) Add(m proto.Message) { p.World.Add(m) }
