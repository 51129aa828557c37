package istiod

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/test/meshtest"
)

// dependencyCases reads YAML of modules that this one depends on. What a file does not have but its routes need is filled
// in: see complete.
func dependencyCases() ([]*testCase, error) {
	gateway, err := moduleDir(".", "sigs.k8s.io/gateway-api")
	if err != nil {
		return nil, err
	}
	out, err := yamlCases("gateway-api", filepath.Join(gateway, "examples/standard"), nil)
	if err != nil {
		return nil, err
	}
	api, err := moduleDir(".", "istio.io/api")
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{"networking/v1alpha3", "networking/v1beta1", "security/v1beta1", "telemetry/v1alpha1", "extensions/v1alpha1"} {
		found, err := referenceCases(filepath.Join(api, dir))
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// istioCases reads YAML of Istio's module, on which the module in dir depends.
func istioCases(dir string) ([]*testCase, error) {
	istio, err := moduleDir(dir, "istio.io/istio")
	if err != nil {
		return nil, err
	}
	bookinfo := filepath.Join(istio, "samples/bookinfo/platform/kube/bookinfo.yaml")
	var out []*testCase
	for _, from := range []struct {
		group, dir string
		base       []string // files that are applied with each one
	}{
		{"bookinfo", "samples/bookinfo/networking", []string{bookinfo, filepath.Join(istio, "samples/bookinfo/networking/destination-rule-all.yaml")}},
		{"bookinfo-gateway-api", "samples/bookinfo/gateway-api", []string{bookinfo, filepath.Join(istio, "samples/bookinfo/platform/kube/bookinfo-versions.yaml")}},
		{"samples-security", "samples/bookinfo/policy", []string{bookinfo}},
		{"samples-httpbin", "samples/httpbin", nil},
		{"samples-helloworld", "samples/helloworld", nil},
		{"samples-tcp", "samples/tcp-echo", nil},
		{"samples-websockets", "samples/websockets", nil},
		{"istiod-gateway-api", "pilot/pkg/config/kube/gateway/testdata", nil},
		{"istiod-ingress", "pilot/pkg/config/kube/ingress/testdata", nil},
		{"istioctl-analyze", "pkg/config/analysis/analyzers/testdata", nil},
	} {
		found, err := yamlCases(from.group, filepath.Join(istio, from.dir), from.base)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// referenceCases reads the examples in the comments of Istio's API definitions.
func referenceCases(dir string) ([]*testCase, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.proto"))
	if err != nil {
		return nil, err
	}
	var out []*testCase
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for i, example := range examples(string(text)) {
			docs, err := meshtest.ParseDocuments([]byte(example))
			if err != nil { // a part of an object
				continue
			}
			k := newCase(fmt.Sprintf("api-reference/%s-%d", strings.TrimSuffix(filepath.Base(file), ".proto"), i+1), docs)
			if k.complete() {
				out = append(out, k)
			}
		}
	}
	return out, nil
}

// examples returns the YAML in comments.
func examples(text string) []string {
	var out []string
	var b strings.Builder
	inside := false
	for line := range strings.Lines(text) {
		comment, ok := strings.CutPrefix(strings.TrimSpace(line), "//")
		comment = strings.TrimPrefix(comment, " ")
		switch {
		case !ok:
			inside = false
		case inside && strings.HasPrefix(comment, "```"):
			out, inside = append(out, b.String()), false
		case inside:
			b.WriteString(comment + "\n")
		case comment == "```yaml":
			b.Reset()
			inside = true
		}
	}
	return out
}

func newCase(name string, docs []*unstructured.Unstructured) *testCase {
	return &testCase{name: name, documents: docs, domain: "cluster.local", mesh: map[string]any{}}
}

// moduleDir returns the folder of a module that the module in dir needs.
func moduleDir(dir, module string) (string, error) {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = dir
	out, err := cmd.Output()
	path := string(bytes.TrimSpace(out))
	if err == nil && path == "" {
		err = errors.New("it is not downloaded: run go mod download in its module")
	}
	if err != nil {
		return "", fmt.Errorf("module %s: %w", module, err)
	}
	return path, nil
}

func yamlCases(group, dir string, base []string) ([]*testCase, error) {
	var out []*testCase
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".yaml" || strings.Contains(e.Name(), ".status.") {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		k := newCase(group+"/"+strings.TrimSuffix(name, ".yaml"), nil)
		for _, file := range append(slices.Clone(base), path) {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			docs, err := meshtest.ParseDocuments(text)
			if err != nil { // templates and patches are no objects
				return nil
			}
			k.documents = append(k.documents, docs...)
		}
		if k.complete() {
			out = append(out, k)
		}
		return nil
	})
	return out, err
}

// maxProxies bounds the proxies of a case.
const maxProxies = 6

// completion fills in a case.
type completion struct {
	*testCase
	out      []*unstructured.Unstructured
	services map[string]bool // NAMESPACE/NAME
	pods     int
}

// complete replaces Deployments by a Pod each, adds the Services that routes name, Pods for Services without, and
// proxies: those Pods, the routers of Gateways, and a client. It reports whether the case has configuration of a mesh.
func (k *testCase) complete() bool {
	c := &completion{testCase: k, services: map[string]bool{}}
	c.merge()
	configured := slices.ContainsFunc(c.documents, func(o *unstructured.Unstructured) bool {
		g := o.GroupVersionKind().Group
		return strings.HasSuffix(g, "istio.io") || g == "gateway.networking.k8s.io" && o.GetKind() != "GatewayClass" || o.GetKind() == "Ingress"
	})
	if !configured {
		return false
	}
	for _, o := range c.documents {
		c.keep(o)
	}
	for _, o := range c.documents {
		c.backends(o)
		c.hosts(o)
		c.selected(o)
	}
	for _, o := range slices.Clone(c.out) {
		c.podFor(o)
	}
	for _, o := range c.documents {
		c.router(o)
	}
	client := &meshtest.Proxy{Name: "client", Namespace: "default", Labels: map[string]string{"app": "client"}}
	c.proxy(client)
	if len(k.proxies) > maxProxies {
		k.proxies = append(k.proxies[:maxProxies-1:maxProxies-1], client)
	}
	k.documents = c.out
	return true
}

// merge keeps the last document of each object, as applying them in turn does, and drops what is no object.
func (c *completion) merge() {
	at := map[string]int{}
	var out []*unstructured.Unstructured
	for _, o := range c.documents {
		if o.GetKind() == "" || o.GetName() == "" {
			continue
		}
		if o.GetNamespace() == "" && !clusterScoped[o.GetKind()] {
			o.SetNamespace("default")
		}
		id := o.GroupVersionKind().GroupKind().String() + "/" + o.GetNamespace() + "/" + o.GetName()
		if i, ok := at[id]; ok {
			out[i] = o
			continue
		}
		at[id] = len(out)
		out = append(out, o)
	}
	c.documents = out
}

// keep adds a document, or the Pod of a workload.
func (c *completion) keep(o *unstructured.Unstructured) {
	switch o.GetKind() {
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet":
		labels, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
		account, _, _ := unstructured.NestedString(o.Object, "spec", "template", "spec", "serviceAccountName")
		c.pod(&meshtest.Proxy{Name: o.GetName(), Namespace: o.GetNamespace(), Labels: labels, ServiceAccount: account})
		return
	case "Service":
		c.services[o.GetNamespace()+"/"+o.GetName()] = true
		unstructured.RemoveNestedField(o.Object, "spec", "clusterIP")
		unstructured.RemoveNestedField(o.Object, "spec", "clusterIPs")
		if kind, _, _ := unstructured.NestedString(o.Object, "spec", "type"); kind == "LoadBalancer" {
			_ = unstructured.SetNestedField(o.Object, "ClusterIP", "spec", "type")
		}
	case "Pod", "Job", "CronJob", "GatewayClass", "CustomResourceDefinition", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "HorizontalPodAutoscaler":
		return
	}
	unstructured.RemoveNestedField(o.Object, "status")
	unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(o.Object, "metadata", "resourceVersion")
	unstructured.RemoveNestedField(o.Object, "metadata", "uid")
	c.out = append(c.out, o)
}

// pod adds a proxy with its Pod.
func (c *completion) pod(p *meshtest.Proxy) {
	c.proxy(p)
	c.out = append(c.out, podOf(p))
}

// proxy adds a proxy. Its Pod is made with the others that have none.
func (c *completion) proxy(p *meshtest.Proxy) {
	c.pods++
	p.IP = fmt.Sprintf("10.98.0.%d", c.pods)
	if p.Type == "" {
		p.Type = model.ProxySidecar
	}
	if p.ServiceAccount == "" {
		p.ServiceAccount = "default"
	}
	p.Interception = model.InterceptRedirect
	c.proxies = append(c.proxies, p)
}

// podFor adds a Pod for a Service that no Pod has.
func (c *completion) podFor(o *unstructured.Unstructured) {
	if o.GetKind() != "Service" {
		return
	}
	selector, _, _ := unstructured.NestedStringMap(o.Object, "spec", "selector")
	if len(selector) == 0 || c.hasPod(o.GetNamespace(), selector) {
		return
	}
	c.pod(&meshtest.Proxy{Name: o.GetName(), Namespace: o.GetNamespace(), Labels: selector})
}

// backends adds the Services that an object's routes name.
func (c *completion) backends(o *unstructured.Unstructured) {
	visit(o.Object, func(m map[string]any) {
		if list, ok := m["backendRefs"].([]any); ok {
			for _, e := range list {
				ref, _ := e.(map[string]any)
				if kind, _ := ref["kind"].(string); kind == "" || kind == "Service" {
					c.service(text(ref["namespace"], o.GetNamespace()), text(ref["name"], ""), ref["port"], o.GetKind())
				}
			}
		}
		if d, ok := m["destination"].(map[string]any); ok {
			name, ns := text(d["host"], ""), o.GetNamespace()
			short, rest, qualified := strings.Cut(name, ".")
			if qualified && !strings.HasSuffix(rest, ".svc.cluster.local") {
				return
			}
			if qualified {
				ns = strings.TrimSuffix(rest, ".svc.cluster.local")
			}
			port, _ := d["port"].(map[string]any)
			c.service(ns, short, port["number"], o.GetKind())
		}
		if s, ok := m["service"].(map[string]any); ok && o.GetKind() == "Ingress" {
			port, _ := s["port"].(map[string]any)
			c.service(o.GetNamespace(), text(s["name"], ""), port["number"], o.GetKind())
		}
	})
}

// hosts adds the Services that VirtualServices and DestinationRules are about, and Pods of subsets.
func (c *completion) hosts(o *unstructured.Unstructured) {
	switch o.GetKind() {
	case "VirtualService":
		if gateways, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "gateways"); len(gateways) == 0 {
			hosts, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "hosts")
			for _, h := range hosts {
				c.serviceOf(h, o)
			}
		}
	case "DestinationRule":
		host, _, _ := unstructured.NestedString(o.Object, "spec", "host")
		ns, name, ok := c.serviceOf(host, o)
		if !ok {
			return
		}
		subsets, _, _ := unstructured.NestedSlice(o.Object, "spec", "subsets")
		for i, e := range subsets {
			subset, _ := e.(map[string]any)
			labels, _, _ := unstructured.NestedStringMap(subset, "labels")
			if labels == nil {
				continue
			}
			labels["app"] = name
			if !c.hasPod(ns, labels) {
				c.pod(&meshtest.Proxy{Name: fmt.Sprintf("%s-%d", name, i+1), Namespace: ns, Labels: labels})
			}
		}
	}
}

// serviceOf adds the Service of a host; false: it is no name of one.
func (c *completion) serviceOf(host string, o *unstructured.Unstructured) (ns, name string, ok bool) {
	name, rest, qualified := strings.Cut(host, ".")
	ns = o.GetNamespace()
	if qualified {
		if ns, ok = strings.CutSuffix(rest, ".svc.cluster.local"); !ok {
			return "", "", false
		}
	}
	if name == "" || strings.Contains(host, "*") {
		return "", "", false
	}
	c.service(ns, name, nil, o.GetKind())
	return ns, name, true
}

func (c *completion) hasPod(ns string, selector map[string]string) bool {
	return slices.ContainsFunc(c.proxies, func(p *meshtest.Proxy) bool {
		return p.Namespace == ns && model.SelectorMatches(selector, p.Labels)
	})
}

// selected adds a Pod for the labels that an object selects, with a Service.
func (c *completion) selected(o *unstructured.Unstructured) {
	if o.GroupVersionKind().Group == "networking.istio.io" && o.GetKind() == "Gateway" || !strings.HasSuffix(o.GroupVersionKind().Group, "istio.io") {
		return
	}
	labels, _, _ := unstructured.NestedStringMap(o.Object, "spec", "selector", "matchLabels")
	if labels == nil {
		labels, _, _ = unstructured.NestedStringMap(o.Object, "spec", "workloadSelector", "labels")
	}
	if len(labels) == 0 || c.hasPod(o.GetNamespace(), labels) {
		return
	}
	name := "selected-" + strings.ToLower(strings.NewReplacer(".", "-", "_", "-").Replace(o.GetName()))
	selector := map[string]any{}
	for k, v := range labels {
		selector[k] = v
	}
	c.service(o.GetNamespace(), name, nil, o.GetKind())
	_ = unstructured.SetNestedMap(c.out[len(c.out)-1].Object, selector, "spec", "selector")
	c.pod(&meshtest.Proxy{Name: name, Namespace: o.GetNamespace(), Labels: labels})
}

func text(v any, otherwise string) string {
	if s, ok := v.(string); ok && s != "" {
		return s
	}
	return otherwise
}

// visit calls do for all maps in v.
func visit(v any, do func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		do(v)
		for _, k := range slices.Sorted(maps.Keys(v)) {
			visit(v[k], do)
		}
	case []any:
		for _, e := range v {
			visit(e, do)
		}
	}
}

// service adds a Service unless the case has it.
func (c *completion) service(ns, name string, port any, kind string) {
	if name == "" || strings.Contains(name, "*") || c.services[ns+"/"+name] {
		return
	}
	c.services[ns+"/"+name] = true
	number, ok := port.(int64)
	if f, isFloat := port.(float64); isFloat {
		number, ok = int64(f), true
	}
	if !ok || number == 0 {
		number = 80
	}
	protocol := map[string]string{"TCPRoute": "tcp", "TLSRoute": "tls", "GRPCRoute": "grpc"}[kind]
	if protocol == "" {
		protocol = "http"
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": name, "namespace": ns},
		"spec": map[string]any{
			"selector": map[string]any{"app": name},
			"ports":    []any{map[string]any{"name": protocol, "port": number, "targetPort": int64(8080)}},
		},
	}}
	c.out = append(c.out, o)
}

// router adds the proxy of a Gateway.
func (c *completion) router(o *unstructured.Unstructured) {
	p := &meshtest.Proxy{Type: model.ProxyRouter, Namespace: o.GetNamespace(), Name: "router-" + strings.ReplaceAll(o.GetName(), ".", "-")}
	switch {
	case o.GetKind() == "Gateway" && o.GroupVersionKind().Group == "networking.istio.io":
		p.Labels, _, _ = unstructured.NestedStringMap(o.Object, "spec", "selector")
		if p.Labels["istio"] != "" {
			p.Namespace = rootNamespace
		}
	case o.GetKind() == "Gateway":
		class, _, _ := unstructured.NestedString(o.Object, "spec", "gatewayClassName")
		if !served[class] {
			_ = unstructured.SetNestedField(o.Object, "istio", "spec", "gatewayClassName")
		}
		p.Labels = map[string]string{"gateway.networking.k8s.io/gateway-name": o.GetName()}
	case o.GetKind() == "Ingress":
		p.Labels, p.Namespace = map[string]string{"istio": "ingressgateway"}, rootNamespace
	default:
		return
	}
	if slices.ContainsFunc(c.proxies, func(q *meshtest.Proxy) bool {
		return q.Type == p.Type && q.Namespace == p.Namespace && maps.Equal(q.Labels, p.Labels)
	}) {
		return
	}
	c.pod(p)
	c.proxies = append([]*meshtest.Proxy{p}, c.proxies[:len(c.proxies)-1]...) // routers first
}

// served are classes of Gateways; those of examples are placeholders.
var served = map[string]bool{"istio": true, "istio-waypoint": true, "istio-east-west": true, "istio-remote": true, "moonsail": true}
