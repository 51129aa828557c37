package intercept

import "net/netip"

// Ruleset is everything that is set in the kernel.
type Ruleset struct {
	Chains []Chain
	// Routing routes packets with the mark to this host (TPROXY). Both families have the same table of routes and rule.
	Routing bool
	IPv6    bool
}

// Table is a table of netfilter as in iptables. It determines what the rules of a chain may do.
type Table string

// The tables.
const (
	NAT    Table = "nat"
	Mangle Table = "mangle"
	Raw    Table = "raw"
)

// tables are in reverse order of a packet's way: the target of a rule exists before the rule.
var tables = []Table{Raw, Mangle, NAT}

// Hook is where the kernel enters a chain. Chains without a hook are jumped to.
type Hook string

// The hooks.
const (
	Prerouting Hook = "prerouting"
	Output     Hook = "output"
)

// Chain is a list of rules. The first rule that matches and ends the chain applies.
type Chain struct {
	Table Table
	Name  string // unique over all tables
	Hook  Hook   // empty: other chains jump to it
	Rules []Rule
}

// Rule is an action with conditions. A zero value matches everything.
type Rule struct {
	Family     Family
	In, Out    string // interfaces
	Proto      Proto
	Source     netip.Prefix
	Dest       Cond[netip.Prefix]
	SourcePort uint16
	DestPort   Cond[uint16]
	UID, GID   Cond[uint32] // of the socket's owner; packets without a socket do not match
	Mark       Cond[uint32]
	ConnMark   Cond[uint32]
	State      State
	Do         Action
}

// Family is an IP version; zero means both.
type Family int

// The families.
const (
	Any Family = 0
	IP4 Family = 4
	IP6 Family = 6
)

// Proto is a transport protocol; empty means any.
type Proto string

// The protocols.
const (
	TCP Proto = "tcp"
	UDP Proto = "udp"
)

// State is a state of connection tracking; empty means any.
type State string

// The states.
const (
	Established State = "related,established"
	Invalid     State = "invalid"
)

// Cond is a condition, which may be unset or negated.
type Cond[T any] struct {
	Set, Not bool
	Value    T
}

func is[T any](v T) Cond[T]  { return Cond[T]{Set: true, Value: v} }
func not[T any](v T) Cond[T] { return Cond[T]{Set: true, Not: true, Value: v} }

// Action is what a rule does with a packet.
type Action struct {
	Kind  ActionKind
	Chain string // of Jump
	Port  uint16 // of Redirect and TProxy
	Value uint32 // the mark of SetMark and TProxy; the zone of SetZone
}

// ActionKind is the kind of an action.
type ActionKind int

// Kinds of actions. After those of marks and zones the next rule follows.
const (
	Return ActionKind = iota
	Accept
	Drop
	Jump
	Redirect
	TProxy      // to a port of this host, with an unchanged address; also marks the packet
	SetMark     // marks the packet
	SaveMark    // copies the packet's mark to its connection
	RestoreMark // copies the connection's mark to the packet
	SetZone     // sets the zone of connection tracking
)

func jump(chain string) Action    { return Action{Kind: Jump, Chain: chain} }
func redirect(port uint16) Action { return Action{Kind: Redirect, Port: port} }
func setMark(v uint32) Action     { return Action{Kind: SetMark, Value: v} }

var returns = Action{Kind: Return}
