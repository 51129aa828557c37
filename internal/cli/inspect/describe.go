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
	"github.com/moonsail/moonsail/internal/controlplane/istiodebug"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// NewDescribeCommand returns `moonsail experimental describe`.
func NewDescribeCommand() *cobra.Command {
	var (
		plane     client.ControlPlane
		out       client.ListOutput
		namespace string
	)
	cmd := &cobra.Command{
		Use:     "describe (pod PROXY | service SERVICE)",
		Aliases: []string{"des"},
		Short:   "Describe a Pod or a Service, and the objects that configure it and its callers",
		Long: `Describe a Pod with a connected sidecar, also as deployment/NAME: its state, the Services that it serves, the VirtualServices and
DestinationRules of calls to them as this sidecar sees them, and the policies and other objects that
its listeners are made from.

Describe a Service or the host of a ServiceEntry: its ports, its Pods with connected sidecars, the
VirtualServices and DestinationRules of calls to it as a sidecar sees them (of one of these Pods, if
there are any), and the policies of its first ` + fmt.Sprint(maxDescribedPods) + ` Pods. 'moonsail why' explains one call.`,
		Example: `  # Describe a Pod
  moonsail experimental describe pod reviews-v1-1.shop

  # Describe a Service
  moonsail experimental describe service reviews.shop`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			what, name, err := toDescribe(args)
			if err != nil {
				return err
			}
			d, err := what(cmd.Context(), &plane, name, namespace)
			if err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), client.List{Value: d, Table: d.print})
		},
	}
	plane.AddFlags(cmd)
	out.AddFlagOfOne(cmd)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "`NAMESPACE` of the Pod or Service (default: the only one that has it)")
	plane.CompleteNamespace(cmd)
	cmd.ValidArgsFunction = plane.ProxyNames(2)
	return cmd
}

// describing describes one thing.
type describing func(ctx context.Context, plane *client.ControlPlane, name, namespace string) (printable, error)

type printable interface{ print(io.Writer) error }

// toDescribe accepts "pod NAME", "pod/NAME" and NAME, and the same of services. A workload is one of its Pods.
func toDescribe(args []string) (describing, string, error) {
	kind, name, ok := strings.Cut(args[0], "/")
	switch {
	case len(args) == 2:
		kind, name = args[0], args[1]
	case !ok:
		kind, name = "pod", args[0]
	}
	if name != "" && client.IsWorkload(kind+"/"+name) {
		kind, name = "pod", kind+"/"+name
	}
	switch strings.ToLower(kind) {
	case "pod", "pods", "po":
		return func(ctx context.Context, plane *client.ControlPlane, name, namespace string) (printable, error) {
			return describePod(ctx, plane, name, namespace)
		}, name, nil
	case "service", "services", "svc":
		return func(ctx context.Context, plane *client.ControlPlane, name, namespace string) (printable, error) {
			return describeService(ctx, plane, name, namespace)
		}, name, nil
	}
	return nil, "", terminal.UsageError{Err: fmt.Errorf("%q: not a kind that can be described: use pod, deployment or another workload, or service", kind)}
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

// describePod describes the Pod with a name, name.namespace or node ID.
func describePod(ctx context.Context, plane *client.ControlPlane, name, namespace string) (*description, error) {
	name = client.ProxyIn(name, namespace)
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
	var instances map[string][]istiodebug.Service
	if err := plane.GetProxy(ctx, "/debug/instancesz?proxyID=", p.ID, "", &instances); err != nil {
		return nil, err
	}
	d.Policies = inboundObjects(&config)
	for i := range instances[d.Pod] {
		d.Services = append(d.Services, described(&instances[d.Pod][i], &config))
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

// inboundObjects returns the objects of a proxy's inbound listeners. Policies are not among the objects of outbound listeners.
func inboundObjects(c *explain.ProxyConfig) map[string][]string {
	return objectsOf(c, func(r *explain.ConfigResource) bool { return r.Type == "LDS" }, inboundKinds...)
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

const (
	descriptionRule = "--------------------"
	noInbound       = "   no policy, Telemetry, Sidecar, WasmPlugin or EnvoyFilter applies"
)

func (s *describedService) printHost(w io.Writer) {
	fmt.Fprintf(w, "Service: %s\n", s.Host)
	for _, p := range s.Ports {
		fmt.Fprintf(w, "   Port: %s\n", p)
	}
}

func (d *description) print(w io.Writer) error {
	fmt.Fprintf(w, "Pod: %s\n   Pod Revision: %s\n   Status: %s\n   Envoy: %s\n   Service account: %s\n",
		d.Pod, terminal.OrDash(d.Revision), d.Status, terminal.OrDash(d.Envoy), terminal.OrDash(d.Account))
	for _, s := range d.Services {
		fmt.Fprintln(w, descriptionRule)
		s.printHost(w)
		if err := printObjects(w, s.Objects, outboundKinds); err != nil {
			return err
		}
	}
	if len(d.Services) == 0 {
		fmt.Fprintf(w, "%s\nNo Service selects this Pod.\n", descriptionRule)
	}
	fmt.Fprintf(w, "%s\nPolicies and configuration:\n", descriptionRule)
	if len(d.Policies) == 0 {
		_, err := fmt.Fprintln(w, noInbound)
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
