package intercept

import "net/netip"

// Ruleset is everything that the kernel is told.
type Ruleset struct {
	Chains []Chain
	// Routing has packets with the mark routed to this host (TPROXY). The table of routes and
	// the rule that leads there are the same for both families.
	Routing bool
	IPv6    bool
}

// Table is one of netfilter's, in iptables' words: what the rules of a chain may do.
type Table string

// The tables.
const (
	NAT    Table = "nat"
	Mangle Table = "mangle"
	Raw    Table = "raw"
)

// tables in the order in which a packet meets them the other way round: what a rule leads to
// is there before it.
var tables = []Table{Raw, Mangle, NAT}

// Hook is where the kernel begins with a chain; the others are jumped to.
type Hook string

// The hooks.
const (
	Prerouting Hook = "prerouting"
	Output     Hook = "output"
)

// Chain is a list of rules, of which the first that matches and ends holds.
type Chain struct {
	Table Table
	Name  string // unique, with all tables
	Hook  Hook   // empty: it is jumped to
	Rules []Rule
}

// Rule is an action and what a packet must be like for it. Zero values match everything.
type Rule struct {
	Family     Family
	In, Out    string // interfaces
	Proto      Proto
	Source     netip.Prefix
	Dest       Cond[netip.Prefix]
	SourcePort uint16
	DestPort   Cond[uint16]
	UID, GID   Cond[uint32] // of the socket's owner; packets that have none do not match
	Mark       Cond[uint32]
	ConnMark   Cond[uint32]
	State      State
	Do         Action
}

// Family is a version of IP; zero is both.
type Family int

// The families.
const (
	Any Family = 0
	IP4 Family = 4
	IP6 Family = 6
)

// Proto is a transport protocol; empty is any.
type Proto string

// The protocols.
const (
	TCP Proto = "tcp"
	UDP Proto = "udp"
)

// State is what connection tracking says of a packet; empty is anything.
type State string

// The states.
const (
	Established State = "related,established"
	Invalid     State = "invalid"
)

// Cond is a condition that may not be set, or be the opposite.
type Cond[T any] struct {
	Set, Not bool
	Value    T
}

func is[T any](v T) Cond[T]  { return Cond[T]{Set: true, Value: v} }
func not[T any](v T) Cond[T] { return Cond[T]{Set: true, Not: true, Value: v} }

// Action is what becomes of a packet.
type Action struct {
	Kind  ActionKind
	Chain string // Jump
	Port  uint16 // Redirect, TProxy
	Value uint32 // SetMark, TProxy: the mark; SetZone: the zone
}

// ActionKind says what an action does.
type ActionKind int

// The actions. Those of marks and zones go on with the next rule.
const (
	Return ActionKind = iota
	Accept
	Drop
	Jump
	Redirect
	TProxy      // to a port of this host, with the address kept; marks the packet, too
	SetMark     // of the packet
	SaveMark    // the packet's for its connection
	RestoreMark // the connection's for the packet
	SetZone     // of connection tracking
)

func jump(chain string) Action    { return Action{Kind: Jump, Chain: chain} }
func redirect(port uint16) Action { return Action{Kind: Redirect, Port: port} }
func setMark(v uint32) Action     { return Action{Kind: SetMark, Value: v} }

var returns = Action{Kind: Return}
