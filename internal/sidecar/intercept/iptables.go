package intercept

import (
	"fmt"
	"strings"
)

// chainPrefix begins the names of Moonsail's chains in iptables.
const chainPrefix = "MOONSAIL_"

// iptablesChain returns a chain's name in iptables: at most 28 characters.
func iptablesChain(name string) string { return chainPrefix + strings.ToUpper(name) }

// IPTables returns the rules of one family in the format of `iptables-restore --noflush`, with one transaction for each
// table. saved is the output of iptables-save; rules that exist are not added again.
func (s *Ruleset) IPTables(f Family, saved string) string {
	var b strings.Builder
	for _, t := range tables {
		var chains []*Chain
		for i := range s.Chains {
			if s.Chains[i].Table == t {
				chains = append(chains, &s.Chains[i])
			}
		}
		writeTable(&b, t, f, chains, saved)
	}
	return b.String()
}

// writeTable replaces the chains of a table. A declaration empties a chain.
func writeTable(b *strings.Builder, t Table, f Family, chains []*Chain, saved string) {
	section := savedTable(saved, t)
	there := ownChains(section)
	if len(chains) == 0 && len(there) == 0 {
		return
	}
	fmt.Fprintf(b, "*%s\n", t)
	wanted := map[string]bool{}
	for _, c := range chains {
		wanted[iptablesChain(c.Name)] = true
		fmt.Fprintf(b, ":%s - [0:0]\n", iptablesChain(c.Name))
	}
	writeRemovals(b, section, there, wanted)
	for _, c := range chains {
		name := iptablesChain(c.Name)
		if hook := strings.ToUpper(string(c.Hook)); hook != "" && !strings.Contains(section, jumpTo(hook, name)) {
			fmt.Fprintf(b, "-A %s -j %s\n", hook, name)
		}
		for i := range c.Rules {
			if r := &c.Rules[i]; r.Family == Any || r.Family == f {
				fmt.Fprintf(b, "-A %s %s\n", name, r.iptables())
			}
		}
	}
	b.WriteString("COMMIT\n")
}

// writeRemovals removes chains that are not wanted: first the jumps to them, then their rules, then the chains.
func writeRemovals(b *strings.Builder, section string, there []string, wanted map[string]bool) {
	var gone []string
	for _, name := range there {
		if wanted[name] {
			continue
		}
		gone = append(gone, name)
		for _, hook := range []string{"PREROUTING", "OUTPUT"} {
			for range strings.Count(section, jumpTo(hook, name)) {
				fmt.Fprintf(b, "-D %s -j %s\n", hook, name)
			}
		}
	}
	for _, command := range []string{"-F", "-X"} {
		for _, name := range gone {
			fmt.Fprintf(b, "%s %s\n", command, name)
		}
	}
}

func jumpTo(hook, name string) string { return fmt.Sprintf("\n-A %s -j %s\n", hook, name) }

// savedTable returns the section of a table in the output of iptables-save. It begins and ends with a line break.
func savedTable(saved string, t Table) string {
	_, section, ok := strings.Cut("\n"+saved, "\n*"+string(t)+"\n")
	if !ok {
		return ""
	}
	section, _, _ = strings.Cut(section, "\nCOMMIT")
	return "\n" + section + "\n"
}

// ownChains returns Moonsail's chains in a table's section.
func ownChains(section string) []string {
	var out []string
	for line := range strings.Lines(section) {
		if name, ok := strings.CutPrefix(line, ":"+chainPrefix); ok {
			out = append(out, chainPrefix+strings.Fields(name)[0])
		}
	}
	return out
}

func (r *Rule) iptables() string {
	var w []string
	add := func(when bool, format string, args ...any) {
		if when {
			w = append(w, fmt.Sprintf(format, args...))
		}
	}
	add(r.In != "", "-i %s", r.In)
	add(r.Out != "", "-o %s", r.Out)
	add(r.Source.IsValid(), "-s %s", r.Source)
	add(r.Dest.Set, "%s-d %s", sign(r.Dest.Not, "! "), r.Dest.Value)
	add(r.Proto != "", "-p %s", r.Proto)
	add(r.SourcePort != 0 || r.DestPort.Set, "-m %s", r.Proto)
	add(r.SourcePort != 0, "--sport %d", r.SourcePort)
	add(r.DestPort.Set, "%s--dport %d", sign(r.DestPort.Not, "! "), r.DestPort.Value)
	add(r.UID.Set, "-m owner %s--uid-owner %d", sign(r.UID.Not, "! "), r.UID.Value)
	add(r.GID.Set, "-m owner %s--gid-owner %d", sign(r.GID.Not, "! "), r.GID.Value)
	add(r.Mark.Set, "-m mark %s--mark %#x", sign(r.Mark.Not, "! "), r.Mark.Value)
	add(r.ConnMark.Set, "-m connmark %s--mark %#x", sign(r.ConnMark.Not, "! "), r.ConnMark.Value)
	add(r.State != "", "-m conntrack --ctstate %s", strings.ToUpper(string(r.State)))
	return strings.Join(append(w, r.Do.iptables()), " ")
}

func (a *Action) iptables() string {
	switch a.Kind {
	case Jump:
		return "-j " + iptablesChain(a.Chain)
	case Redirect:
		return fmt.Sprintf("-j REDIRECT --to-ports %d", a.Port)
	case TProxy:
		return fmt.Sprintf("-j TPROXY --on-port %d --tproxy-mark %#x/0xffffffff", a.Port, a.Value)
	case SetMark:
		return fmt.Sprintf("-j MARK --set-mark %#x", a.Value)
	case SaveMark:
		return "-j CONNMARK --save-mark"
	case RestoreMark:
		return "-j CONNMARK --restore-mark"
	case SetZone:
		return fmt.Sprintf("-j CT --zone %d", a.Value)
	case Accept:
		return "-j ACCEPT"
	case Drop:
		return "-j DROP"
	}
	return "-j RETURN"
}
