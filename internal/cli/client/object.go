package client

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// Object is an argument KIND/NAME with the flag --namespace, as in kubectl.
type Object struct {
	Namespace string
	Pods      bool // a workload, such as deployment/web, is one of its Pods

	client *ControlPlane
	unseen bool // no namespace has the object: Key assumed the default one
}

// AddFlag adds --namespace to cmd. client finds the namespace of objects if the flag is not set.
func (o *Object) AddFlag(cmd *cobra.Command, client *ControlPlane) {
	o.client = client
	cmd.Flags().StringVarP(&o.Namespace, "namespace", "n", "", "`NAMESPACE` of the object (default: the only one that has it)")
	client.CompleteNamespace(cmd)
}

// shortKinds are kubectl's abbreviations.
var shortKinds = map[string]model.Kind{
	"ns": model.KindNamespace, "svc": model.KindService, "po": model.KindPod, "vs": model.KindVirtualService,
	"dr": model.KindDestinationRule, "se": model.KindServiceEntry, "we": model.KindWorkloadEntry,
	"gw": model.KindGateway, "gtw": model.KindKubernetesGateway, "lset": model.KindListenerSet, "ap": model.KindAuthorizationPolicy,
	"pa": model.KindPeerAuthentication, "ra": model.KindRequestAuthentication, "cm": model.KindConfigMap, "no": model.KindNode,
}

// parseKind accepts VirtualService, virtualservices, virtualservices.networking.istio.io and vs.
func parseKind(s string) (model.Kind, bool) {
	s, group, _ := strings.Cut(strings.ToLower(s), ".")
	if strings.HasSuffix(group, "gateway.networking.k8s.io") && strings.TrimSuffix(s, "s") == "gateway" {
		return model.KindKubernetesGateway, true // without a group, "gateway" is Istio's
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

// nearKind suggests the kind with the nearest name, in the number of the given one.
func nearKind(s string) string {
	s, _, _ = strings.Cut(strings.ToLower(s), ".")
	var names []string
	for _, k := range userKinds() {
		names = append(names, strings.ToLower(string(k)))
	}
	for short := range shortKinds {
		names = append(names, short)
	}
	slices.Sort(names)
	if one, ok := strings.CutSuffix(s, "s"); ok && len(one) > len("ns") {
		s = one
	}
	return spelling.DidYouMean(s, names)
}

// IsObject reports whether an argument is KIND/NAME and not a file.
func IsObject(arg string) bool {
	kind, name, ok := strings.Cut(arg, "/")
	_, known := parseKind(kind)
	return ok && known && name != ""
}

// MistypedKind returns the error of an argument that would be KIND/NAME with another spelling of the kind; nil: it would not.
func MistypedKind(arg string) error {
	kind, _, ok := strings.Cut(arg, "/")
	if _, known := parseKind(kind); !ok || known || nearKind(kind) == "" {
		return nil
	}
	return unknownKind(kind)
}

func unknownKind(kind string) error {
	return terminal.UsageError{Err: fmt.Errorf("%q: unknown kind%s: use one of %s", kind, nearKind(kind), KindNames())}
}

// ObjectArg returns KIND/NAME for the arguments KIND and NAME, and a single argument as it is.
func ObjectArg(args []string) (string, error) {
	if len(args) == 1 {
		return args[0], nil
	}
	if strings.Contains(args[0], "/") || strings.Contains(args[1], "/") {
		return "", terminal.UsageError{Err: fmt.Errorf("%q and %q: more than one object: use KIND/NAME or KIND NAME", args[0], args[1])}
	}
	return args[0] + "/" + args[1], nil
}

// Key parses KIND/NAME, KIND/NAMESPACE/NAME or KIND/NAME.NAMESPACE. Without a namespace, it takes the only one that has the
// object.
func (o *Object) Key(ctx context.Context, arg string) (model.Key, error) {
	parts := strings.Split(arg, "/")
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
		return model.Key{}, terminal.UsageError{Err: fmt.Errorf("%q: not an object: use KIND/NAME, for example virtualservice/reviews", arg)}
	}
	kind, ok := parseKind(parts[0])
	switch {
	case !ok && o.Pods && len(parts) == 2 && IsWorkload(arg):
		return o.podOf(ctx, arg)
	case !ok:
		return model.Key{}, unknownKind(parts[0])
	case len(parts) == 3 && o.Namespace != "" && o.Namespace != parts[1] && kind != model.KindNamespace:
		return model.Key{}, terminal.UsageError{Err: fmt.Errorf("%q: is of another namespace than --namespace %s: give one of them", arg, o.Namespace)}
	}
	key := model.Key{Kind: kind, Namespace: o.Namespace, Name: parts[len(parts)-1]}
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
	return o.findNamespace(ctx, key)
}

// podOf returns the Pod of a connected proxy of a workload.
func (o *Object) podOf(ctx context.Context, workload string) (model.Key, error) {
	proxy, err := o.client.ResolveProxy(ctx, ProxyIn(workload, o.Namespace))
	if err != nil {
		return model.Key{}, err
	}
	last := strings.LastIndexByte(proxy, '.') // namespaces have no dots
	return model.Key{Kind: model.KindPod, Namespace: proxy[last+1:], Name: proxy[:last]}, nil
}

// findNamespace completes a key with the namespace of the only object of its name, or else of the one that was deleted lately.
func (o *Object) findNamespace(ctx context.Context, key model.Key) (model.Key, error) {
	list, err := o.client.stored(ctx, key.Kind)
	if err != nil {
		return key, err
	}
	keys := make([]model.Key, len(list.Objects))
	for i := range list.Objects {
		keys[i] = list.Objects[i].Key
	}
	for i, all := range [][]model.Key{keys, list.Deleted} {
		switch found := named(all, key.Name); len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			var in []string
			for _, k := range found {
				in = append(in, k.Namespace)
			}
			slices.Sort(in)
			verb := [...]string{"exists", "was deleted"}[i]
			return key, terminal.UsageError{Err: fmt.Errorf("%s %s: %s in several namespaces (%s): choose one with --namespace", key.Kind, key.Name, verb, strings.Join(in, ", "))}
		}
	}
	key.Namespace, o.unseen = "default", true
	return key, nil
}

// named returns the keys with a name, or else the one with name.namespace. Names of objects may have dots: what follows the last one
// is the namespace only if no object has the whole name.
func named(all []model.Key, name string) []model.Key {
	var whole, qualified []model.Key
	last := strings.LastIndexByte(name, '.')
	for _, k := range all {
		switch {
		case k.Name == name:
			whole = append(whole, k)
		case last > 0 && k.Name == name[:last] && k.Namespace == name[last+1:]:
			qualified = append(qualified, k)
		}
	}
	if len(whole) == 0 {
		return qualified
	}
	return whole
}

// Explain completes the error of a page about the object of Key.
func (o *Object) Explain(ctx context.Context, key model.Key, err error) error {
	var answer answerError
	if !errors.As(err, &answer) || answer.missing != key.String() {
		return err
	}
	copied := *answer.UserError
	if o.unseen {
		copied.What = fmt.Sprintf("%s %s: not found in any namespace", key.Kind, key.Name)
	}
	copied.What += o.nearName(ctx, key)
	return &copied
}

// nearName suggests an object of the kind with a similar name, or with the same in another namespace.
func (o *Object) nearName(ctx context.Context, key model.Key) string {
	list, err := o.client.Objects(ctx, key.Kind)
	if err != nil {
		return ""
	}
	var names, elsewhere []string
	for _, one := range list {
		switch {
		case one.Name == key.Name:
			elsewhere = append(elsewhere, one.Namespace)
		case o.unseen || one.Namespace == key.Namespace:
			names = append(names, one.Name)
		}
	}
	if len(elsewhere) > 0 {
		return fmt.Sprintf("; did you mean the one of namespace %s?", strings.Join(elsewhere, " or "))
	}
	return spelling.DidYouMean(key.Name, names)
}

// userKinds returns the kinds that users write. The control plane makes the others.
func userKinds() (out []model.Kind) {
	for _, k := range model.Kinds {
		if k != model.KindDrainNotice && k != model.KindKeySet {
			out = append(out, k)
		}
	}
	return out
}

// KindNames lists the kinds that users write, for messages.
func KindNames() string {
	var names []string
	for _, k := range userKinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// Objects lists the objects of a kind in the control plane's store.
func (c *ControlPlane) Objects(ctx context.Context, kind model.Kind) ([]debug.StoredObject, error) {
	list, err := c.stored(ctx, kind)
	return list.Objects, err
}

func (c *ControlPlane) stored(ctx context.Context, kind model.Kind) (list debug.StoredObjects, err error) {
	err = c.Get(ctx, "/debug/store/"+string(kind), &list)
	return list, err
}

// objectNames returns names for completion; none if the control plane does not answer.
func (c *ControlPlane) objectNames(ctx context.Context, kind model.Kind, namespace string) []cobra.Completion {
	list, err := c.Objects(ctx, kind)
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

// Complete completes kinds, then names of existing objects. With files, the argument may also be a file.
func (o *Object) Complete(files bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		switch {
		case len(args) == 1: // KIND NAME
			if kind, known := parseKind(args[0]); known {
				return o.client.objectNames(cmd.Context(), kind, o.Namespace), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		case len(args) > 1:
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
			for _, n := range o.client.objectNames(cmd.Context(), kind, o.Namespace) {
				out = append(out, prefix+"/"+n)
			}
			return out, directive
		}
		var out []cobra.Completion
		for _, k := range userKinds() {
			if one := strings.ToLower(string(k)); strings.HasPrefix(one, strings.ToLower(typed)) {
				out = append(out, one+"/")
			}
		}
		return out, directive | cobra.ShellCompDirectiveNoSpace
	}
}

// ObjectPath returns a key as part of a debug page's path.
func ObjectPath(k model.Key) string {
	parts := []string{string(k.Kind), url.PathEscape(k.Namespace), url.PathEscape(k.Name)}
	if k.Namespace == "" {
		parts = []string{parts[0], parts[2]}
	}
	return strings.Join(parts, "/")
}
