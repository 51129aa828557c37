package explain

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/wasmplugin"
)

// ProxyConfig is what one proxy should have, and how far each resource has come.
type ProxyConfig struct {
	Now       time.Time        `json:"now"`
	Proxy     string           `json:"proxy"` // name.namespace
	ID        string           `json:"id"`
	IPs       []string         `json:"ips"`
	Agent     string           `json:"agent,omitempty"` // address of the agent's debug pages; empty: there is no agent
	Resources []ConfigResource `json:"resources"`
}

// ConfigResource is one resource of a proxy.
type ConfigResource struct {
	Type     string         `json:"type"` // short name: "CDS"
	Name     string         `json:"name"`
	Version  string         `json:"version"`
	Revision model.Revision `json:"revision"` // the one that made the resource what it is
	// Sent is how far it has come on the proxy's stream: "ACKed", "sent", "not sent" or "refused".
	Sent     string          `json:"sent"`
	Message  string          `json:"message,omitempty"` // Envoy's, if it refused the resource
	Bytes    int             `json:"bytes"`
	Objects  []model.Key     `json:"objects,omitempty"`  // that the resource was made from
	Resource json.RawMessage `json:"resource,omitempty"` // only if the caller asked for it
}

// Sections are the parts of a proxy's configuration by their names for people, with the types of their
// resources.
var Sections = []struct {
	Name  string
	Types []resource.Type
}{
	{"listeners", typesOf("LDS")},
	{"routes", typesOf("RDS", "VHDS")},
	{"clusters", typesOf("CDS")},
	{"endpoints", typesOf("EDS")},
	{"secrets", typesOf("SDS")},
	{"extensions", typesOf("ECDS", "BDS")},
}

func typesOf(short ...string) []resource.Type {
	var out []resource.Type
	for _, t := range resource.Types {
		if slices.Contains(short, t.Short) {
			out = append(out, t.Type)
		}
	}
	return out
}

// AllSections is the name of all sections together.
const AllSections = "all"

// sectionTypes returns the types of a section.
func sectionTypes(section string) ([]resource.Type, error) {
	var out []resource.Type
	known := false
	for _, s := range Sections {
		if s.Name == section || section == AllSections {
			out, known = append(out, s.Types...), true
		}
	}
	if !known {
		return nil, fmt.Errorf("section %q: unknown: use listeners, routes, clusters, endpoints, secrets, extensions or all", section)
	}
	return out, nil
}

// NotConnected is the error for a proxy that is not connected.
type NotConnected struct{ Name string }

// Error implements error.
func (e NotConnected) Error() string { return fmt.Sprintf("proxy %q is not connected", e.Name) }

// Config lists what a proxy should have of a section; full adds the resources themselves.
func (x *Explainer) Config(proxy, section string, full bool) (*ProxyConfig, error) {
	types, err := sectionTypes(section)
	if err != nil {
		return nil, err
	}
	p, list, ok := x.Proxies.Intended(proxy, types...)
	if !ok {
		return nil, NotConnected{proxy}
	}
	out := &ProxyConfig{Now: time.Now(), Proxy: p.String(), ID: p.ID, IPs: p.IPs, Agent: agentOf(p), Resources: []ConfigResource{}}
	for i := range list {
		e := list[i].Entry
		r := ConfigResource{Type: list[i].Type.String(), Name: e.Name, Version: e.Version, Revision: e.Revision,
			Sent: sentTexts[list[i].Status], Message: list[i].Message, Objects: e.MadeFrom().Keys()}
		encoded := e.Resource()
		r.Bytes = len(encoded.Any())
		if full {
			if r.Resource, err = readable(encoded); err != nil {
				return nil, fmt.Errorf("%s %s: %w", r.Type, r.Name, err)
			}
		}
		out.Resources = append(out.Resources, r)
	}
	return out, nil
}

// agentOf returns the address of a proxy's agent, which the proxy reports in its metadata.
func agentOf(p *model.Proxy) string {
	if p.StatusPort == 0 || len(p.IPs) == 0 {
		return ""
	}
	return net.JoinHostPort(p.IPs[0], strconv.Itoa(int(p.StatusPort)))
}

var sentTexts = map[ledger.ResourceStatus]string{
	ledger.Has: "ACKed", ledger.Unanswered: "sent", ledger.Unsent: "not sent", ledger.Refused: "refused",
}

// message decodes a resource.
func message(e *resource.Encoded) (proto.Message, error) {
	packed := &anypb.Any{}
	if err := proto.Unmarshal(e.Any(), packed); err != nil {
		return nil, err
	}
	return packed.UnmarshalNew()
}

// readable returns a resource as JSON, without private keys.
func readable(e *resource.Encoded) (json.RawMessage, error) {
	m, err := message(e)
	if err != nil {
		return nil, err
	}
	switch m := m.(type) {
	case *tlsv3.Secret:
		redact(m)
	case *corev3.TypedExtensionConfig:
		if err := wasmplugin.Redact(m); err != nil {
			return nil, err
		}
	}
	return protojson.Marshal(m)
}

// redact removes the key from a secret, as Envoy does.
func redact(s *tlsv3.Secret) {
	if c := s.GetTlsCertificate(); c != nil {
		c.PrivateKey = &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: wasmplugin.Redacted}}
	}
}
