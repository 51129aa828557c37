package istio

import (
	"regexp"
	"strings"

	"github.com/moonsail/moonsail/internal/config/cel"
)

// attributeFormats are attributes that Envoy has command operators for. Those cost much less
// than CEL.
var attributeFormats = map[string]string{
	"request.host":                        "%REQ(:AUTHORITY)%",
	"request.method":                      "%REQ(:METHOD)%",
	"request.path":                        "%REQ(:PATH)%",
	"request.scheme":                      "%REQ(:SCHEME)%",
	"request.url_path":                    "%PATH(NQ)%",
	"request.protocol":                    "%PROTOCOL%",
	"request.useragent":                   "%REQ(USER-AGENT)%",
	"request.id":                          "%REQ(X-REQUEST-ID)%",
	"request.referer":                     "%REQ(REFERER)%",
	"response.code":                       "%RESPONSE_CODE%",
	"response.code_details":               "%RESPONSE_CODE_DETAILS%",
	"response.grpc_status":                "%GRPC_STATUS_NUMBER%",
	"source.address":                      "%DOWNSTREAM_REMOTE_ADDRESS%",
	"source.port":                         "%DOWNSTREAM_REMOTE_PORT%",
	"destination.address":                 "%DOWNSTREAM_LOCAL_ADDRESS%",
	"destination.port":                    "%DOWNSTREAM_LOCAL_PORT%",
	"connection.requested_server_name":    "%REQUESTED_SERVER_NAME%",
	"connection.tls_version":              "%DOWNSTREAM_TLS_VERSION%",
	"connection.uri_san_peer_certificate": "%DOWNSTREAM_PEER_URI_SAN%",
	"upstream.address":                    "%UPSTREAM_HOST%",
	"xds.cluster_name":                    "%UPSTREAM_CLUSTER_RAW%",
	"xds.route_name":                      "%ROUTE_NAME%",
}

var (
	headerAttribute = regexp.MustCompile(`^(request|response)\.headers\[\s*["']([A-Za-z0-9_-]+)["']\s*\]$`)
	literalText     = regexp.MustCompile(`^(?:"([^"\\%]*)"|'([^'\\%]*)')$`)
	literalNumber   = regexp.MustCompile(`^[0-9]+$`)
)

// expressionFormat writes an expression with Envoy's command operators.
func (c *conv) expressionFormat(at path, text string) string {
	text = strings.TrimSpace(text)
	if err := cel.Check(text); err != nil {
		c.errorf(at, "%q is not an expression that Envoy takes: %v", text, err)
		return ""
	}
	if f, ok := attributeFormats[text]; ok {
		return f
	}
	if m := literalText.FindStringSubmatch(text); m != nil {
		return m[1] + m[2]
	}
	if literalNumber.MatchString(text) {
		return text
	}
	if m := headerAttribute.FindStringSubmatch(text); m != nil {
		return map[string]string{"request": "%REQ(", "response": "%RESP("}[m[1]] + m[2] + ")%"
	}
	if strings.ContainsAny(text, "%\n") {
		c.errorf(at, "%q has a percent sign or a line break, which Envoy's formats do not allow inside an expression", text)
	}
	return "%CEL(" + text + ")%"
}
