package propagation

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

// dialTime is how long a control plane that is there already may take to accept a connection.
const dialTime = 5 * time.Second

// checkTarget tells at once why a control plane that the lab does not start cannot be measured; nil:
// none is known, or there is none.
func (o *Options) checkTarget(ctx context.Context) error {
	address, pid := o.Target, o.TargetPID
	if o.Peer != nil {
		address, pid = o.Peer.Address, o.Peer.PID
	}
	if address == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("no control plane answers at %s, the address of --target: start it first: %w", address, err)
	}
	_ = c.Close() // nothing was said
	if pid == 0 {
		return nil
	}
	if _, err := child.MemoryOf(pid); err != nil {
		return fmt.Errorf("the process of --target ...,pid=%d cannot be measured: %w", pid, err)
	}
	return nil
}

// leftOut tells what of a run with --target is not measured, though nobody has left it out by name; "": nothing.
func (o *Options) leftOut(chosen []Scenario) string {
	if o.Target == "" {
		return ""
	}
	var out []string
	for _, m := range o.Meshes {
		if !slices.Contains(o.measured(), m) {
			out = append(out, "mesh "+meshName(m)+" (--target reads one directory: run it again for that one)")
		}
	}
	for _, s := range chosen {
		if o.cannot(&s) != nil {
			out = append(out, s.Name)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "left out with --target: " + strings.Join(out, ", ")
}

// measured are the meshes that are. Where there is a directory for one only, it is the middle one, on which a storm and
// a stalled proxy are measured: a smaller one may not fill its socket.
func (o *Options) measured() []meshfiles.Shape {
	if middle := len(o.Meshes) / 2; o.Target != "" && o.Source != SourceKube {
		return o.Meshes[middle : middle+1]
	}
	return o.Meshes
}
