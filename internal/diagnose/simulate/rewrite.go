package simulate

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// rewrite returns the path that upstreams see.
func (x *exchange) rewrite(a *routev3.RouteAction) (string, error) {
	if a.GetPathRewritePolicy() != nil {
		return "", fmt.Errorf("path_rewrite_policy is unknown to the simulator")
	}
	return x.rewritten(a.GetPrefixRewrite(), a.GetRegexRewrite())
}

// rewritten replaces the matched prefix (the whole path if it was matched whole), or what a regular
// expression finds. The query stays.
func (x *exchange) rewritten(prefix string, re *matcherv3.RegexMatchAndSubstitute) (string, error) {
	path, query, hasQuery := strings.Cut(x.headers[":path"], "?")
	switch {
	case prefix != "":
		path = prefix + path[len(matchedPart(x.route.GetMatch(), path)):]
	case re != nil:
		expr, err := regexp.Compile(re.GetPattern().GetRegex())
		if err != nil {
			return "", fmt.Errorf("regex_rewrite: %w", err)
		}
		path = expr.ReplaceAllString(path, goTemplate(re.GetSubstitution()))
	}
	if hasQuery {
		path += "?" + query
	}
	return path, nil
}

var backslashed = regexp.MustCompile(`\\[0-9\\]`)

// goTemplate translates RE2's \1 and \\ into Go's syntax.
func goTemplate(s string) string {
	return backslashed.ReplaceAllStringFunc(strings.ReplaceAll(s, "$", "$$"), func(s string) string {
		if s == `\\` {
			return `\`
		}
		return "${" + s[1:] + "}"
	})
}

// matchedPart returns what prefix_rewrite replaces.
func matchedPart(m *routev3.RouteMatch, path string) string {
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		return path[:min(len(p.Prefix), len(path))]
	case *routev3.RouteMatch_PathSeparatedPrefix:
		return path[:min(len(p.PathSeparatedPrefix), len(path))]
	}
	return path
}

// setAuthority replaces the authority. The route wins over a weighted cluster. Only the route can tell
// Envoy to forward the replaced host.
func (x *exchange) setAuthority(a *routev3.RouteAction, c *routev3.WeightedCluster_ClusterWeight, u *Upstream) {
	u.authority = cmp.Or(c.GetHostRewriteLiteral(), x.headers[":authority"])
	if host := x.routeAuthority(a, u); host != "" {
		u.authority, u.forwardsHost = host, a.GetAppendXForwardedHost()
	}
}

// routeAuthority returns the authority that the route sets; empty: none.
func (x *exchange) routeAuthority(a *routev3.RouteAction, u *Upstream) string {
	switch s := a.GetHostRewriteSpecifier().(type) {
	case *routev3.RouteAction_HostRewriteLiteral:
		return s.HostRewriteLiteral
	case *routev3.RouteAction_AutoHostRewrite:
		if s.AutoHostRewrite.GetValue() && len(u.Endpoints) > 0 {
			return u.Endpoints[0].hostname
		}
	case *routev3.RouteAction_HostRewriteHeader:
		return x.headers[strings.ToLower(s.HostRewriteHeader)]
	}
	return ""
}

var redirectCodes = map[routev3.RedirectAction_RedirectResponseCode]int{
	routev3.RedirectAction_MOVED_PERMANENTLY: 301, routev3.RedirectAction_FOUND: 302,
	routev3.RedirectAction_SEE_OTHER: 303, routev3.RedirectAction_TEMPORARY_REDIRECT: 307,
	routev3.RedirectAction_PERMANENT_REDIRECT: 308,
}

func (x *exchange) redirect(a *routev3.RedirectAction) error {
	path, err := x.redirectPath(a)
	if err != nil {
		return err
	}
	scheme := x.scheme
	switch {
	case a.GetSchemeRedirect() != "":
		scheme = a.GetSchemeRedirect()
	case a.GetHttpsRedirect():
		scheme = "https"
	}
	port := ""
	if a.GetPortRedirect() != 0 {
		port = fmt.Sprint(a.GetPortRedirect())
	}
	host := a.GetHostRedirect()
	if host == "" {
		host = x.requestHost(scheme, port)
	}
	if port != "" {
		host += ":" + port
	}
	x.res.Status = redirectCodes[a.GetResponseCode()]
	x.res.Location = scheme + "://" + host + path
	return nil
}

// requestHost returns the request's own authority without a port that is replaced, or that does not fit the
// new scheme.
func (x *exchange) requestHost(scheme, newPort string) string {
	host, port := splitPort(x.headers[":authority"])
	drop := newPort != ""
	if scheme != x.scheme {
		drop = drop || x.scheme == "https" && port == "443" || x.scheme == "http" && port == "80"
	}
	if drop || port == "" {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}

func (x *exchange) redirectPath(a *routev3.RedirectAction) (string, error) {
	var path string
	var err error
	switch s := a.GetPathRewriteSpecifier().(type) {
	case *routev3.RedirectAction_PathRedirect:
		if path = s.PathRedirect; path == "" { // keeps the request's value
			path = x.headers[":path"]
			break
		}
		_, query, has := strings.Cut(x.headers[":path"], "?")
		if has && !strings.Contains(path, "?") {
			path += "?" + query
		}
	case *routev3.RedirectAction_PrefixRewrite:
		path, err = x.rewritten(s.PrefixRewrite, nil)
	case *routev3.RedirectAction_RegexRewrite:
		path, err = x.rewritten("", s.RegexRewrite)
	default:
		path = x.headers[":path"]
	}
	if a.GetStripQuery() {
		path, _, _ = strings.Cut(path, "?")
	}
	return path, err
}

// normalize handles header names with underscores, QUERY requests and the path as a connection manager does before it looks
// for a route. It sets a status if the connection manager answers itself.
func normalize(f *hcmv3.HttpConnectionManager, r *request, res *Result) {
	for name := range r.headers {
		if !strings.Contains(name, "_") {
			continue
		}
		switch f.GetCommonHttpProtocolOptions().GetHeadersWithUnderscoresAction() {
		case corev3.HttpProtocolOptions_REJECT_REQUEST:
			res.Status, res.Reason = http.StatusBadRequest, "a header name has an underscore"
			return
		case corev3.HttpProtocolOptions_DROP_HEADER:
			delete(r.headers, name)
		}
	}
	if _, described := r.headers["content-type"]; r.Method == "QUERY" && !described {
		res.Status, res.Reason = http.StatusBadRequest, "a QUERY request has no content-type"
		return
	}
	path, _, _ := strings.Cut(r.headers[":path"], "#") // proxies run with http_reject_path_with_fragment false
	escaped := beforeQuery(path, escapedSlashes.Replace) != path
	if bare, _, _ := strings.Cut(path, "?"); f.GetNormalizePath().GetValue() && strings.Contains(bare, "%00") {
		res.Status, res.Reason = http.StatusBadRequest, "the path has an escaped NUL"
		return
	}
	r.headers[":path"] = pathBy(f, path)
	switch f.GetPathWithEscapedSlashesAction() {
	case hcmv3.HttpConnectionManager_REJECT_REQUEST:
		if escaped {
			res.Status, res.Reason = http.StatusBadRequest, "the path has escaped slashes"
		}
	case hcmv3.HttpConnectionManager_UNESCAPE_AND_REDIRECT:
		if escaped {
			res.Status, res.Reason, res.Location = http.StatusTemporaryRedirect, "the path has escaped slashes", r.headers[":path"]
		}
	}
}

// pathBy returns a path as a connection manager normalizes it: escaped slashes first, repeated slashes
// last. The query stays.
func pathBy(f *hcmv3.HttpConnectionManager, path string) string {
	switch f.GetPathWithEscapedSlashesAction() {
	case hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD, hcmv3.HttpConnectionManager_UNESCAPE_AND_REDIRECT:
		path = beforeQuery(path, escapedSlashes.Replace)
	}
	if f.GetNormalizePath().GetValue() {
		path = normalizedPath(path)
	}
	if f.GetMergeSlashes() {
		path = beforeQuery(path, func(bare string) string { return repeatedSlashes.ReplaceAllString(bare, "/") })
	}
	return path
}

var (
	escapedSlashes  = strings.NewReplacer("%2F", "/", "%2f", "/", "%5C", `\`, "%5c", `\`)
	repeatedSlashes = regexp.MustCompile("/{2,}")
)

func beforeQuery(path string, change func(string) string) string {
	bare, query, has := strings.Cut(path, "?")
	bare = change(bare)
	if has {
		return bare + "?" + query
	}
	return bare
}

// normalizedPath returns a path as Envoy's normalize_path makes it: it removes parameters of the segments "." and "..",
// unescapes characters that need no escape, escapes others, turns backslashes into slashes, and resolves "." and "..".
// Segments that are dots only after the second step keep their parameters. The query stays.
func normalizedPath(path string) string {
	return beforeQuery(path, func(bare string) string {
		return withoutDots(toEscape.Replace(unescapeUnreserved(dotParameters.ReplaceAllString(bare, "$1"))))
	})
}

var (
	dotParameters = regexp.MustCompile(`(/\.\.?);[^/]*`)
	toEscape      = strings.NewReplacer(`\`, "/", "{", "%7B", "}", "%7D", "|", "%7C", "^", "%5E", "`", "%60", `"`, "%22", "<", "%3C", ">", "%3E")
)

const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"

func unescapeUnreserved(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil && strings.IndexByte(unreserved, byte(n)) >= 0 {
				out.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// withoutDots is RFC 3986's removal of dot segments.
func withoutDots(path string) string {
	if !strings.HasPrefix(path, "/") {
		return path
	}
	parts := strings.Split(path[1:], "/")
	var out []string
	for i, p := range parts {
		last := i == len(parts)-1
		switch p {
		case ".":
		case "..":
			if len(out) > 0 {
				out = out[:len(out)-1]
			}
		default:
			out = append(out, p)
			continue
		}
		if last {
			out = append(out, "")
		}
	}
	return "/" + strings.Join(out, "/")
}
