package routeshard

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// A split route configuration is one for each bucket: "80~16~3" is bucket 3 of those of
// "80", which has 16 for names and as many for addresses. The scope that leads there has
// the same name, and the same key. The number of buckets is part of it: other numbers make
// other route configurations, which can be there before a listener uses them.

// Listener is the name of a listener that nobody's connections come to: it has Envoy subscribe to
// scopes as long as it lives.
const Listener = "scopes"

// Name is the name of one bucket's route configuration, and of its scope.
func Name(routeConfig string, bits, k int) string { return prefix(routeConfig, bits) + strconv.Itoa(k) }

func prefix(routeConfig string, bits int) string {
	return routeConfig + "~" + strconv.Itoa(1<<bits) + "~"
}

// KeyFormat is the value of the header that has the scope's key, as Envoy's substitution
// format string.
func KeyFormat(routeConfig string, bits int) string {
	return strings.ReplaceAll(prefix(routeConfig, bits), "%", "%%") + "%CEL(" + Expression(bits) + ")%"
}

// Key is what a KeyFormat gives for a host; not ok where it is none.
func Key(format, host string) (key string, ok bool) {
	text, _, found := strings.Cut(format, "%CEL(")
	routeConfig := RouteConfig(strings.ReplaceAll(text, "%%", "%") + "0")
	for bits := range MaxBits + 1 {
		if found && format == KeyFormat(routeConfig, bits) {
			return Name(routeConfig, bits, Of(host, bits)), true
		}
	}
	return "", false
}

// RouteConfig is the route configuration that one of a bucket is a part of; any other is
// itself.
func RouteConfig(name string) string {
	rest, k, ok := cutNumber(name)
	if !ok {
		return name
	}
	routeConfig, n, ok := cutNumber(rest)
	if !ok || n&(n-1) != 0 || k >= 2*n {
		return name
	}
	return routeConfig
}

// cutNumber cuts "~number" off the end.
func cutNumber(s string) (before string, n int, ok bool) {
	i := strings.LastIndexByte(s, '~')
	if i < 0 {
		return "", 0, false
	}
	n, err := strconv.Atoi(s[i+1:])
	return s[:i], n, err == nil && n >= 0 && s[i+1:] == fmt.Sprint(n)
}

// Set is a set of buckets. The zero value is empty.
type Set struct {
	all bool
	few []uint16
}

// Has tells whether bucket k is in the set.
func (s *Set) Has(k int) bool { return s.all || slices.Contains(s.few, uint16(k)) }

// In goes through the buckets of the set, of as many as there are with so many bits.
func (s *Set) In(bits int) iter.Seq[int] {
	return func(yield func(int) bool) {
		if s.all {
			for k := 0; k < Count(bits) && yield(k); k++ {
			}
			return
		}
		for _, k := range s.few {
			if !yield(int(k)) {
				return
			}
		}
	}
}

// Add takes in the buckets in which hosts of a domain of a virtual host are looked for: all
// of them for a wildcard that leaves the region open. What begins with a digit has the
// bucket of an address, so that a wildcard of names needs those, too.
func (s *Set) Add(domain string, bits int) {
	switch k, one := ofDomain(domain, bits); {
	case !one:
		s.all = true
	case !s.Has(k):
		s.few = append(s.few, uint16(k))
	}
}

// Takes tells whether hosts of a domain are looked for in bucket k.
func Takes(domain string, bits, k int) bool {
	own, one := ofDomain(domain, bits)
	return !one || own == k
}

// ofDomain is the one bucket of a domain's hosts, if there is one.
func ofDomain(domain string, bits int) (k int, one bool) {
	head, wildcard := strings.CutSuffix(domain, "*")
	switch {
	case strings.HasPrefix(domain, "*"):
		return 0, false
	case wildcard && len(region(head)) == len(head):
		return 0, false // the region may go on
	case wildcard && strings.HasPrefix(head, "[") && !strings.Contains(head, "]"):
		return 0, false
	}
	return Of(head, bits), true
}
