package cli

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// objectArg is an argument KIND/NAME with its flag --namespace, as in kubectl.
type objectArg struct{ namespace string }

func (a *objectArg) addFlag(cmd *cobra.Command, client *debugClient) {
	cmd.Flags().StringVarP(&a.namespace, "namespace", "n", "", "`NAMESPACE` of the object (default: the only one that has it)")
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return client.objectNames(cmd.Context(), model.KindNamespace, ""), cobra.ShellCompDirectiveNoFileComp
	})
}

// shortKinds are kubectl's abbreviations.
var shortKinds = map[string]model.Kind{
	"ns": model.KindNamespace, "svc": model.KindService, "po": model.KindPod, "vs": model.KindVirtualService,
	"dr": model.KindDestinationRule, "se": model.KindServiceEntry, "we": model.KindWorkloadEntry,
	"gw": model.KindGateway, "gtw": model.KindKubernetesGateway, "ap": model.KindAuthorizationPolicy,
	"pa": model.KindPeerAuthentication, "ra": model.KindRequestAuthentication, "cm": model.KindConfigMap, "no": model.KindNode,
}

// parseKind understands VirtualService, virtualservices, virtualservices.networking.istio.io and vs.
func parseKind(s string) (model.Kind, bool) {
	s, group, _ := strings.Cut(strings.ToLower(s), ".")
	if strings.HasSuffix(group, "gateway.networking.k8s.io") && strings.TrimSuffix(s, "s") == "gateway" {
		return model.KindKubernetesGateway, true // Istio's has the name
	}
	if k, ok := shortKinds[s]; ok {
		return k, true
	}
	for _, k := range model.Kinds {
		one := strings.ToLower(string(k))
		if s == one || s == one+"s" || strings.TrimSuffix(one, "y")+"ies" == s && strings.HasSuffix(one, "y") {
			return k, true
		}
	}
	return "", false
}

// isObject tells whether an argument is KIND/NAME rather than a file.
func isObject(arg string) bool {
	kind, name, ok := strings.Cut(arg, "/")
	_, known := parseKind(kind)
	return ok && known && name != ""
}

// key reads KIND/NAME, or KIND/NAMESPACE/NAME. Where no namespace is said it is the only
// one that has such an object.
func (a *objectArg) key(ctx context.Context, client *debugClient, arg string) (model.Key, error) {
	parts := strings.Split(arg, "/")
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
		return model.Key{}, terminal.UsageError{Err: fmt.Errorf("%q does not name an object: the form is KIND/NAME, for example virtualservice/reviews", arg)}
	}
	kind, ok := parseKind(parts[0])
	if !ok {
		return model.Key{}, terminal.UsageError{Err: fmt.Errorf("%q is not a kind that the mesh reads; those are %s", parts[0], kindNames())}
	}
	key := model.Key{Kind: kind, Namespace: a.namespace, Name: parts[len(parts)-1]}
	if len(parts) == 3 {
		key.Namespace = parts[1]
	}
	if kind == model.KindNamespace {
		key.Namespace = ""
		return key, nil
	}
	if key.Namespace != "" {
		return key, nil
	}
	return a.only(ctx, client, key)
}

// only finds the namespace of an object by its name.
func (a *objectArg) only(ctx context.Context, client *debugClient, key model.Key) (model.Key, error) {
	list, err := client.objects(ctx, key.Kind)
	if err != nil {
		return key, err
	}
	var in []string
	for _, o := range list {
		if o.Name == key.Name {
			in = append(in, o.Namespace)
		}
	}
	switch len(in) {
	case 1:
		key.Namespace = in[0]
	case 0:
		key.Namespace = "default"
	default:
		return key, terminal.UsageError{Err: fmt.Errorf("there is a %s %s in each of %s: say which with --namespace", key.Kind, key.Name, strings.Join(in, ", "))}
	}
	return key, nil
}

// readKinds are those that users write; the control plane makes the others.
func readKinds() (out []model.Kind) {
	for _, k := range model.Kinds {
		if k != model.KindDrainNotice && k != model.KindKeySet {
			out = append(out, k)
		}
	}
	return out
}

func kindNames() string {
	var names []string
	for _, k := range readKinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// objects lists what the control plane has of a kind.
func (c *debugClient) objects(ctx context.Context, kind model.Kind) ([]debug.StoredObject, error) {
	var answer struct{ Objects []debug.StoredObject }
	err := c.get(ctx, "/debug/store/"+string(kind), &answer)
	return answer.Objects, err
}

// objectNames are names for the shell; none where nobody answers.
func (c *debugClient) objectNames(ctx context.Context, kind model.Kind, namespace string) []cobra.Completion {
	list, err := c.objects(ctx, kind)
	if err != nil {
		return nil
	}
	var out []cobra.Completion
	for _, o := range list {
		if (namespace == "" || o.Namespace == namespace) && !slices.Contains(out, o.Name) {
			out = append(out, o.Name)
		}
	}
	return out
}

// complete offers kinds first and then the names of those objects that there are. files:
// the argument may be a file too.
func (a *objectArg) complete(client *debugClient, files bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		directive := cobra.ShellCompDirectiveNoFileComp
		if files {
			directive = cobra.ShellCompDirectiveDefault
		}
		prefix, _, hasKind := strings.Cut(typed, "/")
		kind, known := parseKind(prefix)
		if hasKind && known {
			var out []cobra.Completion
			for _, n := range client.objectNames(cmd.Context(), kind, a.namespace) {
				out = append(out, prefix+"/"+n)
			}
			return out, directive
		}
		var out []cobra.Completion
		for _, k := range readKinds() {
			if one := strings.ToLower(string(k)); strings.HasPrefix(one, strings.ToLower(typed)) {
				out = append(out, one+"/")
			}
		}
		return out, directive | cobra.ShellCompDirectiveNoSpace
	}
}

// proxyNames offers the connected proxies to the shell, for one of the first arguments.
func (c *debugClient) proxyNames(arguments int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var list debug.ProxyList
		if len(args) >= arguments || c.get(cmd.Context(), "/debug/proxies?local", &list) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []cobra.Completion
		for _, p := range list.Proxies {
			names = append(names, p.Name+"."+p.Namespace)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// pathOf is a key as debug pages want it.
func pathOf(k model.Key) string {
	parts := []string{string(k.Kind), url.PathEscape(k.Namespace), url.PathEscape(k.Name)}
	if k.Namespace == "" {
		parts = []string{parts[0], parts[2]}
	}
	return strings.Join(parts, "/")
}
