package model

import "strings"

// Host is a DNS name in lower case, or a wildcard: "*" or "*.suffix".
type Host string

// IsWildcard tells whether h stands for more than one name.
func (h Host) IsWildcard() bool { return strings.HasPrefix(string(h), "*") }

// Matches tells whether every name that o stands for is also one of h.
func (h Host) Matches(o Host) bool {
	if !h.IsWildcard() {
		return h == o
	}
	return strings.HasSuffix(string(o), string(h[1:])) && (o.IsWildcard() || len(o) > len(h[1:])) || h == o
}

// Overlaps tells whether some name belongs to both h and o.
func (h Host) Overlaps(o Host) bool { return h.Matches(o) || o.Matches(h) }

// Covering yields the patterns that could cover h, most specific first: h itself,
// then "*.suffix" for each suffix, then "*".
func (h Host) Covering() []Host {
	out := make([]Host, 0, 1+strings.Count(string(h), ".")+1)
	out = append(out, h)
	rest := strings.TrimPrefix(string(h), "*.")
	if h == "*" {
		return out
	}
	if !h.IsWildcard() {
		rest = string(h)
	}
	for {
		i := strings.IndexByte(rest, '.')
		if i < 0 {
			return append(out, "*")
		}
		rest = rest[i+1:]
		out = append(out, Host("*."+rest))
	}
}

// ResolveHost gives the full name of a host as written in a configuration object of
// namespace ns: short names mean services of that namespace in the cluster's domain.
func ResolveHost(name, ns, domain string) Host {
	name = strings.ToLower(name)
	if name == "" || strings.Contains(name, ".") || name == "*" {
		return Host(name)
	}
	return Host(name + "." + ns + ".svc." + domain)
}
