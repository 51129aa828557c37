package simulate

import (
	"regexp"
	"strconv"
	"strings"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// pathBy is a path as a connection manager makes it: escaped slashes first, repeated ones last. The query
// stays.
func pathBy(f *hcmv3.HttpConnectionManager, path string) string {
	if f.GetPathWithEscapedSlashesAction() == hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD {
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

// normalizedPath is a path as Envoy's normalize_path makes it: escapes of characters that need
// none are taken back, backslashes are slashes, "." and ".." are resolved. The query stays.
func normalizedPath(path string) string {
	return beforeQuery(path, func(bare string) string {
		return withoutDots(strings.ReplaceAll(unescapeUnreserved(bare), `\`, "/"))
	})
}

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
