package deploy

import (
	"bytes"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/model"
)

// ours are the names of objects, and the label, that each revision has for itself. Leases are for all: each writes
// its own mark into them.
var ours = []string{"moonsail", "moonsail-validator", "moonsail-injector", "moonsail-injection", "moonsail-credentials", "moonsail-authorities"}

// istiod is the Service that belongs to the default control plane, and may be Istio's.
const istiod = "istiod"

// object is one of a cluster.
type object map[string]any

func (o object) at(fields ...string) object {
	for _, f := range fields {
		next, _ := o[f].(map[string]any)
		o = next
	}
	return o
}

func (o object) name() string {
	name, _ := o.at("metadata")["name"].(string)
	return name
}

// forRevision makes the files' objects those of a control plane that leaves others alone: with names of its own,
// for Pods that name it, and without Service istiod, whose ports the Service of its webhooks gets.
func forRevision(text []byte, revision string) ([]byte, error) {
	var objects []object
	var ports []any
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var o object
		if err := yaml.Unmarshal(doc, &o); err != nil {
			return nil, err
		}
		if o["kind"] == "Service" && o.name() == istiod {
			ports, _ = o.at("spec")["ports"].([]any)
			continue
		}
		objects = append(objects, o)
	}
	var out [][]byte
	for _, o := range objects {
		if err := o.become(revision, ports); err != nil {
			return nil, err
		}
		doc, err := yaml.Marshal(o)
		if err != nil {
			return nil, err
		}
		out = append(out, doc)
	}
	return bytes.Join(out, []byte("---\n")), nil
}

// become makes an object one of a revision; more are the ports of Service istiod.
func (o object) become(revision string, more []any) error {
	renamed(map[string]any(o), revision)
	switch o["kind"] {
	case "Service":
		spec := o.at("spec")
		ports, _ := spec["ports"].([]any)
		spec["ports"] = append(ports, more...)
	case "MutatingWebhookConfiguration":
		o.inject(revision)
	case "Deployment":
		o.serve(revision)
	case "ConfigMap":
		return o.configure(revision)
	}
	return nil
}

// named is the name of an object in a revision.
func named(name, revision string) string {
	if revision == model.DefaultRevision {
		return name
	}
	return name + "-" + revision
}

// renamed has all names that are ours be the revision's: as values, and as values of arguments.
func renamed(value any, revision string) any {
	switch v := value.(type) {
	case string:
		if flag, name, ok := strings.Cut(v, "="); ok && strings.HasPrefix(v, "--") && slices.Contains(ours, name) {
			return flag + "=" + named(name, revision)
		}
		if slices.Contains(ours, v) {
			return named(v, revision)
		}
	case []any:
		for i := range v {
			v[i] = renamed(v[i], revision)
		}
	case map[string]any:
		for k := range v {
			v[k] = renamed(v[k], revision)
		}
	}
	return value
}

// inject keeps the webhooks for whom the revision is named: istio-injection=enabled is for the default one.
func (o object) inject(revision string) {
	hooks, _ := o["webhooks"].([]any)
	hooks = slices.DeleteFunc(hooks, func(h any) bool {
		name, _ := object(h.(map[string]any))["name"].(string)
		return !strings.HasPrefix(name, "rev.")
	})
	for _, h := range hooks {
		for _, of := range []string{"namespaceSelector", "objectSelector"} {
			matches, _ := object(h.(map[string]any)).at(of)["matchExpressions"].([]any)
			for _, m := range matches {
				if m := object(m.(map[string]any)); m["key"] == model.LabelRevision && m["operator"] == "In" {
					m["values"] = []any{revision}
				}
			}
		}
	}
	o["webhooks"] = hooks
}

// serve has the control plane be the revision's. Statuses are the default one's to write: two that write them would
// undo each other's.
func (o object) serve(revision string) {
	containers, _ := o.at("spec", "template", "spec")["containers"].([]any)
	c := object(containers[0].(map[string]any))
	args, _ := c["args"].([]any)
	service := named("moonsail", revision)
	args = slices.DeleteFunc(args, func(a any) bool { return a == "--status" || a == "--peer-service="+istiod })
	c["args"] = append(args, "--revision="+revision, "--peer-service="+service, "--xds-cert-names="+host(revision))
}

// host is where sidecars of a revision find it.
func host(revision string) string { return named("moonsail", revision) + ".istio-system.svc" }

// configure has the sidecars that are injected be the revision's.
func (o object) configure(revision string) error {
	data := o.at("data")
	text, _ := data["config"].(string)
	var config map[string]any
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		return err
	}
	config["revision"], config["xdsAddress"] = revision, host(revision)+":15012"
	out, err := yaml.Marshal(config)
	data["config"] = string(out)
	return err
}
