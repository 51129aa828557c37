package explain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// ProxyPolicies are the policies in force at a proxy, in the order of evaluation.
type ProxyPolicies struct {
	Now            time.Time       `json:"now"`
	Proxy          string          `json:"proxy"` // name.namespace
	ServiceAccount string          `json:"serviceAccount,omitempty"`
	Policies       []PolicyInForce `json:"policies"`
	Default        PolicyDefault   `json:"default"`
	MutualTLS      []MutualTLSMode `json:"mutualTLS,omitempty"` // by port; the last is for ports that are not named
}

// PolicyInForce is an AuthorizationPolicy that applies to a proxy.
type PolicyInForce struct {
	Object   model.Key                 `json:"object"`
	Origin   string                    `json:"origin,omitempty"` // file and line, or the API server
	Action   model.AuthorizationAction `json:"action"`
	Provider string                    `json:"provider,omitempty"` // of CUSTOM
	DryRun   bool                      `json:"dryRun,omitempty"`
	Rules    []PolicyRule              `json:"rules"` // none: the policy matches no call
}

// PolicyRule is a rule in words.
type PolicyRule struct {
	Field  string `json:"field"`            // "spec.rules[0]"
	Origin string `json:"origin,omitempty"` // of the rule
	Calls  string `json:"calls"`            // those that it matches: "calls from principals ..."
}

// PolicyDefault is what becomes of calls that no rule matches.
type PolicyDefault struct {
	Refused bool   `json:"refused"`
	Reason  string `json:"reason"`
}

// MutualTLSMode is what a proxy accepts at a port.
type MutualTLSMode struct {
	Port    uint32         `json:"port,omitempty"` // of the workload; 0: all others
	Mode    model.MTLSMode `json:"mode"`
	Objects []model.Key    `json:"objects,omitempty"` // the PeerAuthentications that decide
}

// actionOrder is the order in which actions are evaluated.
var actionOrder = []model.AuthorizationAction{model.AuthorizeCustom, model.AuthorizeAudit, model.AuthorizeDeny, model.AuthorizeAllow}

// Policies returns the policies in force at a proxy: those that its listeners are made from.
func (x *Explainer) Policies(proxy string) (*ProxyPolicies, error) {
	p, list, ok := x.Proxies.Intended(proxy, resource.Listener, resource.Cluster)
	if !ok {
		return nil, NotConnected{proxy}
	}
	snap := x.Snapshot()
	out := &ProxyPolicies{Now: time.Now(), Proxy: p.String(), ServiceAccount: p.ServiceAccount, Policies: []PolicyInForce{}}
	var origins model.OriginList
	var ports []uint32
	for i := range list {
		if list[i].Type == resource.Listener {
			origins.AddAll(list[i].Entry.MadeFrom())
		} else if c, ok := resourcename.ParseCluster(list[i].Entry.Name); ok && c.Direction == resourcename.Inbound {
			ports = append(ports, c.Port)
		}
	}
	var peers []*model.PeerAuthentication
	for _, k := range origins.Since(0).Keys() {
		switch o := snap.Get(k).(type) {
		case *model.AuthorizationPolicy:
			out.Policies = append(out.Policies, x.inForce(o))
		case *model.PeerAuthentication:
			peers = append(peers, o)
		}
	}
	slices.SortStableFunc(out.Policies, func(a, b PolicyInForce) int {
		return cmp.Compare(slices.Index(actionOrder, a.Action), slices.Index(actionOrder, b.Action))
	})
	out.Default = defaultOf(out.Policies)
	if p.Type == model.ProxySidecar {
		out.MutualTLS = mutualTLSModes(x.mesh(snap).RootNamespace, peers, ports)
	}
	return out, nil
}

func (x *Explainer) inForce(p *model.AuthorizationPolicy) PolicyInForce {
	out := PolicyInForce{Object: p.Key, Origin: p.Origin, Action: p.Action, Provider: p.Provider, DryRun: p.DryRun, Rules: []PolicyRule{}}
	for i := range p.Rules {
		field := fieldOfRule(i)
		out.Rules = append(out.Rules, PolicyRule{Field: field, Origin: x.placeOf(&p.Meta, field), Calls: ruleWords(&p.Rules[i])})
	}
	return out
}

// defaultOf returns what becomes of calls that no rule matches.
func defaultOf(list []PolicyInForce) PolicyDefault {
	if slices.ContainsFunc(list, func(p PolicyInForce) bool { return p.Action == model.AuthorizeAllow && !p.DryRun }) {
		return PolicyDefault{true, "a policy has the action ALLOW"}
	}
	return PolicyDefault{false, "no policy has the action ALLOW"}
}

// mutualTLSModes returns the modes of ports, and that of all others.
func mutualTLSModes(root string, policies []*model.PeerAuthentication, ports []uint32) []MutualTLSMode {
	modes := model.EffectivePeerTLS(root, policies)
	for port := range modes.Ports {
		ports = append(ports, port)
	}
	slices.Sort(ports)
	var objects []model.Key
	for _, p := range model.EffectivePeerAuthentications(root, policies) {
		if p.Mode != model.MTLSUnset || len(p.Ports) > 0 {
			objects = append(objects, p.Key)
		}
	}
	var out []MutualTLSMode
	for _, port := range append(slices.Compact(ports), 0) {
		out = append(out, MutualTLSMode{Port: port, Mode: modes.Of(port), Objects: objects})
	}
	return out
}

// String returns "refused: a policy has the action ALLOW".
func (d PolicyDefault) String() string {
	return fmt.Sprintf("%s: %s", map[bool]string{true: "refused", false: "allowed"}[d.Refused], d.Reason)
}
