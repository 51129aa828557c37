package deploy

import (
	"bytes"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/model"
)

// ours are names of objects, and a label, that differ for each revision. All revisions share the Leases, and write
// different values into them.
var ours = []string{"moonsail", "moonsail-validator", "moonsail-injector", "moonsail-injection", "moonsail-credentials", "moonsail-authorities", "moonsail-gateways"}

// istiod is the Service of the default control plane, or of Istio.
const istiod = "istiod"

// object is a Kubernetes object.
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

// forRevision adapts the objects to a revision beside other control planes. They get other names and inject only Pods
// that name the revision. Service istiod is left out: the Service of the webhooks gets its ports.
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

// become adapts an object to a revision. istiodPorts are the ports of Service istiod.
func (o object) become(revision string, istiodPorts []any) error {
	renamed(map[string]any(o), revision)
	switch o["kind"] {
	case "Service":
		spec := o.at("spec")
		ports, _ := spec["ports"].([]any)
		spec["ports"] = append(ports, istiodPorts...)
	case "MutatingWebhookConfiguration":
		o.inject(revision)
	case "Deployment":
		o.serve(revision)
	case "ConfigMap":
		return o.configure(revision)
	}
	return nil
}

// named returns the name of an object in a revision.
func named(name, revision string) string {
	if revision == model.DefaultRevision {
		return name
	}
	return name + "-" + revision
}

// renamed replaces the names in ours by those of the revision, as values and in values of arguments.
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

// inject keeps the webhooks that select a revision. Those for istio-injection=enabled belong to the default revision.
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

// serve adapts the control plane to the revision. Only the default revision writes statuses and deploys gateways:
// two writers would overwrite each other's.
func (o object) serve(revision string) {
	containers, _ := o.at("spec", "template", "spec")["containers"].([]any)
	c := object(containers[0].(map[string]any))
	args, _ := c["args"].([]any)
	service := named("moonsail", revision)
	args = slices.DeleteFunc(args, func(a any) bool { return a == "--status" || a == "--deploy-gateways" || a == "--peer-service="+istiod })
	c["args"] = append(args, "--revision="+revision, "--peer-service="+service, "--xds-cert-names="+host(revision))
}

// host returns the name by which sidecars reach the control plane of a revision.
func host(revision string) string { return named("moonsail", revision) + ".istio-system.svc" }

// configure adapts the configuration of injected sidecars to the revision.
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
