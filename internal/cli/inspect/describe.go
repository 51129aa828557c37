package inspect

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// NewDescribeCommand returns `moonsail experimental describe`.
func NewDescribeCommand() *cobra.Command {
	var (
		plane      client.ControlPlane
		out        terminal.Output
		namespaces client.Namespaces
	)
	cmd := &cobra.Command{
		Use:     "describe pod PROXY",
		Aliases: []string{"des"},
		Short:   "Describe a Pod: its Services, and the objects that configure it and its callers",
		Long: `Describe a Pod with a connected sidecar: its state, the Services that it serves, the VirtualServices and
DestinationRules of calls to them as this sidecar sees them, and the policies and other objects that
its listeners are made from. 'moonsail why' explains one call.`,
		Example: `  # Describe a Pod
  moonsail experimental describe pod reviews-v1-1.shop`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := describedPod(args)
			if err != nil {
				return err
			}
			if ns := namespaces.Namespace; ns != "" && !strings.ContainsAny(name, ".~") {
				name += "." + ns
			}
			d, err := describe(cmd.Context(), &plane, name)
			if err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), d, d.print)
		},
	}
	plane.AddFlags(cmd)
	out.AddFlag(cmd)
	namespaces.AddFlags(cmd, &plane, "Pods")
	cmd.ValidArgsFunction = plane.ProxyNames(2)
	return cmd
}

// describedPod accepts "pod NAME", "pod/NAME" and NAME. istioctl describes Services, too.
func describedPod(args []string) (string, error) {
	kind, name, ok := strings.Cut(args[0], "/")
	switch {
	case len(args) == 2:
		kind, name = args[0], args[1]
	case !ok:
		kind, name = "pod", args[0]
	}
	switch strings.ToLower(kind) {
	case "pod", "pods", "po":
		return name, nil
	case "service", "services", "svc":
		return "", terminal.UsageError{Err: fmt.Errorf("describe service: not supported: describe a Pod of it, or use 'moonsail why POD http://%s' for a call", name)}
	}
	return "", terminal.UsageError{Err: fmt.Errorf("%q: not a kind that can be described: use pod", kind)}
}

// description is the result of `describe`.
type description struct {
	Pod      string              `json:"pod"`
	Status   string              `json:"status"`
	Envoy    string              `json:"envoy,omitempty"`
	Revision string              `json:"revision,omitempty"` // of its control plane
	Account  string              `json:"serviceAccount,omitempty"`
	Services []describedService  `json:"services"`
	Policies map[string][]string `json:"inbound"` // objects of the inbound listener, by kind
}

type describedService struct {
	Host    string              `json:"host"`
	Ports   []string            `json:"ports"`
	Objects map[string][]string `json:"objects,omitempty"` // VirtualServices and DestinationRules, by kind
}

func describe(ctx context.Context, plane *client.ControlPlane, name string) (*description, error) {
	var detail debug.ProxyDetail
	if err := plane.GetProxy(ctx, "/debug/proxies/", name, "", &detail); err != nil {
		return nil, err
	}
	p := &detail.Proxy
	d := &description{Pod: p.Name + "." + p.Namespace, Status: proxyStatus(terminal.Style{}, p, detail.Now), Envoy: p.Version, Revision: p.Revision, Services: []describedService{}}
	if detail.Node != nil {
		d.Account = detail.Node.ServiceAccount
	}
	var config explain.ProxyConfig
	if err := plane.GetProxy(ctx, "/debug/proxies/", p.ID, "/config/all", &config); err != nil {
		return nil, err
	}
	var instances map[string][]struct {
		Hostname string
		Ports    []struct {
			Name, Protocol string
			Port           uint32
		}
	}
	if err := plane.GetProxy(ctx, "/debug/instancesz?proxyID=", p.ID, "", &instances); err != nil {
		return nil, err
	}
	// Policies are not among the objects of outbound listeners.
	d.Policies = objectsOf(&config, func(r *explain.ConfigResource) bool { return r.Type == "LDS" }, inboundKinds...)
	for _, s := range instances[d.Pod] {
		one := describedService{Host: s.Hostname}
		var ports []uint32
		for _, port := range s.Ports {
			one.Ports = append(one.Ports, fmt.Sprintf("%s %d/%s", port.Name, port.Port, port.Protocol))
			ports = append(ports, port.Port)
		}
		one.Objects = objectsOf(&config, func(r *explain.ConfigResource) bool { return routesTo(r, model.Host(s.Hostname), ports) }, outboundKinds...)
		d.Services = append(d.Services, one)
	}
	return d, nil
}

// Kinds that a description lists.
var (
	inboundKinds = []model.Kind{
		model.KindPeerAuthentication, model.KindRequestAuthentication, model.KindAuthorizationPolicy, model.KindSidecar, model.KindTelemetry,
		model.KindWasmPlugin, model.KindEnvoyFilter,
	}
	outboundKinds = []model.Kind{model.KindVirtualService, model.KindDestinationRule, model.KindHTTPRoute, model.KindGRPCRoute}
)

// routesTo reports whether a resource routes calls to a port of a host.
func routesTo(r *explain.ConfigResource, host model.Host, ports []uint32) bool {
	var (
		at   model.Host
		port uint32
		ok   bool
	)
	switch r.Type {
	case "CDS":
		var c resourcename.Cluster
		c, ok = resourcename.ParseCluster(r.Name)
		ok = ok && c.Direction == resourcename.Outbound
		at, port = c.Host, c.Port
	case "RDS", "VHDS":
		_, name := resourcename.CutVirtualHost(r.Name)
		at, port, ok = resourcename.CutHostPort(name)
	}
	return ok && at == host && slices.Contains(ports, port)
}

// objectsOf returns the objects of some kinds that resources were made from, by kind.
func objectsOf(c *explain.ProxyConfig, of func(*explain.ConfigResource) bool, kinds ...model.Kind) map[string][]string {
	out := map[string][]string{}
	for i := range c.Resources {
		r := &c.Resources[i]
		if !of(r) {
			continue
		}
		for _, k := range r.Objects {
			name := k.Name + "." + k.Namespace
			if slices.Contains(kinds, k.Kind) && !slices.Contains(out[string(k.Kind)], name) {
				out[string(k.Kind)] = append(out[string(k.Kind)], name)
			}
		}
	}
	return out
}

const descriptionRule = "--------------------"

func (d *description) print(w io.Writer) error {
	fmt.Fprintf(w, "Pod: %s\n   Pod Revision: %s\n   Status: %s\n   Envoy: %s\n   Service account: %s\n",
		d.Pod, terminal.OrDash(d.Revision), d.Status, terminal.OrDash(d.Envoy), terminal.OrDash(d.Account))
	for _, s := range d.Services {
		fmt.Fprintf(w, "%s\nService: %s\n", descriptionRule, s.Host)
		for _, p := range s.Ports {
			fmt.Fprintf(w, "   Port: %s\n", p)
		}
		if err := printObjects(w, s.Objects, outboundKinds); err != nil {
			return err
		}
	}
	if len(d.Services) == 0 {
		fmt.Fprintf(w, "%s\nNo Service selects this Pod.\n", descriptionRule)
	}
	fmt.Fprintf(w, "%s\nPolicies and configuration:\n", descriptionRule)
	if len(d.Policies) == 0 {
		_, err := fmt.Fprintln(w, "   no policy, Telemetry, Sidecar, WasmPlugin or EnvoyFilter applies")
		return err
	}
	return printObjects(w, d.Policies, inboundKinds)
}

func printObjects(w io.Writer, objects map[string][]string, kinds []model.Kind) (err error) {
	for _, kind := range kinds {
		for _, name := range objects[string(kind)] {
			_, err = fmt.Fprintf(w, "   %s: %s\n", kind, name)
		}
	}
	return err
}
