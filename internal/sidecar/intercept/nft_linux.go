package intercept

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// applyNFT replaces the table in one transaction, so that no packet meets incomplete rules. A ruleset without chains
// removes it.
func applyNFT(s *Ruleset) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	ours := &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}
	conn.AddTable(ours) // so that the deletion does not fail
	conn.DelTable(ours)
	if len(s.Chains) > 0 {
		conn.AddTable(ours)
		addChains(conn, ours, s)
	}
	return conn.Flush()
}

// addChains adds all chains before the rules, which jump to them.
func addChains(conn *nftables.Conn, table *nftables.Table, s *Ruleset) {
	chains := make([]*nftables.Chain, len(s.Chains))
	for i, c := range s.Chains {
		chain := &nftables.Chain{Table: table, Name: c.Name}
		if c.Hook != "" {
			base := bases[c.Table][c.Hook]
			policy := nftables.ChainPolicyAccept
			chain.Type, chain.Policy = nftables.ChainType(base.kind), &policy
			chain.Priority = nftables.ChainPriorityRef(nftables.ChainPriority(base.priority))
			chain.Hooknum = map[Hook]*nftables.ChainHook{
				Prerouting: nftables.ChainHookPrerouting, Output: nftables.ChainHookOutput,
			}[c.Hook]
		}
		chains[i] = conn.AddChain(chain)
	}
	for i, c := range s.Chains {
		for j := range c.Rules {
			conn.AddRule(&nftables.Rule{Table: table, Chain: chains[i], Exprs: c.Rules[j].expressions()})
		}
	}
}

// nftThere reports whether the table is in the kernel.
func nftThere() (bool, error) {
	conn, err := nftables.New()
	if err != nil {
		return false, err
	}
	_, err = conn.ListTableOfFamily(tableName, nftables.TableFamilyINet)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, syscall.ENOENT):
		return false, nil
	}
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return false, err
	}
	for _, t := range tables {
		if t.Name == tableName {
			return true, nil
		}
	}
	return false, nil
}

// register holds the value to compare.
const register = 1

// compare ends a rule that does not match.
func compare(not bool, data []byte) expr.Any {
	op := expr.CmpOpEq
	if not {
		op = expr.CmpOpNeq
	}
	return &expr.Cmp{Op: op, Register: register, Data: data}
}

// expressions returns a rule in the kernel's terms. Numbers of the host are in its byte order, those of packets in
// network byte order.
func (r *Rule) expressions() []expr.Any {
	var out []expr.Any
	add := func(when bool, load expr.Any, not bool, data []byte) {
		if when {
			out = append(out, load, compare(not, data))
		}
	}
	meta := func(key expr.MetaKey) expr.Any { return &expr.Meta{Key: key, Register: register} }
	add(r.Family == IP4, meta(expr.MetaKeyNFPROTO), false, []byte{unix.NFPROTO_IPV4})
	add(r.Family == IP6, meta(expr.MetaKeyNFPROTO), false, []byte{unix.NFPROTO_IPV6})
	add(r.In != "", meta(expr.MetaKeyIIFNAME), false, ifname(r.In))
	add(r.Out != "", meta(expr.MetaKeyOIFNAME), false, ifname(r.Out))
	if r.Source.IsValid() {
		out = append(out, matchAddress(r.Source, false, sourceOffsets)...)
	}
	if r.Dest.Set {
		out = append(out, matchAddress(r.Dest.Value, r.Dest.Not, destOffsets)...)
	}
	add(r.Proto == TCP, meta(expr.MetaKeyL4PROTO), false, []byte{unix.IPPROTO_TCP})
	add(r.Proto == UDP, meta(expr.MetaKeyL4PROTO), false, []byte{unix.IPPROTO_UDP})
	add(r.SourcePort != 0, transport(0), false, port(r.SourcePort))
	add(r.DestPort.Set, transport(2), r.DestPort.Not, port(r.DestPort.Value))
	add(r.UID.Set, meta(expr.MetaKeySKUID), r.UID.Not, host32(r.UID.Value))
	add(r.GID.Set, meta(expr.MetaKeySKGID), r.GID.Not, host32(r.GID.Value))
	add(r.Mark.Set, meta(expr.MetaKeyMARK), r.Mark.Not, host32(r.Mark.Value))
	add(r.ConnMark.Set, &expr.Ct{Key: expr.CtKeyMARK, Register: register}, r.ConnMark.Not, host32(r.ConnMark.Value))
	out = append(out, matchState(r.State)...)
	out = append(out, &expr.Counter{})
	return append(out, r.Do.expressions(r.Family)...)
}

// Offsets of addresses in headers of IPv4 and IPv6.
var (
	sourceOffsets = [2]uint32{12, 8}
	destOffsets   = [2]uint32{16, 24}
)

func matchAddress(p netip.Prefix, not bool, offsets [2]uint32) []expr.Any {
	offset := offsets[0]
	if p.Addr().Is6() {
		offset = offsets[1]
	}
	addr := p.Masked().Addr().AsSlice()
	load := &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(len(addr))}
	if p.IsSingleIP() {
		return []expr.Any{load, compare(not, addr)}
	}
	mask := make([]byte, len(addr))
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{load, &expr.Bitwise{
		SourceRegister: register, DestRegister: register, Len: uint32(len(mask)), Mask: mask, Xor: make([]byte, len(mask)),
	}, compare(not, addr)}
}

func matchState(s State) []expr.Any {
	bits := expr.CtStateBitINVALID
	switch s {
	case "":
		return nil
	case Established:
		bits = expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED
	case Invalid:
	}
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: register},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: host32(bits), Xor: host32(0)},
		compare(true, host32(0)),
	}
}

func (a *Action) expressions(f Family) []expr.Any {
	verdict := func(k expr.VerdictKind) expr.Any { return &expr.Verdict{Kind: k, Chain: a.Chain} }
	load := func(data []byte) expr.Any { return &expr.Immediate{Register: register, Data: data} }
	toMark := &expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: register}
	switch a.Kind {
	case Accept:
		return []expr.Any{verdict(expr.VerdictAccept)}
	case Drop:
		return []expr.Any{verdict(expr.VerdictDrop)}
	case Jump:
		return []expr.Any{verdict(expr.VerdictJump)}
	case Redirect:
		return []expr.Any{load(port(a.Port)), &expr.Redir{RegisterProtoMin: register}}
	case TProxy:
		of := byte(unix.NFPROTO_IPV4)
		if f == IP6 {
			of = unix.NFPROTO_IPV6
		}
		return []expr.Any{
			load(port(a.Port)), &expr.TProxy{Family: of, TableFamily: unix.NFPROTO_INET, RegPort: register},
			load(host32(a.Value)), toMark, verdict(expr.VerdictAccept),
		}
	case SetMark:
		return []expr.Any{load(host32(a.Value)), toMark}
	case SaveMark:
		return []expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: register}, &expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: register}}
	case RestoreMark:
		return []expr.Any{&expr.Ct{Key: expr.CtKeyMARK, Register: register}, toMark}
	case SetZone:
		return []expr.Any{load(host16(uint16(a.Value))), &expr.Ct{Key: expr.CtKeyZONE, SourceRegister: true, Register: register}}
	}
	return []expr.Any{verdict(expr.VerdictReturn)}
}

func transport(offset uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2}
}

// ifname returns a name as the kernel stores it: 16 bytes, padded with zeros.
func ifname(name string) []byte {
	return append([]byte(name), make([]byte, maxInterface+1-len(name))...)
}

func port(p uint16) []byte   { return binary.BigEndian.AppendUint16(nil, p) }
func host32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
func host16(v uint16) []byte { return binary.NativeEndian.AppendUint16(nil, v) }
