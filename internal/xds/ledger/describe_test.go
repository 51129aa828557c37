package ledger

import (
	"fmt"
	"strings"
)

func describe(r Response) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d:", r.Type, r.Nonce)
	for _, p := range r.Parts {
		if p == nil {
			continue
		}
		for _, e := range p.Entries {
			c, _ := decode(e.Resource().Value())
			fmt.Fprintf(&b, " %s", e.Name)
			if c.bad {
				b.WriteString("(bad)")
			}
		}
	}
	for _, n := range r.Removed {
		fmt.Fprintf(&b, " -%s", n)
	}
	if r.Version != "" {
		fmt.Fprintf(&b, " version=%s", r.Version)
	}
	return b.String()
}

func describeRequest(r Request) string {
	var b strings.Builder
	for k, u := range urls {
		if u == string(r.TypeURL) {
			b.WriteString([...]string{"CDS", "EDS", "SDS", "SRDS", "LDS", "RDS", "VHDS", "NDS"}[k])
		}
	}
	if r.Nonce != nil {
		fmt.Fprintf(&b, " nonce=%s", r.Nonce)
	}
	if r.Error != nil {
		fmt.Fprintf(&b, " NACK %q", r.Error.Message)
	}
	for _, n := range r.Subscribe {
		fmt.Fprintf(&b, " +%s", n)
	}
	for _, n := range r.Names {
		fmt.Fprintf(&b, " %s", n)
	}
	for _, n := range r.Unsubscribe {
		fmt.Fprintf(&b, " -%s", n)
	}
	for _, n := range r.Initial {
		fmt.Fprintf(&b, " %s@%s", n.Name, n.Version)
	}
	return b.String()
}
