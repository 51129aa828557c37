package intercept

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// setRouting does the same as `ip rule add fwmark 1337 lookup 133` and `ip route add local default dev lo table 133`
// for one family, or removes both. Existing or missing entries are not errors.
func setRouting(f Family, add bool) error {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is left to be said
	for _, step := range []func(Family, bool) (netlink.Message, error){ruleMessage, routeMessage} {
		m, err := step(f, add)
		if err != nil {
			return err
		}
		_, err = conn.Execute(m)
		for !add && err == nil && m.Header.Type == unix.RTM_DELRULE { // there may be several
			_, err = conn.Execute(m)
		}
		switch {
		case add && errors.Is(err, syscall.EEXIST):
		case !add && (errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.EAFNOSUPPORT)):
		case err != nil:
			return fmt.Errorf("policy routing for TPROXY: %w", err)
		}
	}
	return nil
}

// setSource adds or removes the IPv6 address of the loopback interface from which Envoy calls the application. The
// address of IPv4 needs no set-up.
func setSource(add bool) error {
	lo, err := net.InterfaceByName(loopback)
	if err != nil {
		return err
	}
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is left to be said
	header := binary.NativeEndian.AppendUint32([]byte{unix.AF_INET6, byte(inboundSource6.Bits()), unix.IFA_F_NODAD, unix.RT_SCOPE_HOST}, uint32(lo.Index))
	m, err := message(add, [2]netlink.HeaderType{unix.RTM_NEWADDR, unix.RTM_DELADDR}, header, func(e *netlink.AttributeEncoder) {
		e.Bytes(unix.IFA_LOCAL, inboundSource6.Addr().AsSlice())
		e.Bytes(unix.IFA_ADDRESS, inboundSource6.Addr().AsSlice())
	})
	if err != nil {
		return err
	}
	_, err = conn.Execute(m)
	switch {
	case add && errors.Is(err, syscall.EEXIST), !add && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)):
		return nil
	case err != nil:
		return fmt.Errorf("address %s of %s: %w", inboundSource6, loopback, err)
	}
	return nil
}

func addressFamily(f Family) byte {
	if f == IP6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// message is a message of the route family: a header, then attributes.
func message(add bool, kinds [2]netlink.HeaderType, header []byte, attributes func(*netlink.AttributeEncoder)) (netlink.Message, error) {
	kind, flags := kinds[1], netlink.Request|netlink.Acknowledge
	if add {
		kind, flags = kinds[0], flags|netlink.Create|netlink.Excl
	}
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.NativeEndian
	attributes(e)
	data, err := e.Encode()
	return netlink.Message{Header: netlink.Header{Type: kind, Flags: flags}, Data: append(header, data...)}, err
}

// Attributes and values of linux/fib_rules.h.
const (
	fraPriority = 6
	fraFwmark   = 10
	fraTable    = 15
	toTable     = 1
	// The rule comes before that of the main table, 32766.
	rulePriority = 32765
)

func ruleMessage(f Family, add bool) (netlink.Message, error) {
	header := []byte{addressFamily(f), 0, 0, 0, routeTable, 0, 0, toTable, 0, 0, 0, 0}
	return message(add, [2]netlink.HeaderType{unix.RTM_NEWRULE, unix.RTM_DELRULE}, header, func(e *netlink.AttributeEncoder) {
		e.Uint32(fraPriority, rulePriority)
		e.Uint32(fraFwmark, inboundMark)
		e.Uint32(fraTable, routeTable)
	})
}

func routeMessage(f Family, add bool) (netlink.Message, error) {
	lo, err := net.InterfaceByName(loopback)
	if err != nil {
		return netlink.Message{}, err
	}
	header := []byte{addressFamily(f), 0, 0, 0, routeTable, unix.RTPROT_BOOT, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0}
	return message(add, [2]netlink.HeaderType{unix.RTM_NEWROUTE, unix.RTM_DELROUTE}, header, func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.RTA_TABLE, routeTable)
		e.Uint32(unix.RTA_OIF, uint32(lo.Index))
	})
}
