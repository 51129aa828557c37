package simulate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/security/jwt"
)

// verdict is the result of a requirement for a request's tokens.
type verdict struct {
	kind  verdictKind
	cause string
}

type verdictKind uint8

const (
	tokenValid verdictKind = iota
	tokenMissing
	tokenInvalid
	tokenForOthers // valid, but for another audience
)

// tokens runs a jwt_authn filter on one request.
type tokens struct {
	*exchange
	filter *jwtv3.JwtAuthentication
	now    time.Time
}

// runJWT answers requests whose tokens are not valid.
func (x *exchange) runJWT(f *jwtv3.JwtAuthentication) (answered bool, err error) {
	t := &tokens{exchange: x, filter: f, now: x.At}
	if t.now.IsZero() {
		t.now = time.Now()
	}
	t.sanitize()
	if f.GetBypassCorsPreflight() && x.isPreflight() {
		return false, nil
	}
	for _, rule := range f.GetRules() {
		ok, err := matches(rule.GetMatch(), x.request)
		if err != nil {
			return false, fmt.Errorf("jwt filter: %w", err)
		}
		if !ok {
			continue
		}
		if rule.GetRequires() == nil {
			return false, nil
		}
		v, err := t.meets(rule.GetRequires())
		if err != nil || v.kind == tokenValid {
			return false, err
		}
		x.res.Decisions = append(x.res.Decisions, Decision{Action: "JWT", Refuses: true, Cause: v.cause})
		x.res.Status, x.res.Reason = http.StatusUnauthorized, "token: "+v.cause
		if v.kind == tokenForOthers {
			x.res.Status = http.StatusForbidden
		}
		return true, nil
	}
	return false, nil
}

func (x *exchange) isPreflight() bool {
	return x.headers[":method"] == http.MethodOptions && x.headers["origin"] != "" && x.headers["access-control-request-method"] != ""
}

// sanitize removes headers that only the filter may set.
func (t *tokens) sanitize() {
	for _, p := range t.filter.GetProviders() {
		delete(t.headers, strings.ToLower(p.GetForwardPayloadHeader()))
		for _, h := range p.GetClaimToHeaders() {
			delete(t.headers, strings.ToLower(h.GetHeaderName()))
		}
	}
}

func (t *tokens) meets(r *jwtv3.JwtRequirement) (verdict, error) {
	switch q := r.GetRequiresType().(type) {
	case *jwtv3.JwtRequirement_ProviderName:
		p := t.filter.GetProviders()[q.ProviderName]
		if p == nil {
			return verdict{}, fmt.Errorf("jwt filter: unknown provider %q", q.ProviderName)
		}
		return t.verify(p)
	case *jwtv3.JwtRequirement_RequiresAny:
		return t.meetsAny(q.RequiresAny.GetRequirements())
	case *jwtv3.JwtRequirement_RequiresAll:
		for _, one := range q.RequiresAll.GetRequirements() {
			if v, err := t.meets(one); err != nil || v.kind != tokenValid {
				return v, err
			}
		}
		return verdict{}, nil
	default:
		return verdict{}, fmt.Errorf("requirement %T of the jwt filter is unknown to the simulator", q)
	}
}

// meetsAny ranks a missing token below a wrong one.
func (t *tokens) meetsAny(list []*jwtv3.JwtRequirement) (verdict, error) {
	out, mayMiss := verdict{tokenMissing, "missing"}, false
	for _, one := range list {
		if one.GetAllowMissing() != nil {
			mayMiss = true
			continue
		}
		v, err := t.meets(one)
		if err != nil || v.kind == tokenValid {
			return v, err
		}
		if v.kind != tokenMissing {
			out = v
		}
	}
	if mayMiss && out.kind == tokenMissing {
		return verdict{}, nil
	}
	return out, nil
}

// place is where a token was found.
type place struct {
	text   string
	header string // empty: it was not in a header
	param  string
}

// verify checks all tokens where a provider looks for them, and keeps the payload of the last one.
func (t *tokens) verify(p *jwtv3.JwtProvider) (verdict, error) {
	found := t.find(p)
	if len(found) == 0 {
		return verdict{tokenMissing, "missing"}, nil
	}
	set, err := jwt.Parse([]byte(p.GetLocalJwks().GetInlineString()))
	if err != nil {
		set = nil // Envoy only warns about keys that it cannot read
	}
	for _, f := range found {
		token, err := jwt.ReadToken(f.text)
		if err != nil {
			return verdict{tokenInvalid, err.Error()}, nil
		}
		if p.GetIssuer() != "" && token.Issuer != p.GetIssuer() {
			return verdict{tokenInvalid, fmt.Sprintf("its issuer is %q", token.Issuer)}, nil
		}
		if err := t.check(p, token, set, nil); err != nil {
			return verdict{tokenInvalid, err.Error()}, nil
		}
		if err := t.check(p, token, set, p.GetAudiences()); err != nil {
			return verdict{tokenForOthers, err.Error()}, nil
		}
		t.accept(p, token, f)
	}
	return verdict{}, nil
}

// check returns why a token of a provider's issuer is not valid.
func (t *tokens) check(p *jwtv3.JwtProvider, token *jwt.Token, keys *jwt.Set, audiences []string) error {
	err := token.Check(keys, "", audiences, t.now)
	if !errors.Is(err, jwt.ErrNotSigned) || !t.AssumeSigned || p.GetLocalJwks().GetInlineString() != model.NoKeys {
		return err
	}
	if !slices.Contains(t.res.AssumedSigned, token.Issuer) {
		t.res.AssumedSigned = append(t.res.AssumedSigned, token.Issuer)
	}
	return nil
}

// find looks for tokens; see JwtProvider.
func (t *tokens) find(p *jwtv3.JwtProvider) []place {
	headers, params := p.GetFromHeaders(), p.GetFromParams()
	if len(headers)+len(params)+len(p.GetFromCookies()) == 0 {
		headers = []*jwtv3.JwtHeader{{Name: "Authorization", ValuePrefix: "Bearer "}}
		params = []string{"access_token"}
	}
	var out []place
	for _, h := range headers {
		name := strings.ToLower(h.GetName())
		value, ok := t.headers[name]
		at := strings.Index(value, h.GetValuePrefix())
		if !ok || at < 0 {
			continue
		}
		text := value[at+len(h.GetValuePrefix()):]
		if h.GetValuePrefix() != "" {
			text = strings.TrimLeft(text, " ")
		}
		end := strings.IndexFunc(text, func(c rune) bool { return !strings.ContainsRune(tokenCharacters, c) })
		if end >= 0 {
			text = text[:end]
		}
		out = append(out, place{text: text, header: name})
	}
	_, query, _ := strings.Cut(t.headers[":path"], "?")
	values, _ := url.ParseQuery(query) // the readable part counts
	for _, name := range params {
		if values.Has(name) {
			out = append(out, place{text: values.Get(name), param: name})
		}
	}
	cookies, _ := http.ParseCookie(t.headers["cookie"]) // the readable part counts
	for _, name := range p.GetFromCookies() {
		if i := slices.IndexFunc(cookies, func(c *http.Cookie) bool { return c.Name == name }); i >= 0 {
			out = append(out, place{text: cookies[i].Value})
		}
	}
	return out
}

const tokenCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=."

// accept sets what later filters and the workload get from a valid token.
func (t *tokens) accept(p *jwtv3.JwtProvider, token *jwt.Token, at place) {
	t.reroute = t.reroute || p.GetClearRouteCache()
	if key := p.GetPayloadInMetadata(); key != "" {
		t.leave(jwtMetadata, key, normalized(token.Payload, p.GetNormalizePayloadInMetadata().GetSpaceDelimitedClaims()))
	}
	if h := p.GetForwardPayloadHeader(); h != "" {
		t.headers[strings.ToLower(h)] = token.Encoded
	}
	for _, h := range p.GetClaimToHeaders() {
		if text, ok := claimText(claimOf(token.Payload, h.GetClaimName())); ok {
			t.headers[strings.ToLower(h.GetHeaderName())] = text
		}
	}
	if p.GetForward() {
		return
	}
	if at.header != "" {
		delete(t.headers, at.header)
	}
	if at.param != "" {
		t.headers[":path"] = withoutParam(t.headers[":path"], at.param)
	}
}

// normalized turns claims that are words with blanks between them into lists.
func normalized(payload map[string]any, words []string) map[string]any {
	out := maps.Clone(payload)
	for _, w := range words {
		if s, ok := out[w].(string); ok {
			var list []any
			for _, f := range strings.Split(s, " ") {
				list = append(list, f)
			}
			out[w] = list
		}
	}
	return out
}

// claimOf returns "a.b" within a, unless a claim has the name "a.b".
func claimOf(payload map[string]any, name string) any {
	if v, ok := payload[name]; ok {
		return v
	}
	first, rest, nested := strings.Cut(name, ".")
	inner, ok := payload[first].(map[string]any)
	if !nested || !ok {
		return nil
	}
	return claimOf(inner, rest)
}

func claimText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case nil:
		return "", false
	}
	text, err := json.Marshal(v)
	return string(text), err == nil
}

func withoutParam(path, name string) string {
	bare, query, _ := strings.Cut(path, "?")
	var kept []string
	for pair := range strings.SplitSeq(query, "&") {
		if k, _, _ := strings.Cut(pair, "="); k != name {
			kept = append(kept, pair)
		}
	}
	if len(kept) == 0 {
		return bare
	}
	return bare + "?" + strings.Join(kept, "&")
}
