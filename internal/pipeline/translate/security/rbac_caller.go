package security

import (
	"regexp"
	"slices"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
)

const spiffe = "spiffe://"

// principals translates a condition about the caller, one principal for each value. ns is the namespace of the policy. loose:
// an unknown attribute has the value.
func (r *rules) principals(c *model.AuthorizationCondition, values []string, ns string, loose bool) []*rbacv3.Principal {
	switch c.Attribute {
	case model.AttributePrincipal:
		values = eachPrincipal(values, r.trustDomains)
	case model.AttributeTrustDomain:
		values = eachTrustDomain(values, r.trustDomains)
	}
	out := make([]*rbacv3.Principal, 0, len(values))
	for _, v := range values {
		out = append(out, principalOf(c, v, ns, loose))
	}
	return out
}

// principalOf translates a comparison with one value. A condition about identities never matches a connection without mutual
// TLS.
func principalOf(c *model.AuthorizationCondition, v, ns string, loose bool) *rbacv3.Principal {
	switch c.Attribute {
	case model.AttributePrincipal:
		return identity(like(spiffe, v))
	case model.AttributeNamespace:
		return identity(likeRegex(".*/ns/" + strings.Join(quoted(strings.Split(v, "*")), ".*") + "/.*"))
	case model.AttributeServiceAccount:
		return identity(likeRegex(serviceAccount(v, ns)))
	case model.AttributeTrustDomain:
		return identity(trustDomain(v))
	case model.AttributeSourceIP:
		return &rbacv3.Principal{Identifier: &rbacv3.Principal_DirectRemoteIp{DirectRemoteIp: block(v)}}
	case model.AttributeRemoteIP:
		return &rbacv3.Principal{Identifier: &rbacv3.Principal_RemoteIp{RemoteIp: block(v)}}
	case model.AttributeHeaders:
		return &rbacv3.Principal{Identifier: &rbacv3.Principal_Header{Header: likeHeader(c.Names[0], v, false)}}
	case model.AttributeRequestPrincipal:
		return requestPrincipal(v)
	case model.AttributeAudiences:
		return claim([]string{"aud"}, like("", v))
	case model.AttributePresenter:
		return claim([]string{"azp"}, like("", v))
	case model.AttributeClaims:
		return claim(c.Names, like("", v))
	}
	if loose {
		return anyPrincipal
	}
	return noPrincipal
}

// identity matches the identity in the client's certificate, first its URI SANs.
func identity(m *matcherv3.StringMatcher) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Authenticated_{
		Authenticated: &rbacv3.Principal_Authenticated{PrincipalName: m},
	}}
}

func quoted(parts []string) []string {
	out := make([]string, len(parts))
	for i, p := range parts {
		out[i] = regexp.QuoteMeta(p)
	}
	return out
}

// serviceAccount returns a regular expression for NAME (in the namespace of the policy) or NAMESPACE/NAME, of any
// trust domain.
func serviceAccount(v, ns string) string {
	if before, after, both := strings.Cut(v, "/"); both {
		ns, v = before, after
	}
	return spiffe + ".+/ns/" + regexp.QuoteMeta(ns) + "/(.+/|)sa/" + regexp.QuoteMeta(v) + "(/.+)?"
}

func trustDomain(v string) *matcherv3.StringMatcher {
	if v == "*" {
		return likePrefix(spiffe)
	}
	if !strings.Contains(v, "*") {
		return likePrefix(spiffe + v + "/")
	}
	return likeRegex(spiffe + strings.Join(quoted(strings.SplitN(v, "*", 2)), "[^/]*") + "/.*")
}

// requestPrincipal matches ISSUER/SUBJECT, of which one end may be "*". Issuers may contain slashes.
func requestPrincipal(v string) *rbacv3.Principal {
	issuer, subject := v, ""
	i := strings.LastIndexByte(v, '/')
	if i >= 0 {
		issuer, subject = v[:i], v[i+1:]
	}
	matchIssuer, matchSubject := envoyproto.MatchExact(issuer), envoyproto.MatchExact(subject)
	switch {
	case v == "*":
		matchIssuer, matchSubject = like("", "*"), like("", "*")
	case strings.HasPrefix(v, "*") && i < 0:
		matchIssuer, matchSubject = like("", "*"), like("", v)
	case strings.HasPrefix(v, "*"):
		matchIssuer = like("", issuer)
	case strings.HasSuffix(v, "*") && i < 0:
		matchIssuer, matchSubject = like("", v), like("", "*")
	case strings.HasSuffix(v, "*"):
		matchSubject = like("", subject)
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{Ids: []*rbacv3.Principal{
		ofToken([]string{"iss"}, likeValue(matchIssuer)), ofToken([]string{"sub"}, likeValue(matchSubject)),
	}}}}
}

// claim matches a claim, or an element of a claim that is a list.
func claim(names []string, m *matcherv3.StringMatcher) *rbacv3.Principal {
	return ofToken(names, claimValue(m))
}

func claimValue(m *matcherv3.StringMatcher) *matcherv3.ValueMatcher {
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_OrMatch{
		OrMatch: &matcherv3.OrMatcher{ValueMatchers: []*matcherv3.ValueMatcher{oneOf(likeValue(m)), likeValue(m)}},
	}}
}

// ofToken matches the payload of a valid token, which the JWT filter has stored.
func ofToken(names []string, value *matcherv3.ValueMatcher) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_SourcedMetadata{
		SourcedMetadata: &rbacv3.SourcedMetadata{MetadataMatcher: tokenMatcher(names, value)},
	}}
}

func tokenMatcher(names []string, value *matcherv3.ValueMatcher) *matcherv3.MetadataMatcher {
	return metadataAt(jwtFilterName, append([]string{jwtPayload}, names...), value)
}

// ClaimMatcher matches a claim of a valid token by its value; m nil: any value.
func ClaimMatcher(names []string, m *matcherv3.StringMatcher) *matcherv3.MetadataMatcher {
	if m == nil {
		return tokenMatcher(names, &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_PresentMatch{PresentMatch: true}})
	}
	return tokenMatcher(names, claimValue(m))
}

// eachPrincipal repeats the principals of the mesh's trust domains for each of these. The domain "cluster.local"
// stands for the mesh's trust domains.
func eachPrincipal(values, domains []string) []string {
	var out []string
	for _, v := range values {
		domain, rest, _ := strings.Cut(v, "/")
		if strings.Count(v, "/") != 4 || domain == "*" || domain != model.DefaultTrustDomain && !slices.ContainsFunc(domains, func(d string) bool { return covers(domain, d) }) {
			out = append(out, v)
			continue
		}
		for _, d := range domains {
			if hasSuffix(domain, d) { // the pattern itself matches d
				out = append(out, v)
			} else {
				out = append(out, d+"/"+rest)
			}
		}
	}
	return unique(out)
}

// covers reports whether a trust domain, "*suffix" or "prefix*", matches d. Envoy has no pattern for a prefix that text follows, so
// eachPrincipal writes the trust domains instead.
func covers(domain, d string) bool {
	prefix, wild := strings.CutSuffix(domain, "*")
	return domain == d || hasSuffix(domain, d) || wild && strings.HasPrefix(d, prefix)
}

// hasSuffix reports whether "*suffix" matches d.
func hasSuffix(domain, d string) bool {
	suffix, wild := strings.CutPrefix(domain, "*")
	return wild && strings.HasSuffix(d, suffix)
}

// eachTrustDomain replaces each of the mesh's trust domains by all of them.
func eachTrustDomain(values, domains []string) []string {
	var out []string
	for _, v := range values {
		if slices.Contains(domains, v) {
			out = append(out, domains...)
		} else {
			out = append(out, v)
		}
	}
	return unique(out)
}

// unique removes duplicates.
func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
