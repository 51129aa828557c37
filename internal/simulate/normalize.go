package simulate

import (
	"strconv"
	"strings"
)

// normalizedPath is a path as Envoy's normalize_path makes it: escapes of characters that need
// none are taken back, backslashes are slashes, "." and ".." are resolved. The query stays.
func normalizedPath(path string) string {
	bare, query, has := strings.Cut(path, "?")
	bare = withoutDots(strings.ReplaceAll(unescapeUnreserved(bare), `\`, "/"))
	if has {
		return bare + "?" + query
	}
	return bare
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
