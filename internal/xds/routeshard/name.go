package routeshard

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// A sharded route configuration consists of one route configuration for each shard. "80~16~3" is
// shard 3 of "80", which has 16 shards for names and 16 for addresses. The scope that selects it
// has the same name, and the same key. The number of shards is part of the name: if it changes, the
// new route configurations exist before a listener uses them.

// A route configuration has another form of shards for proxies that ask for each of them when they first call a host in
// it: "80~~32~3". The two forms have different names, so that a listener that drains can still use the one that it began
// with. The form is "80" or "80~".

// OnDemandForm returns the form of shards on demand of a route configuration.
func OnDemandForm(routeConfig string) (form string) { return routeConfig + onDemand }

// onDemand ends a form of shards on demand. Names of route configurations do not end so.
const onDemand = "~"

// IsOnDemand reports whether a form, or the name of a shard, is on demand.
func IsOnDemand(name string) bool {
	return strings.HasSuffix(name, onDemand) || strings.Contains(name, onDemand+"~") && strings.HasSuffix(Form(name), onDemand)
}

// Whole returns the route configuration of a form.
func Whole(form string) (routeConfig string) { return strings.TrimSuffix(form, onDemand) }

// Listener is the name of a listener that receives no connections. Envoy subscribes to scopes while
// it exists.
const Listener = "scopes"

// Name returns the name of the route configuration of a shard, and of its scope.
func Name(form string, bits, k int) string { return prefix(form, bits) + strconv.Itoa(k) }

func prefix(form string, bits int) string { return form + "~" + strconv.Itoa(1<<bits) + "~" }

// KeyFormat returns the value of the header that contains the scope's key, as Envoy's substitution
// format string.
func KeyFormat(form string, bits int) string {
	return strings.ReplaceAll(prefix(form, bits), "%", "%%") + "%CEL(" + Expression(bits) + ")%"
}

// Key returns what Envoy computes from a KeyFormat for a host; false if format is not a KeyFormat.
func Key(format, host string) (key string, ok bool) {
	text, _, found := strings.Cut(format, "%CEL(")
	form := Form(strings.ReplaceAll(text, "%%", "%") + "0")
	for bits := range MaxBits + 1 {
		if found && format == KeyFormat(form, bits) {
			return Name(form, bits, Of(host, bits)), true
		}
	}
	return "", false
}

// Sibling returns the shard in which Envoy looks up a host, of the form and number of shards of another one; false: name is
// no shard.
func Sibling(name, host string) (shard string, ok bool) {
	form := Form(name)
	if form == name {
		return "", false
	}
	_, n, _ := cutNumber(name[:strings.LastIndexByte(name, '~')])
	bits := 0
	for 1<<bits < n {
		bits++
	}
	return Name(form, bits, Of(host, bits)), true
}

// RouteConfig returns the route configuration that a shard's route configuration is a part of. Any
// other name is returned as it is.
func RouteConfig(name string) string {
	form := Form(name)
	if form == name {
		return name
	}
	return Whole(form)
}

// Form returns the form of a shard's route configuration. Any other name is returned as it is.
func Form(name string) string {
	rest, k, ok := cutNumber(name)
	if !ok {
		return name
	}
	form, n, ok := cutNumber(rest)
	if !ok || n&(n-1) != 0 || k >= 2*n {
		return name
	}
	return form
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

// Set is a set of shards. The zero value is empty.
type Set struct {
	all bool
	few []uint16
}

// Has reports whether shard k is in the set.
func (s *Set) Has(k int) bool { return s.all || slices.Contains(s.few, uint16(k)) }

// In returns the shards of the set, of 2^bits for names and as many for addresses.
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

// Add adds the shards in which Envoy looks up hosts that a domain of a virtual host matches. A
// wildcard that leaves the region open adds all shards. Names that begin with a digit have the
// shard of an address, so a wildcard of names adds those too.
func (s *Set) Add(domain string, bits int) {
	switch k, one := ofDomain(domain, bits); {
	case !one:
		s.all = true
	case !s.Has(k):
		s.few = append(s.few, uint16(k))
	}
}

// Takes reports whether Envoy looks up hosts of a domain in shard k.
func Takes(domain string, bits, k int) bool {
	own, one := ofDomain(domain, bits)
	return !one || own == k
}

// ofDomain returns the shard of a domain's hosts, if it is only one.
func ofDomain(domain string, bits int) (k int, one bool) {
	head, wildcard := strings.CutSuffix(domain, "*")
	switch {
	case strings.HasPrefix(domain, "*"):
		return 0, false
	case wildcard && len(region(head)) == len(head):
		return 0, false // the region may continue
	case wildcard && strings.HasPrefix(head, "[") && !strings.Contains(head, "]"):
		return 0, false
	}
	return Of(head, bits), true
}
