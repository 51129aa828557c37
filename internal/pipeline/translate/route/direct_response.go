package route

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/moonsail/moonsail/internal/model"
)

// maxResponseBody is Istio's limit of the body of a direct response, in bytes.
const maxResponseBody = 1 << 20

var redirectCodes = map[uint32]routev3.RedirectAction_RedirectResponseCode{
	0:   routev3.RedirectAction_MOVED_PERMANENTLY,
	301: routev3.RedirectAction_MOVED_PERMANENTLY,
	302: routev3.RedirectAction_FOUND,
	303: routev3.RedirectAction_SEE_OTHER,
	307: routev3.RedirectAction_TEMPORARY_REDIRECT,
	308: routev3.RedirectAction_PERMANENT_REDIRECT,
}

// redirect translates a redirection.
func (rt *routing) redirect(r *model.Redirect) (*routev3.Route_Redirect, error) {
	status, ok := redirectCodes[r.Code]
	if !ok {
		return nil, fmt.Errorf("redirect.redirectCode %d: must be 301, 302, 303, 307 or 308", r.Code)
	}
	out := &routev3.RedirectAction{
		HostRedirect: r.Authority,
		PortRedirect: rt.redirectPort(r),
		ResponseCode: status,
	}
	if r.Scheme != "" {
		out.SchemeRewriteSpecifier = &routev3.RedirectAction_SchemeRedirect{SchemeRedirect: r.Scheme}
	}
	switch {
	case r.Regex != "":
		re, err := substitution(r.Regex, r.RegexTo)
		if err != nil {
			return nil, err
		}
		out.PathRewriteSpecifier = &routev3.RedirectAction_RegexRewrite{RegexRewrite: re}
	case r.PrefixRewrite != "":
		out.PathRewriteSpecifier = &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: r.PrefixRewrite}
	case r.URI != "":
		out.PathRewriteSpecifier = &routev3.RedirectAction_PathRedirect{PathRedirect: r.URI}
	}
	return &routev3.Route_Redirect{Redirect: out}, nil
}

// redirectPort returns 0 for the default port of the target's scheme, unless the redirect writes it.
func (rt *routing) redirectPort(r *model.Redirect) uint32 {
	port, https := r.Port, r.Scheme == "https" || r.Scheme == "" && rt.https
	if r.PortFromRequest {
		port = rt.port
	}
	if !r.WritesPort && (port == 443 && https || port == 80 && !https) {
		return 0
	}
	return port
}

func directResponse(d *model.DirectResponse) (*routev3.Route_DirectResponse, error) {
	if d.Status < 200 || d.Status > 599 {
		return nil, fmt.Errorf("directResponse.status %d: must be between 200 and 599", d.Status)
	}
	if len(d.Body) > maxResponseBody {
		return nil, fmt.Errorf("directResponse.body: has %d bytes, more than %d", len(d.Body), maxResponseBody)
	}
	out := &routev3.DirectResponseAction{Status: d.Status}
	if len(d.Body) > 0 {
		out.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: d.Body}}
	}
	return &routev3.Route_DirectResponse{DirectResponse: out}, nil
}
