package intercept

import (
	"fmt"
	"net/netip"
	"strings"
)

// tableName is the table in nftables. It contains nothing else, so that it can be replaced and removed as a whole.
const tableName = "moonsail"

// bases are the declarations of hooked chains. Raw and mangle come before address translation. After a change in
// mangle's output the kernel routes the packet again.
var bases = map[Table]map[Hook]struct {
	kind     string
	priority int32
}{
	NAT:    {Prerouting: {"nat", -100}, Output: {"nat", -100}},
	Mangle: {Prerouting: {"filter", -150}, Output: {"route", -150}},
	Raw:    {Prerouting: {"filter", -300}, Output: {"filter", -300}},
}

// NFT returns the rules in the format of `nft -f`. They replace existing ones.
func (s *Ruleset) NFT() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s\ndelete table inet %s\n", tableName, tableName)
	if len(s.Chains) == 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "table inet %s {\n", tableName)
	for _, c := range s.Chains {
		fmt.Fprintf(&b, "\tchain %s {\n", c.Name)
		if c.Hook != "" {
			base := bases[c.Table][c.Hook]
			fmt.Fprintf(&b, "\t\ttype %s hook %s priority %d; policy accept;\n", base.kind, c.Hook, base.priority)
		}
		for i := range c.Rules {
			fmt.Fprintf(&b, "\t\t%s\n", c.Rules[i].nft())
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

func (r *Rule) nft() string {
	var w []string
	add := func(when bool, format string, args ...any) {
		if when {
			w = append(w, fmt.Sprintf(format, args...))
		}
	}
	add(r.alone(), "meta nfproto ipv%d", int(r.Family))
	add(r.In != "", "iifname %q", r.In)
	add(r.Out != "", "oifname %q", r.Out)
	add(r.Source.IsValid(), "%s saddr %s", ipWord(r.Source), r.Source)
	add(r.Dest.Set, "%s daddr %s%s", ipWord(r.Dest.Value), sign(r.Dest.Not, "!= "), r.Dest.Value)
	add(r.Proto != "" && !r.DestPort.Set && r.SourcePort == 0, "meta l4proto %s", r.Proto)
	add(r.SourcePort != 0, "%s sport %d", r.Proto, r.SourcePort)
	add(r.DestPort.Set, "%s dport %s%d", r.Proto, sign(r.DestPort.Not, "!= "), r.DestPort.Value)
	add(r.UID.Set, "meta skuid %s%d", sign(r.UID.Not, "!= "), r.UID.Value)
	add(r.GID.Set, "meta skgid %s%d", sign(r.GID.Not, "!= "), r.GID.Value)
	add(r.Mark.Set, "meta mark %s%d", sign(r.Mark.Not, "!= "), r.Mark.Value)
	add(r.ConnMark.Set, "ct mark %s%d", sign(r.ConnMark.Not, "!= "), r.ConnMark.Value)
	add(r.State != "", "ct state %s", r.State)
	return strings.Join(append(w, "counter", r.Do.nft(r.Family)), " ")
}

// alone reports whether the rule applies to one family without an address that shows it.
func (r *Rule) alone() bool { return r.Family != Any && !r.Dest.Set && !r.Source.IsValid() }

func (a *Action) nft(f Family) string {
	switch a.Kind {
	case Jump:
		return "jump " + a.Chain
	case Redirect:
		return fmt.Sprintf("redirect to :%d", a.Port)
	case TProxy:
		word := "ip"
		if f == IP6 {
			word = "ip6"
		}
		return fmt.Sprintf("tproxy %s to :%d meta mark set %d accept", word, a.Port, a.Value)
	case SetMark:
		return fmt.Sprintf("meta mark set %d", a.Value)
	case SaveMark:
		return "ct mark set meta mark"
	case RestoreMark:
		return "meta mark set ct mark"
	case SetZone:
		return fmt.Sprintf("ct zone set %d", a.Value)
	case Accept:
		return "accept"
	case Drop:
		return "drop"
	}
	return "return"
}

func ipWord(p netip.Prefix) string {
	if p.Addr().Is6() {
		return "ip6"
	}
	return "ip"
}

func sign(on bool, text string) string {
	if on {
		return text
	}
	return ""
}
