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
