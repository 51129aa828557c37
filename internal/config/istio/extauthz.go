package istio

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/moonsail/moonsail/internal/model"
)

// authorizerTimeout is Istio's default: authorizers may ask people.
const authorizerTimeout = 10 * time.Minute

// maxProviderName is what Istio lets names of providers have.
const maxProviderName = 63

// externalAuthorizers are the providers of MeshConfig that decide about calls; other kinds of
// providers are not for here.
func (c *conv) externalAuthorizers(at path, list []*meshconfig.MeshConfig_ExtensionProvider) map[string]*model.ExternalAuthorizer {
	var out map[string]*model.ExternalAuthorizer
	for i, p := range list {
		at, before := at.i(i), c.list.Count(SeverityError)
		var a *model.ExternalAuthorizer
		if h := p.GetEnvoyExtAuthzHttp(); h != nil {
			a = c.httpAuthorizer(at.f("envoyExtAuthzHttp"), h)
		} else if g := p.GetEnvoyExtAuthzGrpc(); g != nil {
			a = c.grpcAuthorizer(at.f("envoyExtAuthzGrpc"), g)
		} else {
			continue
		}
		c.providerName(at.f("name"), p.GetName())
		if out[p.GetName()] != nil {
			c.errorf(at.f("name"), "%q is the name of a provider before; choose another", p.GetName())
		}
		if c.list.Count(SeverityError) > before {
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
func (c *conv) providerName(at path, name string) {
	if name == "" || len(name) > maxProviderName || !isLabel(name) || strings.ToLower(name) != name {
		c.errorf(at, "%q is not a name of a provider: use at most %d lower-case letters, digits and '-'", name, maxProviderName)
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

func (c *conv) authorizer(at path, p authorizer) *model.ExternalAuthorizer {
	ns, host, both := strings.Cut(p.GetService(), "/")
	if !both {
		ns, host = "", ns
	}
	c.checkHost(at.f("service"), host, false)
	c.checkPort(at.f("port"), p.GetPort())
	out := &model.ExternalAuthorizer{
		Namespace: ns, Host: model.Host(strings.ToLower(host)), Port: p.GetPort(), Timeout: authorizerTimeout,
		FailOpen: p.GetFailOpen(), ClearRouteCache: p.GetClearRouteCache(),
		StatusOnError: c.statusOnError(at.f("statusOnError"), p.GetStatusOnError()),
	}
	if b := p.GetIncludeRequestBodyInCheck(); b != nil {
		if b.MaxRequestBytes == 0 {
			c.errorf(at.f("includeRequestBodyInCheck").f("maxRequestBytes"), "is missing; give the most bytes that are sent")
		}
		out.Body = &model.AuthorizerBody{MaxBytes: b.MaxRequestBytes, Partial: b.AllowPartialMessage, AsBytes: b.PackAsBytes}
	}
	return out
}

func (c *conv) statusOnError(at path, s string) uint32 {
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || !knownStatus(uint32(n)) {
		c.errorf(at, "%q is not an HTTP status that Envoy answers with, such as 403 or 503", s)
	}
	return uint32(n)
}

// knownStatus tells whether Envoy answers with a status.
func knownStatus(code uint32) bool {
	switch code {
	case http.StatusEarlyHints, http.StatusTeapot, http.StatusTooEarly, http.StatusUnavailableForLegalReasons:
		return false
	}
	return http.StatusText(int(code)) != ""
}

func (c *conv) httpAuthorizer(at path, p *meshconfig.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider) *model.ExternalAuthorizer {
	out := c.authorizer(at, p)
	if t := c.duration(at.f("timeout"), p.Timeout); t > 0 {
		out.Timeout = t
	}
	if p.PathPrefix != "" && !strings.HasPrefix(p.PathPrefix, "/") {
		c.errorf(at.f("pathPrefix"), "%q does not begin with \"/\"", p.PathPrefix)
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
		c.headerPatterns(at.f(l.field), l.names)
	}
	for _, name := range slices.Sorted(maps.Keys(p.IncludeAdditionalHeadersInCheck)) {
		c.headerName(at.f("includeAdditionalHeadersInCheck").k(name), name)
	}
	out.HTTP = &model.HTTPAuthorizer{
		PathPrefix: p.PathPrefix, Sent: sent, Added: p.IncludeAdditionalHeadersInCheck, ToUpstream: p.HeadersToUpstreamOnAllow,
		ToClientOnAllow: p.HeadersToDownstreamOnAllow, ToClientOnDeny: p.HeadersToDownstreamOnDeny,
	}
	return out
}

// headerPatterns checks names of headers that may end or begin with "*".
func (c *conv) headerPatterns(at path, list []string) {
	for i, h := range list {
		name := strings.TrimSuffix(h, "*")
		if name == h {
			name = strings.TrimPrefix(h, "*")
		}
		if name == "" {
			c.errorf(at.i(i), "%q is not a header name; write one, such as \"authorization\", or the beginning of one, such as \"x-*\"", h)
			continue
		}
		c.headerName(at.i(i), name)
	}
}

func (c *conv) grpcAuthorizer(at path, p *meshconfig.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider) *model.ExternalAuthorizer {
	out := c.authorizer(at, p)
	if t := c.duration(at.f("timeout"), p.Timeout); t > 0 {
		out.Timeout = t
	}
	return out
}
