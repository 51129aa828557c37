package analyze

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// credentials reports Secrets that are not there, that cannot be used, or that workloads may
// not have: their calls fail.
func (c secretChecks) credentials(r *model.DestinationRule) {
	reported := map[string]bool{}
	eachTLS(r, func(field string, t *model.ClientTLS) {
		d := c.credential(r, t)
		if !reported[d.text] {
			reported[d.text] = true
			c.defective(r, field+".credentialName", d)
		}
	})
}

// defect is what is wrong with a Secret or a ConfigMap. It is zero if nothing is.
type defect struct {
	severity problem.Severity
	text     string
}

// defective reports a defect, if there is one.
func (c *checker) defective(o model.Object, field string, d defect) {
	if d.text != "" {
		c.add(code.SecretUnusable, d.severity, o, field, "%s", d.text)
	}
}

// credential returns what is wrong with one.
func (c secretChecks) credential(r *model.DestinationRule, t *model.ClientTLS) defect {
	credential, ok := model.ParseCredential(t.CredentialName)
	key, own := credential.In(r.Namespace)
	if !ok || !own || t.Mode != model.TLSSimple && t.Mode != model.TLSMutual {
		return defect{}
	}
	if credential.Kind == model.KindSecret && len(r.WorkloadSelector) == 0 {
		return defect{} // no client receives it; decoding the rule reports that
	}
	secret := c.secrets[key]
	if t.Mode == model.TLSMutual {
		if d := c.unusable(key, secret, true); d.text != "" {
			return d
		}
		if d := c.unread(r, secret); d.text != "" {
			return d
		}
	}
	if t.InsecureSkipVerify {
		return defect{}
	}
	key, secret = c.withCAs(key, secret)
	return c.unusable(key, secret, false)
}

// withCAs returns the Secret with a credential's CAs. A separate Secret for the CAs takes precedence.
func (c secretChecks) withCAs(key model.Key, s *model.Secret) (model.Key, *model.Secret) {
	ca := c.secrets[model.Key{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name + model.SuffixCA}]
	if key.Kind == model.KindSecret && ca != nil && ca.CAProblem != model.NoSecret {
		key, s = ca.Key, ca
	}
	return key, s
}

// unusable returns what is wrong with a Secret's key pair, or with its CAs. Files often lack Secrets on purpose.
func (c *checker) unusable(key model.Key, s *model.Secret, pair bool) defect {
	missing := s == nil || s.Problem == model.NoSecret && s.CAProblem == model.NoSecret
	if missing && c.onlyFiles {
		return defect{problem.SeverityWarning, fmt.Sprintf("%s %s: not found in namespace %s of these files, and calls fail without it: create it, or correct the name", key.Kind, key.Name, key.Namespace)}
	}
	if missing {
		return defect{problem.SeverityError, fmt.Sprintf("%s %s: not found in namespace %s, so calls fail: create it, or correct the name", key.Kind, key.Name, key.Namespace)}
	}
	wrong := s.CAProblem
	if pair {
		wrong = s.Problem
	}
	switch {
	case wrong != "":
		return defect{problem.SeverityError, fmt.Sprintf("%s %s: unusable, so calls fail: %s", key.Kind, key.Name, wrong)}
	case pair && s.StapleProblem != "":
		return defect{problem.SeverityWarning, fmt.Sprintf("%s %s: no OCSP response is sent with its certificate: %s; correct or remove it", key.Kind, key.Name, s.StapleProblem)}
	case !pair && s.CALeftOut != "":
		return defect{problem.SeverityWarning, fmt.Sprintf("%s %s: a part of its CAs is left out, so certificates under them are refused: %s; correct or remove them", key.Kind, key.Name, s.CALeftOut)}
	}
	return defect{}
}

// unread returns what is wrong if workloads may not have a key.
func (c secretChecks) unread(r *model.DestinationRule, s *model.Secret) defect {
	missing := c.mayNotRead(s, r.Namespace, r.WorkloadSelector)
	if len(missing) == 0 {
		return defect{}
	}
	return defect{problem.SeverityError, fmt.Sprintf("service accounts %s may not read Secret %s, so calls of their workloads fail: grant them get on it",
		strings.Join(missing, ", "), s.Name)}
}

// mayNotRead returns the service accounts of selected workloads that may not have a key. If a selector has labels of topology,
// all accounts must lack it: which of them run at the place is not known.
func (x *index) mayNotRead(s *model.Secret, ns string, selector map[string]string) []string {
	missing, able := map[string]bool{}, false
	for _, w := range x.selected(ns, selector) {
		if s.MayRead(w.Account()) {
			able = true
		} else {
			missing[w.Account()] = true
		}
	}
	if able && model.SelectsByTopology(selector) {
		return nil
	}
	return slices.Sorted(maps.Keys(missing))
}

// eachTLS calls f for all TLS settings of a rule, with their fields.
func eachTLS(r *model.DestinationRule, f func(field string, t *model.ClientTLS)) {
	policy := func(field string, p model.TrafficPolicy, ports map[uint32]model.TrafficPolicy) {
		if p.TLS != nil {
			f(field+".tls", p.TLS)
		}
		for _, n := range slices.Sorted(maps.Keys(ports)) {
			if t := ports[n].TLS; t != nil {
				f(field+".portLevelSettings", t)
			}
		}
	}
	policy("spec.trafficPolicy", r.Policy, r.Ports)
	for i, s := range r.Subsets {
		policy(fmt.Sprintf("spec.subsets[%d].trafficPolicy", i), s.Policy, s.Ports)
	}
}
