package istio

import (
	"net/url"
	"slices"

	security "istio.io/api/security/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/security/jwt"
)

// RequestAuthentication decodes a RequestAuthentication.
func RequestAuthentication(in convert.Cluster, o *securityv1.RequestAuthentication) (*model.RequestAuthentication, problem.List) {
	c := policyConv{convert.Start(in, model.KindRequestAuthentication, &o.ObjectMeta)}
	at, spec := problem.Path("spec"), &o.Spec
	a := &model.RequestAuthentication{Meta: c.Meta}
	a.Selector, a.Targets = c.policyScope(spec)
	for i, r := range spec.JwtRules {
		if r == nil {
			c.Errorf(code.EmptyValue, at.Field("jwtRules").Index(i), "is empty; remove it, or fill it in")
			continue
		}
		a.Rules = append(a.Rules, c.jwtRule(at.Field("jwtRules").Index(i), r))
	}
	return a, c.Problems
}

func (c policyConv) jwtRule(at problem.Path, r *security.JWTRule) model.JWTRule {
	out := model.JWTRule{
		Issuer: r.Issuer, Audiences: r.Audiences, Keys: c.keySet(at, r), KeysURI: r.JwksUri,
		FromParams: r.FromParams, FromCookies: r.FromCookies,
		Forward: r.ForwardOriginalToken, PayloadToHeader: r.OutputPayloadToHeader,
		SpaceDelimited: r.SpaceDelimitedClaims, Timeout: c.Duration(at.Field("timeout"), r.Timeout),
	}
	for _, f := range []struct {
		name   string
		values []string
	}{
		{"audiences", r.Audiences}, {"fromParams", r.FromParams}, {"fromCookies", r.FromCookies},
		{"spaceDelimitedClaims", r.SpaceDelimitedClaims},
	} {
		if i := slices.Index(f.values, ""); i >= 0 {
			c.Errorf(code.EmptyValue, at.Field(f.name).Index(i), "is empty; remove it, or fill it in")
		}
	}
	if r.OutputPayloadToHeader != "" {
		c.HeaderName(at.Field("outputPayloadToHeader"), r.OutputPayloadToHeader)
	}
	for i, h := range r.FromHeaders {
		c.HeaderName(at.Field("fromHeaders").Index(i).Field("name"), h.GetName())
		out.FromHeaders = append(out.FromHeaders, model.JWTHeader{Name: h.GetName(), Prefix: h.GetPrefix()})
	}
	for i, h := range r.OutputClaimToHeaders {
		at := at.Field("outputClaimToHeaders").Index(i)
		c.HeaderName(at.Field("header"), h.GetHeader())
		if h.GetClaim() == "" {
			c.Errorf(code.MissingField, at.Field("claim"), "is missing; name a claim of the token")
		}
		out.ClaimsToHeaders = append(out.ClaimsToHeaders, model.ClaimHeader{Header: h.GetHeader(), Claim: h.GetClaim()})
	}
	return out
}

// keySet checks the source of keys, and returns keys that are written in the rule.
func (c policyConv) keySet(at problem.Path, r *security.JWTRule) string {
	switch {
	case r.Jwks != "":
		if r.JwksUri != "" {
			c.Warnf(code.NoEffect, at.Field("jwksUri"), "has no effect beside jwks; remove one of them")
		}
		return c.inlineKeys(at.Field("jwks"), r.Jwks)
	case r.JwksUri != "":
		if !isWebAddress(r.JwksUri) {
			c.Errorf(code.InvalidFormat, at.Field("jwksUri"), "%q is not an http or https URL", r.JwksUri)
		}
	case r.Issuer == "":
		c.Errorf(code.MissingField, at.Field("issuer"), "is missing; set issuer, jwksUri or jwks")
	case !isWebAddress(r.Issuer):
		c.Warnf(code.InvalidFormat, at.Field("issuer"), "%q is not an http or https URL, so its keys cannot be found and every token is refused; set jwksUri or jwks", r.Issuer)
	}
	return ""
}

func isWebAddress(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

func (c policyConv) inlineKeys(at problem.Path, text string) string {
	set, err := jwt.Parse([]byte(text))
	if err != nil {
		c.Errorf(code.InvalidFormat, at, "%v", err)
		return text
	}
	if reasons := set.LeftOut(); reasons != "" {
		c.Warnf(code.InvalidFormat, at, "has keys that cannot be read, so tokens signed with them are refused: %s; correct or remove them", reasons)
	}
	if set.HasPrivate() {
		c.Warnf(code.NoEffect, at, "has a private key, which is not needed to check tokens and which every reader of this object can see; replace it by the public one")
	}
	return set.Public()
}
