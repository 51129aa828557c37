package problem

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Join appends a path to a path.
func (p Path) Join(rest string) Path {
	if rest == "" {
		return p
	}
	return Path(fmt.Sprintf("%s.%s", p, rest))
}

// Path names a field: "spec.http[0].headers.request.set[\"x-user\"]".
type Path string

var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Field is the path of a field of an object.
func (p Path) Field(name string) Path {
	if p == "" {
		return Path(name)
	}
	return p + "." + Path(name)
}

// Index is the path of an element of a list.
func (p Path) Index(index int) Path { return p + Path("["+strconv.Itoa(index)+"]") }

// Key is the path of an entry of a map.
func (p Path) Key(key string) Path {
	if plainKey.MatchString(key) {
		return p.Field(key)
	}
	return p + Path("["+strconv.Quote(key)+"]")
}

// Step is one part of a path: a name, or an index where Index is not negative.
type Step struct {
	Name  string
	Index int
}

// Steps takes a field path apart; ok is false where it is not one.
func Steps(field string) (out []Step, ok bool) {
	for rest := field; rest != ""; {
		var s Step
		if s, rest, ok = nextStep(rest); !ok {
			return nil, false
		}
		out = append(out, s)
	}
	return out, true
}

func nextStep(rest string) (s Step, tail string, ok bool) {
	if rest[0] != '[' {
		rest = strings.TrimPrefix(rest, ".")
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		return Step{Name: rest[:end], Index: -1}, rest[end:], end > 0
	}
	if quoted, err := strconv.QuotedPrefix(rest[1:]); err == nil {
		name, _ := strconv.Unquote(quoted)
		rest = rest[1+len(quoted):]
		return Step{Name: name, Index: -1}, strings.TrimPrefix(rest, "]"), strings.HasPrefix(rest, "]")
	}
	end := strings.IndexByte(rest, ']')
	if end < 0 {
		return s, "", false
	}
	n, err := strconv.Atoi(rest[1:end])
	return Step{Index: n}, rest[end+1:], err == nil && n >= 0
}
