package client

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/controlplane/istiodebug"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Types of TYPE/NAME that name a proxy, by kubectl's names. The others are workloads.
const (
	typePod     = "pod"
	typeService = "service"
)

var proxyTypes = map[string]string{
	"po": typePod, "pod": typePod, "pods": typePod, "svc": typeService, "service": typeService, "services": typeService,
	"deploy": "deployment", "deployment": "deployment", "deployments": "deployment",
	"sts": "statefulset", "statefulset": "statefulset", "statefulsets": "statefulset",
	"ds": "daemonset", "daemonset": "daemonset", "daemonsets": "daemonset",
	"job": "job", "jobs": "job", "cj": "cronjob", "cronjob": "cronjob", "cronjobs": "cronjob",
	"rollout": "rollout", "rollouts": "rollout", "ro": "rollout",
}

// cutType splits TYPE/NAME. ok is not set if the name has no type.
func cutType(name string) (of, rest string, ok bool) {
	of, rest, ok = strings.Cut(name, "/")
	if !ok {
		return "", name, false
	}
	of, _, _ = strings.Cut(strings.ToLower(of), ".") // deployment.apps
	return of, rest, true
}

// IsWorkload reports whether a name is TYPE/NAME of a workload, such as deployment/web.
func IsWorkload(name string) bool {
	of, rest, ok := cutType(name)
	t := proxyTypes[of]
	return ok && rest != "" && t != "" && t != typePod && t != typeService
}

// WorkloadName returns a name of a Pod or workload without its type.
func WorkloadName(name string) string {
	if IsWorkload(name) {
		_, name, _ = cutType(name)
	}
	return PodName(name)
}

// PodName accepts kubectl's and istioctl's form of a proxy's name, too: pod/web-1.shop.
func PodName(name string) string {
	if of, pod, ok := cutType(name); ok && proxyTypes[of] == typePod {
		return pod
	}
	return name
}

// ProxyIn returns the name of a proxy with the namespace of a flag, unless the name ends with it, is a node ID, or the flag is
// empty.
func ProxyIn(name, namespace string) string {
	if namespace == "" || strings.Contains(name, "~") || strings.HasSuffix(name, "."+namespace) {
		return name
	}
	return PodName(name) + "." + namespace
}

// AddProxyNamespace adds --namespace to a command whose first arguments are proxies, and returns its value.
func (c *ControlPlane) AddProxyNamespace(cmd *cobra.Command, arguments int) (namespace *string) {
	namespace = cmd.Flags().StringP("namespace", "n", "", "`NAMESPACE` of the proxy (default: that in its name, or the only one that has it)")
	c.CompleteNamespace(cmd)
	cmd.PreRun = func(_ *cobra.Command, args []string) {
		for i := range min(arguments, len(args)) {
			args[i] = ProxyIn(args[i], *namespace)
		}
	}
	return namespace
}

// ResolveProxy returns the name of a connected proxy for TYPE/NAME or TYPE/NAME.NAMESPACE: the first one of a workload or Service.
// If there are several, a note has the chosen one. Other names stay as they are.
func (c *ControlPlane) ResolveProxy(ctx context.Context, name string) (string, error) {
	of, rest, ok := cutType(name)
	t := proxyTypes[of]
	switch {
	case !ok || strings.Contains(name, "~"):
		return name, nil
	case t == "" || rest == "":
		return "", terminal.UsageError{Err: fmt.Errorf("%q: not a proxy: use NAME.NAMESPACE, pod/NAME, deployment/NAME, statefulset/NAME, daemonset/NAME, job/NAME or service/NAME", name)}
	case t == typePod:
		return rest, nil
	}
	c.mu.Lock()
	known := c.resolved[name]
	c.mu.Unlock()
	if known != "" {
		return known, nil
	}
	find := c.workloadProxies
	if t == typeService {
		find = c.serviceProxies
	}
	owners, err := find(ctx)
	if err != nil {
		return "", err
	}
	chosen, count, err := chooseProxy(owners, t, rest)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resolved == nil {
		c.resolved = map[string]string{}
	}
	c.resolved[name] = chosen
	if count > 1 {
		c.note("%s %s has %d connected proxies: this is about %s", t, rest, count, chosen)
	}
	return chosen, nil
}

// ownedProxy is a proxy, and a workload or Service of it.
type ownedProxy struct{ of, name, namespace, proxy string }

// chooseProxy returns the first proxy of an owner, and how many it has. The owner is a name or name.namespace.
func chooseProxy(all []ownedProxy, of, owner string) (chosen string, count int, err error) {
	var proxies, namespaces, names []string
	for _, p := range all {
		switch {
		case p.of != "" && p.of != of:
			continue
		case owner == p.name || owner == p.name+"."+p.namespace:
			proxies, namespaces = append(proxies, p.proxy), append(namespaces, p.namespace)
		}
		names = append(names, p.name, p.name+"."+p.namespace)
	}
	namespaces = slices.Compact(slices.Sorted(slices.Values(namespaces)))
	switch {
	case len(proxies) == 0:
		return "", 0, &terminal.UserError{What: fmt.Sprintf("%s %s: it has no connected proxy%s", of, owner, spelling.DidYouMean(owner, names)),
			Next: "see 'moonsail proxies' for connected proxies"}
	case len(namespaces) > 1:
		return "", 0, terminal.UsageError{Err: fmt.Errorf("%s %s: exists in several namespaces (%s): choose one as %s/%s.NAMESPACE", of, owner,
			strings.Join(namespaces, ", "), of, owner)}
	}
	proxies = slices.Compact(slices.Sorted(slices.Values(proxies)))
	return proxies[0], len(proxies), nil
}

// workloadProxies returns the connected proxies with their workloads.
func (c *ControlPlane) workloadProxies(ctx context.Context) ([]ownedProxy, error) {
	var list debug.ProxyList
	if err := c.Get(ctx, "/debug/proxies", &list); err != nil {
		return nil, err
	}
	var out []ownedProxy
	for i := range list.Proxies {
		p := &list.Proxies[i]
		if p.Workload == "" {
			continue
		}
		out = append(out, workloadOf(p))
	}
	return out, nil
}

func workloadOf(p *server.ProxyState) ownedProxy {
	o := ownedProxy{name: p.Workload, namespace: p.Namespace, proxy: p.Name + "." + p.Namespace}
	if of, name, ok := strings.Cut(p.Workload, "/"); ok {
		o.of, o.name = of, name
	}
	return o
}

// serviceProxies returns the connected proxies of all replicas with the services that they serve.
func (c *ControlPlane) serviceProxies(ctx context.Context) ([]ownedProxy, error) {
	var mu sync.Mutex // guards out
	var out []ownedProxy
	err := c.Each(ctx, func(_ int, r *Replica) error {
		var instances map[string][]istiodebug.Service
		if err := r.Get(ctx, "/debug/instancesz", &instances); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for proxy, list := range instances {
			for i := range list {
				out = append(out, ownedProxy{typeService, list[i].Attributes.Name, list[i].Attributes.Namespace, proxy})
			}
		}
		return nil
	})
	return out, err
}
