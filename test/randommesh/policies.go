package randommesh

import (
	"github.com/moonsail/moonsail/internal/model"
)

var (
	providers = []string{"p", "q"}
	keys      = []string{"https://a.example.com/keys", "https://b.example.com/keys"}
)

// selectOrTarget has a policy select workloads, or name Gateways, or be for a whole namespace.
func (w *World) selectOrTarget(selector *map[string]string, targets *model.Targets) {
	switch {
	case w.Chance(0.5):
		*selector = w.selector()
	case w.Chance(0.4):
		targets.Targeted = true
		for _, name := range names {
			if w.Chance(0.5) {
				targets.Gateways = append(targets.Gateways, name)
			}
		}
	}
}

func (w *World) authorizationPolicy() model.Object {
	p := &model.AuthorizationPolicy{
		Meta: w.meta(model.KindAuthorizationPolicy), DryRun: w.Chance(0.2),
		Action: Pick(w, []model.AuthorizationAction{model.AuthorizeAllow, model.AuthorizeDeny, model.AuthorizeAudit, model.AuthorizeCustom}),
	}
	w.selectOrTarget(&p.Selector, &p.Targets)
	if p.Action == model.AuthorizeCustom {
		p.Provider = Pick(w, providers)
	}
	for range w.IntN(3) {
		c := model.AuthorizationCondition{
			Attribute: Pick(w, []model.Attribute{model.AttributePath, model.AttributeMethod, model.AttributeHost}), Values: []string{"/" + Pick(w, names)},
		}
		p.Rules = append(p.Rules, model.AuthorizationRule{To: []model.AuthorizationMatch{{c}}})
	}
	return p
}

func (w *World) requestAuthentication() model.Object {
	a := &model.RequestAuthentication{Meta: w.meta(model.KindRequestAuthentication)}
	w.selectOrTarget(&a.Selector, &a.Targets)
	for range 1 + w.IntN(2) {
		r := model.JWTRule{Issuer: Pick(w, names), KeysURI: Pick(w, keys)}
		if w.Chance(0.3) {
			r.Keys = "own"
		}
		a.Rules = append(a.Rules, r)
	}
	return a
}

func (w *World) keySet() model.Object {
	m := w.meta(model.KindKeySet)
	m.Namespace, m.Name = "", Pick(w, keys)
	return &model.KeySet{Meta: m, Keys: Pick(w, []string{"", "k1", "k2"})}
}

// authorizers are services of the mesh, or such as are not there.
func (w *World) authorizers() map[string]*model.ExternalAuthorizer {
	out := map[string]*model.ExternalAuthorizer{}
	for _, name := range providers {
		if w.Chance(0.5) {
			out[name] = &model.ExternalAuthorizer{Name: name, Host: w.host(), Port: Pick(w, []uint32{80, 9000}), Namespace: Pick(w, []string{"", "a"})}
		}
	}
	return out
}

// The service accounts of proxies; keys that are not for all are for "reader" alone.
var accounts = []string{"reader", "other"}

func (w *World) secret() model.Object {
	s := &model.Secret{Meta: w.meta(model.KindSecret), Readers: []string{"reader"}}
	if w.Chance(0.3) {
		s.Name += model.SuffixCA
	}
	if w.Chance(0.7) {
		s.Certificate, s.PrivateKey = "certificate", model.NewPrivateKey(Pick(w, versions))
	} else {
		s.Problem = "it has none"
	}
	if w.Chance(0.7) {
		s.CA = Pick(w, versions)
	} else {
		s.CAProblem = "it has none"
	}
	if w.Chance(0.1) {
		s.Readers = []string{}
	}
	if w.Chance(0.5) { // of routers, by a grant
		s.Readers = append(s.Readers, Pick(w, namespaces)+"/reader")
	}
	return s
}

// configMap has certificates of CAs, mostly.
func (w *World) configMap() model.Object {
	s := &model.Secret{Meta: w.meta(model.KindConfigMap), Problem: "it has none", CA: Pick(w, versions)}
	if w.Chance(0.2) {
		s.CA, s.CAProblem = "", "it has none"
	}
	return s
}

func (w *World) backendTLS() model.Object {
	p := &model.BackendTLSPolicy{Meta: w.meta(model.KindBackendTLSPolicy), SNI: Pick(w, versions), System: w.Chance(0.2)}
	for range 1 + w.IntN(2) {
		p.Targets = append(p.Targets, model.BackendTarget{
			Host: model.ResolveHost(Pick(w, names), p.Namespace, "cluster.local"), Port: Pick(w, []string{"", "", "http", "tls"}),
		})
		p.CAs = append(p.CAs, model.Key{Kind: model.KindConfigMap, Namespace: p.Namespace, Name: Pick(w, names)})
	}
	return p
}

// credentialRule is a destination rule whose clients need a Secret.
func (w *World) credentialRule() model.Object {
	d := w.destinationRule().(*model.DestinationRule)
	d.Policy.TLS = &model.ClientTLS{
		Mode: Pick(w, []model.TLSMode{model.TLSSimple, model.TLSMutual}), InsecureSkipVerify: w.Chance(0.2),
		CredentialName: Pick(w, []string{"", "", "kubernetes://", "kubernetes://a/", "configmap://a/"}) + Pick(w, names),
	}
	if w.Chance(0.8) {
		d.WorkloadSelector = map[string]string{"app": Pick(w, names)}
	}
	return d
}

// ingressTLS has a Sidecar's own listener end TLS with a Secret.
func (w *World) ingressTLS(in *model.IngressListener) {
	in.Port.Protocol = Pick(w, []model.Protocol{model.ProtocolHTTPS, model.ProtocolTLS})
	in.TLS = &model.ServerTLS{
		Mode: Pick(w, []model.ServerTLSMode{model.ServerSimple, model.ServerMutual}), CredentialNames: []string{Pick(w, names)},
	}
}

func (w *World) wasmPlugin() model.Object {
	p := &model.WasmPlugin{
		Meta: w.meta(model.KindWasmPlugin), File: Pick(w, versions), Priority: int32(w.IntN(3)),
		Phase: Pick(w, []model.WasmPhase{model.WasmUnspecified, model.WasmAuthn, model.WasmAuthz, model.WasmStats}),
	}
	if w.Chance(0.4) {
		p.File, p.Module = "", model.WasmModule{URL: "oci://a/" + Pick(w, versions), Always: w.Chance(0.5), PullSecret: Pick(w, []string{"", "s"})}
	}
	p.Network = w.Chance(0.4)
	if w.Chance(0.5) {
		p.Selector = w.selector()
	}
	if w.Chance(0.4) {
		p.Matches = []model.WasmMatch{{Sides: Pick(w, []model.Sides{model.SideClient, model.SideServer, model.BothSides}), Ports: []uint32{80}}}
	}
	return p
}
