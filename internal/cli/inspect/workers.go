package inspect

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/sidecar/agent/workers"
	"github.com/moonsail/moonsail/internal/terminal"
)

// proxyWorkers is the answer of one proxy's agent.
type proxyWorkers struct {
	Proxy  string          `json:"proxy"`
	Report *workers.Report `json:"report,omitempty"`
	Error  string          `json:"error,omitempty"` // why the report is missing
}

// askedAtOnce bounds the agents that are asked at the same time, as the control plane does.
const askedAtOnce = 8

// listWorkers asks the agents of the named proxies, or of all. An agent that does not answer has a
// row with the error.
func (f *proxiesFlags) listWorkers(cmd *cobra.Command, names []string) error {
	if len(names) == 0 {
		var err error
		if names, err = f.connectedNames(cmd.Context()); err != nil {
			return err
		}
	}
	out := make([]proxyWorkers, len(names))
	g, ctx := errgroup.WithContext(cmd.Context())
	g.SetLimit(askedAtOnce)
	for i, name := range names {
		g.Go(func() error {
			out[i].Proxy = name
			var r workers.Report
			if err := f.client.GetProxy(ctx, "/debug/proxies/", name, "/envoy/workers", &r); err != nil {
				out[i].Error = err.Error()
			} else {
				out[i].Report = &r
			}
			return ctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return f.out.Print(cmd.OutOrStdout(), client.List{
		Value: map[string]any{"proxies": out}, Names: func() []string { return names }, Table: func(w io.Writer) error { return f.printWorkers(w, out) },
	})
}

// connectedNames returns the names of the proxies of all replicas, sorted.
func (f *proxiesFlags) connectedNames(ctx context.Context) ([]string, error) {
	var mu sync.Mutex
	var names []string
	err := f.client.Each(ctx, func(_ int, r *client.Replica) error {
		var list debug.ProxyList
		if err := r.Get(ctx, "/debug/proxies?local", &list); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, p := range list.Proxies {
			if f.namespaces.Has(p.Namespace) && f.hasStatus(&p) {
				names = append(names, p.Name+"."+p.Namespace)
			}
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

func (f *proxiesFlags) printWorkers(w io.Writer, list []proxyWorkers) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, f.none())
		return err
	}
	style := terminal.StyleFor(w)
	t := terminal.NewTable("PROXY", "WORKERS", "CONNECTIONS", "CPU", "NOTE")
	for _, p := range list {
		if p.Report == nil {
			t.Row(p.Proxy, "-", "-", "-", style.Dim(firstLineOf(p.Error)))
			continue
		}
		var connections, cpu []string
		for _, worker := range p.Report.Workers {
			connections = append(connections, fmt.Sprint(worker.Connections))
			cpu = append(cpu, percent(worker.CPU))
		}
		t.Row(p.Proxy, fmt.Sprint(len(p.Report.Workers)), terminal.OrDash(strings.Join(connections, " ")), terminal.OrDash(strings.Join(cpu, " ")), workersNote(style, p.Report))
	}
	return t.Write(w)
}

func percent(cpu float64) string {
	if cpu < 0 {
		return "?"
	}
	return fmt.Sprintf("%.0f%%", 100*cpu)
}

// workersNote returns the problem, or the origin of the number of workers.
func workersNote(style terminal.Style, r *workers.Report) string {
	switch {
	case r.Imbalance != "":
		return style.Bad("UNEVEN: " + r.Imbalance)
	case r.Advice != "":
		return style.Warn("BUSY: " + r.Advice)
	}
	return "from " + r.Because
}

func firstLineOf(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
