package bugreport

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"regexp"
	"strings"
)

// redacted replaces what was removed.
const redacted = "[redacted]"

// redactor removes secrets from text, and counts them. It removes everything that looks like a secret: a
// report with less information is better than one with a password.
type redactor struct{ count int }

// text removes secrets from a document: from JSON by its fields, from other text line by line.
func (r *redactor) text(doc []byte) []byte {
	if trimmed := bytes.TrimSpace(doc); len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') {
		if out, ok := r.json(doc); ok {
			return out
		}
	}
	return []byte(r.lines(string(doc)))
}

// json removes secrets from a JSON document. It returns false if the text is not JSON.
func (r *redactor) json(doc []byte) ([]byte, bool) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil || dec.More() {
		return nil, false
	}
	out, err := json.MarshalIndent(r.value("", v), "", " ")
	return out, err == nil
}

// value removes secrets from the value of a field.
func (r *redactor) value(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		return r.object(key, v)
	case []any:
		if isArguments(key) {
			r.arguments(v)
		}
		for i := range v {
			if _, text := v[i].(string); text && isArguments(key) {
				continue
			}
			if _, text := v[i].(string); text && lists.MatchString(key) {
				v[i] = r.all(v[i])
				continue
			}
			v[i] = r.value(key, v[i])
		}
		return v
	case string:
		return r.field(key, v)
	}
	return v
}

func (r *redactor) object(key string, o map[string]any) any {
	if url, _ := o["@type"].(string); strings.HasSuffix(url, sdsSecret) {
		return r.sdsSecret(o)
	}
	secret := o["kind"] == "Secret" && (o["data"] != nil || o["stringData"] != nil) || isSecretField(key) && !isReference(o)
	for _, called := range []string{"name", "key"} { // a container's variable, or a header
		name, _ := o[called].(string)
		text, ok := o["value"].(string)
		switch {
		case !ok || name == "":
		case key == "headers" && o["type"] == nil, called == "key" && isSecretName(name): // of MeshConfig's providers, not a route's match
			o["value"] = r.all(text)
		case called == "name":
			o["value"] = r.variable(name, text)
		default:
			o["value"] = r.shaped(text)
		}
	}
	for k, v := range o {
		if collectorFields[k] {
			r.collectorHeaders(v)
		}
		if secret && k != "@type" && (key != "" && isSecretField(key) || k == "data" || k == "stringData") {
			o[k] = r.all(v)
			continue
		}
		o[k] = r.value(k, v)
	}
	return o
}

// sdsSecret ends the type of Envoy's secrets, which may also be certificates.
const sdsSecret = "extensions.transport_sockets.tls.v3.Secret"

// sdsSecret removes all of a secret of Envoy but its name and its certificates.
func (r *redactor) sdsSecret(o map[string]any) any {
	for k, v := range o {
		switch k {
		case "@type", "name":
		case "tls_certificate", "tlsCertificate", "validation_context", "validationContext":
			o[k] = r.allButCertificates(v)
		default:
			o[k] = r.all(v)
		}
	}
	return o
}

// allButCertificates redacts all strings except certificates and paths. Private keys are among them.
func (r *redactor) allButCertificates(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = r.allButCertificates(v[k])
		}
		return v
	case []any:
		for i := range v {
			v[i] = r.allButCertificates(v[i])
		}
		return v
	case string:
		if areCertificates(v) || isPath(v) {
			return v
		}
	}
	return r.all(v)
}

// areCertificates reports whether a text is certificates in PEM, also encoded as Envoy's bytes, and nothing else.
func areCertificates(text string) bool {
	rest := []byte(text)
	if decoded, err := base64.StdEncoding.DecodeString(text); err == nil {
		rest = decoded
	}
	found := false
	for len(bytes.TrimSpace(rest)) > 0 {
		if !bytes.HasPrefix(bytes.TrimSpace(rest), []byte("-----BEGIN CERTIFICATE-----")) {
			return false
		}
		block, after := pem.Decode(rest)
		if block == nil {
			return false
		}
		rest, found = after, true
	}
	return found
}

// collectorFields are Envoy's services to which it sends telemetry and questions, and their fields with headers, in both spellings.
var (
	collectorFields = map[string]bool{"http_service": true, "httpService": true, "grpc_service": true, "grpcService": true}
	collectorLists  = []string{"request_headers_to_add", "requestHeadersToAdd", "initial_metadata", "initialMetadata"}
)

// collectorHeaders removes the values of headers of a service in Envoy's configuration: they authenticate.
func (r *redactor) collectorHeaders(service any) {
	fields, _ := service.(map[string]any)
	for _, name := range collectorLists {
		list, _ := fields[name].([]any)
		for _, item := range list {
			h, _ := item.(map[string]any)
			if header, ok := h["header"].(map[string]any); ok {
				h = header
			}
			if v := h["value"]; v != nil {
				h["value"] = r.all(v)
			}
		}
	}
}

// all removes every text and number of a value.
func (r *redactor) all(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = r.all(v[k])
		}
		return v
	case []any:
		for i := range v {
			v[i] = r.all(v[i])
		}
		return v
	case nil, bool:
		return v
	case string:
		if v == "" || v == redacted {
			return v
		}
	}
	r.count++
	return redacted
}

// field removes a secret from the text value of a field.
func (r *redactor) field(key, text string) string {
	if text != "" && text != redacted && isSecretField(key) {
		r.count++
		return redacted
	}
	// A text may contain a document, like kubectl's last-applied-configuration and MeshConfig.
	if trimmed := strings.TrimSpace(text); len(trimmed) > 1 && (trimmed[0] == '{' || trimmed[0] == '[') {
		if out, ok := r.json([]byte(text)); ok {
			return string(out)
		}
	}
	return r.yamlDocuments(text)
}

// secretWords occur in names of secrets. harmless matches the ends of names of fields that describe a
// secret without its value.
var (
	secretWords = regexp.MustCompile(`(?i)passw(or)?d|passphrase|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|signing[-_]?key|encryption[-_]?key|credential|authorization|cookie|session[-_]?key|client[-_]?key|key[-_]?data|inline_bytes|(^|[-_.])pwd($|[-_.])|(^|[-_])auth($|[-_])|(^|[-_])dsn($|[-_])|connection[-_]?string`)
	harmless    = regexp.MustCompile(`(?i)(name|file|path|dir|mode|type|kind|ref|refs|namespace|uid|count|total|seconds|port|url|uri|audience|expir\w*|automountserviceaccounttoken|version|issuer|fromheaders|config|configs|provider\w*|policy|policies|_duration|format|enabled|limit|size|bytes_total|selector|stats?|secrets|tokens|filter\w*|rules?|headers?)$`)
	lists       = regexp.MustCompile(`(?i)(secrets|tokens|passwords|credentials|api_?keys)$`)
	exactly     = regexp.MustCompile(`(?i)^(secret|token|inline_bytes|client_secret|clientsecret|shared_secret)$`)
)

// isSecretField reports whether the field of a document has a secret value.
func isSecretField(key string) bool {
	if key == "" || !secretWords.MatchString(key) {
		return false
	}
	return exactly.MatchString(key) || !harmless.MatchString(key)
}

// isSecretName is isSecretField for variables of containers, without the harmless endings.
func isSecretName(name string) bool { return secretWords.MatchString(name) }

// isReference reports whether an object refers to a secret.
func isReference(o map[string]any) bool {
	for k := range o {
		switch k {
		case "name", "namespace", "secretName", "key", "optional", "kind", "group", "sds_config", "filename", "@type":
		default:
			return false
		}
	}
	return true
}

// patterns match secrets by their form. The groups are kept, the rest is removed.
var patterns = []struct {
	re   *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----(?s:.*?)(-----END [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----|$)`), redacted},
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*`), redacted}, // JWT
	{regexp.MustCompile(`(?i)\b(bearer|basic|negotiate)\s+[A-Za-z0-9+/_.~=-]{6,}`), "$1 " + redacted},
	{regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://[^/\s:@"']*):[^@/\s"']+@`), "$1:" + redacted + "@"},
	{regexp.MustCompile(`\b(AKIA|ASIA)[A-Z0-9]{16}\b`), redacted},
	{regexp.MustCompile(`\b(hvs\.[A-Za-z0-9_-]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{16,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|sk-[A-Za-z0-9_-]{20,}|dop_v1_[a-f0-9]{20,}|AGE-SECRET-KEY-[A-Z0-9]{20,})`), redacted},
	{regexp.MustCompile(`(?i)\b(AccountKey|SharedAccessKey|SharedAccessSignature)=[^;\s"']+`), "$1=" + redacted},
	{regexp.MustCompile(`\b(gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{30,}|sk_(live|test)_[A-Za-z0-9]{16,})`), redacted},
	// Headers whose values have spaces.
	{regexp.MustCompile(`(?i)(\b(?:authorization|cookie)["']?\s*:[ \t]*)("[^"\n]*"|'[^'\n]*'|[^\s"'][^\n"']*)`), ""},
	// NAME=VALUE and NAME: VALUE, in logs, command lines, YAML and code.
	{regexp.MustCompile(`(\b[A-Z][A-Z0-9_]*_(?:PASS|PWD|PW|PSK|KEYS?|CREDS?|SALT|SIG|DSN)\d*["']?\s*[=:]\s*)("[^"\n]*"|'[^'\n]*'|[^\s,;"'}\]]+)`), ""},
	{regexp.MustCompile(`(?i)(--?[a-z0-9][a-z0-9_.-]*[-_.](?:pass|pwd|pw|psk|key|creds?)=)("[^"\n\x00]*"|'[^'\n\x00]*'|[^\s\x00]+)`), ""},
	{regexp.MustCompile(`(?i)(--?(?:[a-z0-9][a-z0-9_.-]*[-_.])?(?:passw(?:or)?d|passphrase|secret|token|api-?key|access-?key|credentials?|pass|pwd|psk|key)(?:[ \t]+|\x00))("[^"\n\x00]*"|'[^'\n\x00]*'|[^\s\x00-]+[^\s\x00]*)`), ""},
	{regexp.MustCompile(`(?i)((?:[A-Za-z0-9_.-]*(?:passw(?:or)?d|passphrase|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credential|authorization|cookie)[A-Za-z0-9_-]*)["']?\]?\s*[=:]\s*)("[^"\n]*"|'[^'\n]*'|[^\s,;"'}\]]+)`), ""},
}

var encodedPEM = regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/=_-]{20,}`)

// lines removes what looks like a secret from any text.
func (r *redactor) lines(text string) string {
	text = encodedPEM.ReplaceAllStringFunc(text, func(s string) string {
		if d, _ := base64.StdEncoding.DecodeString(s[:len(s)/4*4]); bytes.Contains(d, []byte("PRIVATE KEY")) || len(d) == 0 {
			r.count++
			return redacted
		}
		return s
	})
	text = r.named(text)
	for _, p := range patterns {
		if p.with == "" {
			text = r.assignments(p.re, text)
			continue
		}
		text = p.re.ReplaceAllStringFunc(text, func(s string) string {
			r.count++
			return p.re.ReplaceAllString(s, p.with)
		})
	}
	return text
}

// assignments removes values that are assigned to the name of a secret.
func (r *redactor) assignments(re *regexp.Regexp, text string) string {
	return re.ReplaceAllStringFunc(text, func(s string) string {
		m := re.FindStringSubmatch(s)
		name := strings.TrimRight(m[1], "\"'] \t=:\x00")
		value := strings.Trim(m[2], `"'`)
		if harmless.MatchString(name) && !exactly.MatchString(name) || value == "" || strings.HasPrefix(value, redacted) || isPath(value) && !secretWords.MatchString(name) || value == "true" || value == "false" || value == "null" {
			return s
		}
		r.count++
		return m[1] + redacted
	})
}
