package intercept

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// parser stores the first error.
type parser struct {
	settings *Settings
	err      error
}

// fail sets an error that contains all names of the setting.
func (p *parser) fail(flag, format string, args ...any) {
	if p.err != nil {
		return
	}
	row := find(flag)
	names := "--" + row.Flag
	if len(row.Annotations) > 0 {
		names += " (annotation " + row.Annotations[0] + ")"
	}
	p.err = fmt.Errorf("%s: %s", names, fmt.Sprintf(format, args...))
}

func find(flag string) *Setting {
	list := List()
	i := slices.IndexFunc(list, func(s Setting) bool { return s.Flag == flag })
	return &list[i]
}

// words returns the non-empty parts of a list.
func (p *parser) words(flag string) []string {
	var out []string
	for w := range strings.SplitSeq(*find(flag).in(p.settings), ",") {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}

func (p *parser) ports(flag string) []uint16 {
	return numbers[uint16](p, flag, 16, "invalid port %q: use numbers from 1 to 65535, separated by commas")
}

func (p *parser) port(flag string) uint16 {
	list := p.ports(flag)
	if p.err == nil && len(list) != 1 {
		p.fail(flag, "invalid value %q: use one port", *find(flag).in(p.settings))
	}
	if len(list) == 0 {
		return 0
	}
	return list[0]
}

// numbers decodes a list of positive numbers of a bit size.
func numbers[N uint16 | uint32](p *parser, flag string, bits int, complaint string) []N {
	var out []N
	for _, w := range p.words(flag) {
		n, err := strconv.ParseUint(w, 10, bits)
		if err != nil || n == 0 {
			p.fail(flag, complaint, w)
			return nil
		}
		out = append(out, N(n))
	}
	return out
}

func (p *parser) portsOrAll(flag string) Ports {
	words := p.words(flag)
	if slices.Equal(words, []string{all}) {
		return Ports{All: true}
	}
	return Ports{List: union(p.ports(flag))}
}

func (p *parser) ranges(flag string) []netip.Prefix {
	seen := map[netip.Prefix]bool{}
	var out []netip.Prefix
	for _, w := range p.words(flag) {
		r, err := parseRange(w)
		if err != nil {
			p.fail(flag, "invalid address range %q: use forms like 10.0.0.0/8 or fd00::/8, separated by commas", w)
			return nil
		}
		if !seen[r] {
			seen[r] = true
			out = append(out, r)
		}
	}
	return out
}

func parseRange(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	r, err := netip.ParsePrefix(text)
	return r.Masked(), err
}

func (p *parser) rangesOrAll(flag string) Ranges {
	if slices.Equal(p.words(flag), []string{all}) {
		return Ranges{All: true}
	}
	return Ranges{List: p.ranges(flag)}
}

// maxInterface is the kernel's limit for names of interfaces.
const maxInterface = 15

func (p *parser) interfaces(flag string) []string {
	words := p.words(flag)
	for _, w := range words {
		if len(w) > maxInterface || strings.ContainsAny(w, "/ \t\"\n;{}") {
			p.fail(flag, "invalid network interface name %q", w)
			return nil
		}
	}
	return words
}

func (p *parser) ids(flag string) []uint32 {
	return numbers[uint32](p, flag, 32, "invalid id %q: use numbers above 0, separated by commas (0 is root)")
}

func (p *parser) boolean(flag string) bool {
	text := *find(flag).in(p.settings)
	if text == "" {
		return false
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		p.fail(flag, "invalid value %q: use true or false", text)
	}
	return v
}

// union returns the elements of all lists, each once, in order.
func union(lists ...[]uint16) []uint16 {
	set := map[uint16]bool{}
	for _, l := range lists {
		for _, v := range l {
			set[v] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}
