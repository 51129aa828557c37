package istio

import (
	"regexp"
	"strconv"
	"strings"
)

// path names a field: "spec.http[0].headers.request.set[\"x-user\"]".
type path string

var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// f is the path of a field of an object.
func (p path) f(name string) path {
	if p == "" {
		return path(name)
	}
	return p + "." + path(name)
}

// i is the path of an element of a list.
func (p path) i(index int) path { return p + path("["+strconv.Itoa(index)+"]") }

// k is the path of an entry of a map.
func (p path) k(key string) path {
	if plainKey.MatchString(key) {
		return p.f(key)
	}
	return p + path("["+strconv.Quote(key)+"]")
}

// step is one part of a path: a name, or an index where Index is not negative.
type step struct {
	Name  string
	Index int
}

// steps takes a field path apart; ok is false where it is not one.
func steps(field string) (out []step, ok bool) {
	for rest := field; rest != ""; {
		var s step
		if s, rest, ok = nextStep(rest); !ok {
			return nil, false
		}
		out = append(out, s)
	}
	return out, true
}

func nextStep(rest string) (s step, tail string, ok bool) {
	if rest[0] != '[' {
		rest = strings.TrimPrefix(rest, ".")
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		return step{Name: rest[:end], Index: -1}, rest[end:], end > 0
	}
	if quoted, err := strconv.QuotedPrefix(rest[1:]); err == nil {
		name, _ := strconv.Unquote(quoted)
		rest = rest[1+len(quoted):]
		return step{Name: name, Index: -1}, strings.TrimPrefix(rest, "]"), strings.HasPrefix(rest, "]")
	}
	end := strings.IndexByte(rest, ']')
	if end < 0 {
		return s, "", false
	}
	n, err := strconv.Atoi(rest[1:end])
	return step{Index: n}, rest[end+1:], err == nil && n >= 0
}
