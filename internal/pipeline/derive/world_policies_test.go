package derive

import (
	"github.com/moonsail/moonsail/internal/model"
)

var (
	worldProviders = []string{"p", "q"}
	worldKeys      = []string{"https://a.example.com/keys", "https://b.example.com/keys"}
)

// selectOrTarget has a policy select workloads, or name Gateways, or be for a whole namespace.
func (w *world) selectOrTarget(selector *map[string]string, targets *model.Targets) {
	switch {
	case w.chance(0.5):
		*selector = w.selector()
	case w.chance(0.4):
		targets.Targeted = true
		for _, name := range worldNames {
			if w.chance(0.5) {
				targets.Gateways = append(targets.Gateways, name)
			}
		}
	}
}

func (w *world) authorizationPolicy() model.Object {
	p := &model.AuthorizationPolicy{
		Meta: w.meta(model.KindAuthorizationPolicy), DryRun: w.chance(0.2),
		Action: pick(w, []model.AuthorizationAction{model.AuthorizeAllow, model.AuthorizeDeny, model.AuthorizeAudit, model.AuthorizeCustom}),
	}
	w.selectOrTarget(&p.Selector, &p.Targets)
	if p.Action == model.AuthorizeCustom {
		p.Provider = pick(w, worldProviders)
	}
	for range w.IntN(3) {
		c := model.AuthorizationCondition{
			Attribute: pick(w, []model.Attribute{model.AttributePath, model.AttributeMethod, model.AttributeHost}), Values: []string{"/" + pick(w, worldNames)},
		}
		p.Rules = append(p.Rules, model.AuthorizationRule{To: []model.AuthorizationMatch{{c}}})
	}
	return p
}

func (w *world) requestAuthentication() model.Object {
	a := &model.RequestAuthentication{Meta: w.meta(model.KindRequestAuthentication)}
	w.selectOrTarget(&a.Selector, &a.Targets)
	for range 1 + w.IntN(2) {
		r := model.JWTRule{Issuer: pick(w, worldNames), KeysURI: pick(w, worldKeys)}
		if w.chance(0.3) {
			r.Keys = "own"
		}
		a.Rules = append(a.Rules, r)
	}
	return a
}

func (w *world) keySet() model.Object {
	m := w.meta(model.KindKeySet)
	m.Namespace, m.Name = "", pick(w, worldKeys)
	return &model.KeySet{Meta: m, Keys: pick(w, []string{"", "k1", "k2"})}
}

// authorizers are services of the mesh, or such as are not there.
func (w *world) authorizers() map[string]*model.ExternalAuthorizer {
	out := map[string]*model.ExternalAuthorizer{}
	for _, name := range worldProviders {
		if w.chance(0.5) {
			out[name] = &model.ExternalAuthorizer{Name: name, Host: w.host(), Port: pick(w, []uint32{80, 9000}), Namespace: pick(w, []string{"", "a"})}
		}
	}
	return out
}

// The service accounts of proxies; keys that are not for all are for "reader" alone.
var worldAccounts = []string{"reader", "other"}

func (w *world) secret() model.Object {
	s := &model.Secret{Meta: w.meta(model.KindSecret), Readers: []string{"reader"}}
	if w.chance(0.3) {
		s.Name += model.SuffixCA
	}
	if w.chance(0.7) {
		s.Certificate, s.PrivateKey = "certificate", model.NewPrivateKey(pick(w, worldVersions))
	} else {
		s.Problem = "it has none"
	}
	if w.chance(0.7) {
		s.CA = pick(w, worldVersions)
	} else {
		s.CAProblem = "it has none"
	}
	if w.chance(0.1) {
		s.Readers = []string{}
	}
	if w.chance(0.5) { // of routers, by a grant
		s.Readers = append(s.Readers, pick(w, worldNamespaces)+"/reader")
	}
	return s
}

// configMap has certificates of CAs, mostly.
func (w *world) configMap() model.Object {
	s := &model.Secret{Meta: w.meta(model.KindConfigMap), Problem: "it has none", CA: pick(w, worldVersions)}
	if w.chance(0.2) {
		s.CA, s.CAProblem = "", "it has none"
	}
	return s
}

func (w *world) backendTLS() model.Object {
	p := &model.BackendTLSPolicy{Meta: w.meta(model.KindBackendTLSPolicy), SNI: pick(w, worldVersions), System: w.chance(0.2)}
	for range 1 + w.IntN(2) {
		p.Targets = append(p.Targets, model.BackendTarget{
			Host: model.ResolveHost(pick(w, worldNames), p.Namespace, "cluster.local"), Port: pick(w, []string{"", "", "http", "tls"}),
		})
		p.CAs = append(p.CAs, model.Key{Kind: model.KindConfigMap, Namespace: p.Namespace, Name: pick(w, worldNames)})
	}
	return p
}

// credentialRule is a destination rule whose clients need a Secret.
func (w *world) credentialRule() model.Object {
	d := w.destinationRule().(*model.DestinationRule)
	d.Policy.TLS = &model.ClientTLS{
		Mode: pick(w, []model.TLSMode{model.TLSSimple, model.TLSMutual}), InsecureSkipVerify: w.chance(0.2),
		CredentialName: pick(w, []string{"", "", "kubernetes://", "kubernetes://a/", "configmap://a/"}) + pick(w, worldNames),
	}
	if w.chance(0.8) {
		d.WorkloadSelector = map[string]string{"app": pick(w, worldNames)}
	}
	return d
}

// ingressTLS has a Sidecar's own listener end TLS with a Secret.
func (w *world) ingressTLS(in *model.IngressListener) {
	in.Port.Protocol = pick(w, []model.Protocol{model.ProtocolHTTPS, model.ProtocolTLS})
	in.TLS = &model.ServerTLS{
		Mode: pick(w, []model.ServerTLSMode{model.ServerSimple, model.ServerMutual}), CredentialNames: []string{pick(w, worldNames)},
	}
}

func (w *world) wasmPlugin() model.Object {
	p := &model.WasmPlugin{
		Meta: w.meta(model.KindWasmPlugin), File: pick(w, worldVersions), Priority: int32(w.IntN(3)),
		Phase: pick(w, []model.WasmPhase{model.WasmUnspecified, model.WasmAuthn, model.WasmAuthz, model.WasmStats}),
	}
	if w.chance(0.4) {
		p.File, p.Module = "", model.WasmModule{URL: "oci://a/" + pick(w, worldVersions), Always: w.chance(0.5), PullSecret: pick(w, []string{"", "s"})}
	}
	p.Network = w.chance(0.4)
	if w.chance(0.5) {
		p.Selector = w.selector()
	}
	if w.chance(0.4) {
		p.Matches = []model.WasmMatch{{Sides: pick(w, []model.Sides{model.SideClient, model.SideServer, model.BothSides}), Ports: []uint32{80}}}
	}
	return p
}
