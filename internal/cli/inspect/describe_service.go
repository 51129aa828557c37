package inspect

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/controlplane/istiodebug"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/terminal"
)

// maxDescribedPods is how many Pods of a service are asked for their policies.
const maxDescribedPods = 10

// serviceDescription is the result of `describe service`.
type serviceDescription struct {
	describedService
	// Caller is the proxy whose configuration has the service's Objects. Empty: no proxy is connected.
	Caller  string                    `json:"caller,omitempty"`
	Pods    []string                  `json:"pods"`    // with a connected sidecar
	Asked   int                       `json:"asked"`   // how many of them are in Inbound
	Inbound map[string]map[string]int `json:"inbound"` // objects of the Pods' inbound listeners: kind, name, number of Pods
}

// described returns the host, the ports and the objects of calls to a service in a proxy's configuration.
func described(r *istiodebug.Service, config *explain.ProxyConfig) describedService {
	out := describedService{Host: string(r.Hostname)}
	var ports []uint32
	for _, port := range r.Ports {
		out.Ports = append(out.Ports, fmt.Sprintf("%s %d/%s", port.Name, port.Port, port.Protocol))
		ports = append(ports, port.Port)
	}
	out.Objects = objectsOf(config, func(c *explain.ConfigResource) bool { return routesTo(c, r.Hostname, ports) }, outboundKinds...)
	return out
}

// describeService describes the service with a name, name.namespace or host. An empty namespace means any.
func describeService(ctx context.Context, plane *client.ControlPlane, name, namespace string) (*serviceDescription, error) {
	var all []istiodebug.Service
	if err := plane.Get(ctx, "/debug/registryz", &all); err != nil {
		return nil, err
	}
	service, err := findService(all, name, namespace)
	if err != nil {
		return nil, err
	}
	d := &serviceDescription{Inbound: map[string]map[string]int{}}
	if d.Pods, err = podsOf(ctx, plane, service); err != nil {
		return nil, err
	}
	var config explain.ProxyConfig
	if d.Caller, err = callerOf(ctx, plane, d.Pods, service.Attributes.Namespace); err != nil {
		return nil, err
	}
	if d.Caller != "" {
		if err := plane.GetProxy(ctx, "/debug/proxies/", d.Caller, "/config/all", &config); err != nil {
			return nil, err
		}
	}
	d.describedService = described(service, &config)
	for _, pod := range d.Pods[:min(len(d.Pods), maxDescribedPods)] {
		var config explain.ProxyConfig
		if err := plane.GetProxy(ctx, "/debug/proxies/", pod, "/config/listeners", &config); err != nil {
			return nil, err
		}
		d.addInbound(&config)
	}
	return d, nil
}

func (d *serviceDescription) addInbound(config *explain.ProxyConfig) {
	d.Asked++
	for kind, names := range inboundObjects(config) {
		for _, name := range names {
			if d.Inbound[kind] == nil {
				d.Inbound[kind] = map[string]int{}
			}
			d.Inbound[kind][name]++
		}
	}
}

// findService returns the only service that a name may mean.
func findService(all []istiodebug.Service, name, namespace string) (*istiodebug.Service, error) {
	var found []*istiodebug.Service
	var names []string
	for i := range all {
		r := &all[i]
		short := r.Attributes.Name + "." + r.Attributes.Namespace
		if namespace != "" && r.Attributes.Namespace != namespace {
			continue
		}
		if name == string(r.Hostname) || name == short || name == r.Attributes.Name || name == short+".svc" {
			found = append(found, r)
		}
		names = append(names, r.Attributes.Name, short)
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, &terminal.UserError{What: "no such service" + spelling.DidYouMean(name, names), Where: name, Next: "see 'moonsail experimental internal-debug registryz' for all services"}
	}
	var where []string
	for _, r := range found {
		where = append(where, r.Attributes.Namespace)
	}
	return nil, terminal.UsageError{Err: fmt.Errorf("service %s: it is in the namespaces %s: choose one with --namespace", name, strings.Join(slices.Sorted(slices.Values(where)), ", "))}
}

// podsOf returns the connected proxies of all control planes that serve a service, in order.
func podsOf(ctx context.Context, plane *client.ControlPlane, service *istiodebug.Service) ([]string, error) {
	var mu sync.Mutex // guards pods
	pods := []string{}
	err := plane.Each(ctx, func(_ int, r *client.Replica) error {
		var instances map[string][]istiodebug.Service
		if err := r.Get(ctx, "/debug/instancesz", &instances); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for pod, list := range instances {
			if slices.ContainsFunc(list, func(s istiodebug.Service) bool {
				return s.Hostname == service.Hostname && s.Attributes.Namespace == service.Attributes.Namespace
			}) {
				pods = append(pods, pod)
			}
		}
		return nil
	})
	slices.Sort(pods)
	return slices.Compact(pods), err
}

// callerOf returns the proxy whose configuration is shown: one of the service, else one of its namespace, else any sidecar.
func callerOf(ctx context.Context, plane *client.ControlPlane, pods []string, namespace string) (string, error) {
	if len(pods) > 0 {
		return pods[0], nil
	}
	var list debug.ProxyList
	if err := plane.Get(ctx, "/debug/proxies", &list); err != nil {
		return "", err
	}
	other := ""
	for i := range list.Proxies {
		p := &list.Proxies[i]
		if !strings.HasPrefix(p.ID, "sidecar~") {
			continue
		}
		name := p.Name + "." + p.Namespace
		if p.Namespace == namespace {
			return name, nil
		}
		if other == "" {
			other = name
		}
	}
	return other, nil
}

func (d *serviceDescription) print(w io.Writer) error {
	d.printHost(w)
	if d.Caller == "" {
		fmt.Fprintln(w, "   no sidecar is connected: the objects that configure callers are unknown")
	} else if err := printObjects(w, d.Objects, outboundKinds); err != nil {
		return err
	}
	if len(d.Pods) > 0 {
		fmt.Fprintf(w, "   Pods: %s\n", firstNames(d.Pods, maxDescribedPods))
	} else {
		fmt.Fprintln(w, "   Pods: none with a connected sidecar")
	}
	if d.Caller != "" {
		fmt.Fprintf(w, "   As seen by: %s\n", d.Caller)
	}
	if d.Asked == 0 {
		return nil
	}
	fmt.Fprintf(w, "%s\nPolicies and configuration of %s:\n", descriptionRule, terminal.Count(d.Asked, "Pod"))
	if len(d.Inbound) == 0 {
		_, err := fmt.Fprintln(w, noInbound)
		return err
	}
	for _, kind := range inboundKinds {
		for _, name := range slices.Sorted(maps.Keys(d.Inbound[string(kind)])) {
			note := ""
			if n := d.Inbound[string(kind)][name]; n < d.Asked {
				note = fmt.Sprintf(" (%d of %s)", n, terminal.Count(d.Asked, "Pod"))
			}
			if _, err := fmt.Fprintf(w, "   %s: %s%s\n", kind, name, note); err != nil {
				return err
			}
		}
	}
	return nil
}

// firstNames returns "a, b and 2 more". It names at most so many.
func firstNames(names []string, most int) string {
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
