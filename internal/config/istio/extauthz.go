package istio

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// authorizerTimeout is Istio's default: authorizers may ask people.
const authorizerTimeout = 10 * time.Minute

// maxProviderName is what Istio lets names of providers have.
const maxProviderName = 63

// externalAuthorizers are the providers of MeshConfig that decide about calls; other kinds of
// providers are not for here.
func (c providerConv) externalAuthorizers(at problem.Path, list []*meshconfig.MeshConfig_ExtensionProvider) map[string]*model.ExternalAuthorizer {
	var out map[string]*model.ExternalAuthorizer
	for i, p := range list {
		at, before := at.Index(i), c.Problems.Count(problem.SeverityError)
		var a *model.ExternalAuthorizer
		if h := p.GetEnvoyExtAuthzHttp(); h != nil {
			a = c.httpAuthorizer(at.Field("envoyExtAuthzHttp"), h)
		} else if g := p.GetEnvoyExtAuthzGrpc(); g != nil {
			a = c.grpcAuthorizer(at.Field("envoyExtAuthzGrpc"), g)
		} else {
			continue
		}
		c.providerName(at.Field("name"), p.GetName())
		if out[p.GetName()] != nil {
			c.Errorf(at.Field("name"), "%q is the name of a provider before; choose another", p.GetName())
		}
		if c.Problems.Count(problem.SeverityError) > before {
			continue
		}
		if out == nil {
			out = map[string]*model.ExternalAuthorizer{}
		}
		a.Name = p.GetName()
		out[a.Name] = a
	}
	return out
}

// providerName checks a name that becomes part of metadata that filters compare by prefix.
func (c providerConv) providerName(at problem.Path, name string) {
	if name == "" || len(name) > maxProviderName || !convert.IsLabel(name) || strings.ToLower(name) != name {
		c.Errorf(at, "%q is not a name of a provider: use at most %d lower-case letters, digits and '-'", name, maxProviderName)
	}
}

// authorizer is what both kinds have.
type authorizer interface {
	GetService() string
	GetPort() uint32
	GetFailOpen() bool
	GetStatusOnError() string
	GetClearRouteCache() bool
	GetIncludeRequestBodyInCheck() *meshconfig.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationRequestBody
}

func (c providerConv) authorizer(at problem.Path, p authorizer) *model.ExternalAuthorizer {
	ns, host, both := strings.Cut(p.GetService(), "/")
	if !both {
		ns, host = "", ns
	}
	c.CheckHost(at.Field("service"), host, false)
	c.CheckPort(at.Field("port"), p.GetPort())
	out := &model.ExternalAuthorizer{
		Namespace: ns, Host: model.Host(strings.ToLower(host)), Port: p.GetPort(), Timeout: authorizerTimeout,
		FailOpen: p.GetFailOpen(), ClearRouteCache: p.GetClearRouteCache(),
		StatusOnError: c.statusOnError(at.Field("statusOnError"), p.GetStatusOnError()),
	}
	if b := p.GetIncludeRequestBodyInCheck(); b != nil {
		if b.MaxRequestBytes == 0 {
			c.Errorf(at.Field("includeRequestBodyInCheck").Field("maxRequestBytes"), "is missing; give the most bytes that are sent")
		}
		out.Body = &model.AuthorizerBody{MaxBytes: b.MaxRequestBytes, Partial: b.AllowPartialMessage, AsBytes: b.PackAsBytes}
	}
	return out
}

func (c providerConv) statusOnError(at problem.Path, s string) uint32 {
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || !knownStatus(uint32(n)) {
		c.Errorf(at, "%q is not an HTTP status that Envoy answers with, such as 403 or 503", s)
	}
	return uint32(n)
}

// knownStatus reports whether Envoy answers with a status.
func knownStatus(code uint32) bool {
	switch code {
	case http.StatusEarlyHints, http.StatusTeapot, http.StatusTooEarly, http.StatusUnavailableForLegalReasons:
		return false
	}
	return http.StatusText(int(code)) != ""
}

func (c providerConv) httpAuthorizer(at problem.Path, p *meshconfig.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider) *model.ExternalAuthorizer {
	out := c.authorizer(at, p)
	if t := c.Duration(at.Field("timeout"), p.Timeout); t > 0 {
		out.Timeout = t
	}
	if p.PathPrefix != "" && !strings.HasPrefix(p.PathPrefix, "/") {
		c.Errorf(at.Field("pathPrefix"), "%q does not begin with \"/\"", p.PathPrefix)
	}
	sent := p.IncludeRequestHeadersInCheck
	if len(sent) == 0 {
		sent = p.IncludeHeadersInCheck //nolint:staticcheck // deprecated, but it still holds
	}
	for _, l := range []struct {
		field string
		names []string
	}{
		{"includeRequestHeadersInCheck", sent}, {"headersToUpstreamOnAllow", p.HeadersToUpstreamOnAllow},
		{"headersToDownstreamOnAllow", p.HeadersToDownstreamOnAllow}, {"headersToDownstreamOnDeny", p.HeadersToDownstreamOnDeny},
	} {
		c.headerPatterns(at.Field(l.field), l.names)
	}
	for _, name := range slices.Sorted(maps.Keys(p.IncludeAdditionalHeadersInCheck)) {
		c.HeaderName(at.Field("includeAdditionalHeadersInCheck").Key(name), name)
	}
	out.HTTP = &model.HTTPAuthorizer{
		PathPrefix: p.PathPrefix, Sent: sent, Added: p.IncludeAdditionalHeadersInCheck, ToUpstream: p.HeadersToUpstreamOnAllow,
		ToClientOnAllow: p.HeadersToDownstreamOnAllow, ToClientOnDeny: p.HeadersToDownstreamOnDeny,
	}
	return out
}

// headerPatterns checks names of headers that may end or begin with "*".
func (c providerConv) headerPatterns(at problem.Path, list []string) {
	for i, h := range list {
		name := strings.TrimSuffix(h, "*")
		if name == h {
			name = strings.TrimPrefix(h, "*")
		}
		if name == "" {
			c.Errorf(at.Index(i), "%q is not a header name; write one, such as \"authorization\", or the beginning of one, such as \"x-*\"", h)
			continue
		}
		c.HeaderName(at.Index(i), name)
	}
}

func (c providerConv) grpcAuthorizer(at problem.Path, p *meshconfig.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider) *model.ExternalAuthorizer {
	out := c.authorizer(at, p)
	if t := c.Duration(at.Field("timeout"), p.Timeout); t > 0 {
		out.Timeout = t
	}
	return out
}
