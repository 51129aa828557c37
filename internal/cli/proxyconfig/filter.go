package proxyconfig

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// filter chooses resources of a section. Zero fields choose all.
type filter struct {
	name      string // a part of the resource's name
	fqdn      string // a part of the host of a cluster's service
	port      uint16
	cluster   string // the name of a cluster
	subset    string // of a cluster
	direction string // of a cluster: inbound or outbound
}

// addFlags adds the flags of a section. All but --name are istioctl's.
func (f *filter) addFlags(cmd *cobra.Command, section string) {
	fs := cmd.Flags()
	fs.StringVar(&f.name, "name", "", "show only resources whose name contains `TEXT`")
	switch section {
	case "clusters":
		f.addClusterFlags(fs, "clusters")
		fs.StringVar(&f.fqdn, "fqdn", "", "show only clusters of services whose host contains `TEXT`")
		fs.Uint16Var(&f.port, "port", 0, "show only clusters of this `PORT` of a service")
	case "endpoints":
		f.addClusterFlags(fs, "endpoints")
		fs.StringVar(&f.cluster, "cluster", "", "show only endpoints of the cluster with this `NAME`")
		fs.StringVar(&f.fqdn, "fqdn", "", "show only endpoints of services whose host contains `TEXT`")
		fs.Uint16Var(&f.port, "port", 0, "show only clusters of this `PORT` of a service, or with an endpoint of this port")
	case "listeners":
		fs.Uint16Var(&f.port, "port", 0, "show only listeners on this `PORT`")
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && slices.Contains(istioctlFilters, unknown.GetSpecifiedName()) {
			return terminal.UsageError{Err: fmt.Errorf("--%s: not supported: use --name TEXT, a part of the resource's name", unknown.GetSpecifiedName())}
		}
		return cmd.Parent().FlagErrorFunc()(cmd, err)
	})
}

// addClusterFlags adds flags about the parts of clusters' names.
func (f *filter) addClusterFlags(fs *pflag.FlagSet, what string) {
	fs.StringVar(&f.subset, "subset", "", "show only "+what+" of this `SUBSET` of a DestinationRule")
	fs.StringVar(&f.direction, "direction", "", "show only "+what+" of this `DIRECTION`: inbound or outbound")
}

// check returns an error if a filter can choose nothing.
func (f *filter) check() error {
	f.direction = strings.ToLower(f.direction)
	if d := resourcename.Direction(f.direction); d != "" && d != resourcename.Inbound && d != resourcename.Outbound {
		return fmt.Errorf("--direction %q: unknown: use inbound or outbound", f.direction)
	}
	return nil
}

// completeFilter completes --name with the names of the proxy's resources, and --fqdn with the hosts of its clusters. Clusters have
// their hosts in both: in their names, bash completes "outbound|80" without quotes, which is a pipe.
func (f *flags) completeFilter(cmd *cobra.Command, section string) {
	complete := func(flag string, value func(*explain.ConfigResource) string) {
		if cmd.Flags().Lookup(flag) == nil {
			return
		}
		// The only error is a flag that does not exist.
		_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var out []cobra.Completion
			config := &explain.ProxyConfig{}
			if len(args) == 0 || f.client.GetProxy(cmd.Context(), "/debug/proxies/", client.ProxyIn(args[0], *f.namespace), "/config/"+section, config) != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			for i := range config.Resources {
				if v := value(&config.Resources[i]); v != "" {
					out = append(out, v)
				}
			}
			slices.Sort(out)
			return slices.Compact(out), cobra.ShellCompDirectiveNoFileComp
		})
	}
	host := func(r *explain.ConfigResource) string {
		cluster, _ := resourcename.ParseCluster(r.Name)
		return string(cluster.Host)
	}
	complete("fqdn", host)
	complete("cluster", func(r *explain.ConfigResource) string { return r.Name })
	complete("subset", func(r *explain.ConfigResource) string {
		cluster, _ := resourcename.ParseCluster(r.Name)
		return cluster.Subset
	})
	if cmd.Flags().Lookup("direction") != nil {
		// The only error is a flag that does not exist.
		_ = cmd.RegisterFlagCompletionFunc("direction", cobra.FixedCompletions(
			[]cobra.Completion{string(resourcename.Inbound), string(resourcename.Outbound)}, cobra.ShellCompDirectiveNoFileComp))
	}
	complete("name", func(r *explain.ConfigResource) string {
		if strings.Contains(r.Name, "|") {
			return host(r)
		}
		return r.Name
	})
}

// istioctlFilters are filters of istioctl that are not supported, or not for all sections. Its --address is missing: here it is
// that of the control plane.
var istioctlFilters = []string{"cluster", "direction", "fqdn", "port", "status", "subset", "type"}

// String describes the filter after the name of a section; empty: it chooses all.
func (f *filter) String() string {
	var parts []string
	if f.name != "" {
		parts = append(parts, fmt.Sprintf(" with %q in the name", f.name))
	}
	if f.fqdn != "" {
		parts = append(parts, fmt.Sprintf(" with %q in the host", f.fqdn))
	}
	for _, one := range []struct{ what, value string }{{"cluster", f.cluster}, {"subset", f.subset}, {"direction", f.direction}} {
		if one.value != "" {
			parts = append(parts, fmt.Sprintf(" with %s %q", one.what, one.value))
		}
	}
	if f.port != 0 {
		parts = append(parts, fmt.Sprintf(" with port %d", f.port))
	}
	return strings.Join(parts, " and")
}

// filter removes resources that a filter does not choose.
func (c *comparedConfig) filter(f *filter) error {
	c.chosen = f.String()
	kept := []comparedResource{}
	for i := range c.Resources {
		chosen, err := f.chooses(&c.Resources[i])
		if err != nil {
			return err
		}
		if chosen {
			kept = append(kept, c.Resources[i])
		}
	}
	c.Resources = kept
	return nil
}

func (f *filter) chooses(r *comparedResource) (bool, error) {
	cluster, _ := resourcename.ParseCluster(r.Name)
	switch {
	case !containsFold(r.Name, f.name), f.fqdn != "" && !containsFold(string(cluster.Host), f.fqdn),
		f.cluster != "" && !strings.EqualFold(r.Name, f.cluster), f.subset != "" && !strings.EqualFold(cluster.Subset, f.subset),
		f.direction != "" && string(cluster.Direction) != f.direction:
		return false, nil
	case f.port == 0, cluster.Port == uint32(f.port):
		return true, nil
	}
	v, err := generic(r)
	if err != nil {
		return false, err
	}
	port := strconv.Itoa(int(f.port))
	if r.Type == "LDS" {
		return text(v, "address", "socketAddress", "portValue") == port, nil
	}
	for _, l := range items(v, "endpoints") {
		for _, e := range items(l, "lbEndpoints") {
			if text(e, "endpoint", "address", "socketAddress", "portValue") == port {
				return true, nil
			}
		}
	}
	return false, nil
}
