package meshtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/tools/txtar"

	"github.com/moonsail/moonsail/internal/model"
)

// expectations is the file of an example's folder with the parts of a test that are not applied: other objects of the
// cluster, and calls with their results.
const expectations = "expect.txtar"

// LoadExample reads an example: the YAML of base and of dir, applied in this order, and expectations of dir. The
// Pods of Deployments are the proxies. Only those are kept from which or to which a call of the example is made.
func LoadExample(base, dir string) (*File, error) {
	a, err := txtar.ParseFile(filepath.Join(dir, expectations))
	if err != nil {
		return nil, err
	}
	f := &File{Path: dir, Name: filepath.Base(dir), Comment: string(a.Comment), Mesh: model.DefaultMesh(), archive: a}
	c := &kubeCluster{}
	for _, folder := range []string{base, dir} {
		if err := c.apply(folder); err != nil {
			return nil, err
		}
	}
	if err := c.addNodes(a); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", dir, expectations, err)
	}
	text, err := c.text()
	if err == nil {
		err = f.decode(fromCluster, text)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	for i, part := range a.Files {
		switch part.Name {
		case nodesPart:
			continue
		case "calls.yaml":
			if part.Data, err = withFileContents(dir, part.Data); err != nil {
				return nil, err
			}
		}
		if err := f.add(i, part); err != nil {
			return nil, fmt.Errorf("%s: %s: %s: %w", dir, expectations, part.Name, err)
		}
	}
	f.Proxies = append(f.Proxies, c.proxies...)
	return f, f.finishExample()
}

// finishExample prepares the calls, and drops the proxies that no call names.
func (f *File) finishExample() error {
	named := map[string]bool{}
	for i := range f.Calls {
		call := &f.Calls[i]
		if call.Proxy == "" {
			return fmt.Errorf("%s: call %q: has no proxy", f.Path, call.Name)
		}
		if err := f.prepare(call); err != nil {
			return fmt.Errorf("%s: call %q: %w", f.Path, call.Name, err)
		}
		named[call.Proxy] = true
	}
	var used []*Proxy
	for _, p := range f.Proxies {
		if named[p.Name] {
			used = append(used, p)
		}
	}
	f.Proxies = used
	return nil
}

var fileContents = regexp.MustCompile(`\$\(cat ([a-z.-]+)\)`)

// withFileContents replaces "$(cat FILE)", as a shell in dir does.
func withFileContents(dir string, text []byte) ([]byte, error) {
	var errs error
	out := fileContents.ReplaceAllFunc(text, func(match []byte) []byte {
		content, err := os.ReadFile(filepath.Join(dir, string(fileContents.FindSubmatch(match)[1])))
		errs = errors.Join(errs, err)
		return bytes.TrimSpace(content)
	})
	return out, errs
}

// kubeCluster holds the documents that were applied, and adds what Kubernetes adds to them: addresses of Services, Pods
// of Deployments, and EndpointSlices.
type kubeCluster struct {
	documents []map[string]any
	nodes     []node
	pods      []pod
	proxies   []*Proxy
}

// nodesPart lists the nodes of the cluster. The replicas of each Deployment are spread over them, in order.
const nodesPart = "nodes.yaml"

type node struct{ Name, Region, Zone string }

// addNodes reads the part with nodes. Without one, Pods have no node.
func (c *kubeCluster) addNodes(a *txtar.Archive) error {
	for _, part := range a.Files {
		if part.Name == nodesPart {
			if err := strict(part.Data, &c.nodes); err != nil {
				return fmt.Errorf("%s: %w", nodesPart, err)
			}
		}
	}
	for _, n := range c.nodes {
		labels := map[string]string{"topology.kubernetes.io/region": n.Region, "topology.kubernetes.io/zone": n.Zone}
		c.documents = append(c.documents, map[string]any{
			"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": n.Name, "labels": labels},
		})
	}
	return nil
}

// pod is one replica of a Deployment.
type pod struct {
	name, namespace, account, ip string
	labels                       map[string]string
}

// apply reads the YAML files of a folder. A document replaces an earlier one of the same kind and name.
func (c *kubeCluster) apply(folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return err
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		docs := yaml.NewDecoder(bytes.NewReader(data))
		for {
			var doc map[string]any
			if err := docs.Decode(&doc); err == io.EOF {
				break
			} else if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			c.put(doc)
		}
	}
	return nil
}

func (c *kubeCluster) put(doc map[string]any) {
	for i, other := range c.documents {
		if identity(other) == identity(doc) {
			c.documents[i] = doc
			return
		}
	}
	c.documents = append(c.documents, doc)
}

func identity(doc map[string]any) [4]string {
	return [4]string{str(doc, "apiVersion"), str(doc, "kind"), str(doc, "metadata", "namespace"), str(doc, "metadata", "name")}
}

// text returns all documents as YAML.
func (c *kubeCluster) text() ([]byte, error) {
	var out []map[string]any
	for _, doc := range c.documents {
		if doc["kind"] == "Deployment" {
			out = append(out, c.scale(doc)...)
		}
	}
	services := 0
	for _, doc := range c.documents {
		if doc["kind"] == "Service" {
			services++
			field(doc, "spec")["clusterIP"] = fmt.Sprintf("10.1.0.%d", services)
			out = append(out, c.slice(doc))
		}
	}
	var text bytes.Buffer
	e := yaml.NewEncoder(&text)
	for _, doc := range append(c.documents, out...) {
		if err := e.Encode(doc); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), e.Close()
}

// scale returns the Pods of a Deployment, as its controller and the injector create them.
func (c *kubeCluster) scale(deployment map[string]any) []map[string]any {
	template := field(deployment, "spec", "template")
	labels := labelsOf(template, "metadata", "labels")
	labels["security.istio.io/tlsMode"] = "istio"
	replicas, ok := field(deployment, "spec")["replicas"].(int)
	if !ok {
		replicas = 1
	}
	var out []map[string]any
	for i := range replicas {
		p := pod{
			name: fmt.Sprintf("%s-%d", str(deployment, "metadata", "name"), i+1), namespace: str(deployment, "metadata", "namespace"),
			account: str(template, "spec", "serviceAccountName"), ip: fmt.Sprintf("10.2.0.%d", len(c.pods)+1), labels: labels,
		}
		c.pods = append(c.pods, p)
		proxy := &Proxy{Name: p.name, Namespace: p.namespace, ServiceAccount: p.account, IP: p.ip, Labels: labels, Identity: true}
		spec := map[string]any{"serviceAccountName": p.account}
		if len(c.nodes) > 0 {
			n := c.nodes[i%len(c.nodes)]
			proxy.Locality, spec["nodeName"] = n.Region+"/"+n.Zone, n.Name
		}
		if str(template, "metadata", "annotations", "inject.istio.io/templates") == "gateway" {
			proxy.Type = model.ProxyRouter
		}
		proxy.setDefaults(0)
		c.proxies = append(c.proxies, proxy)
		out = append(out, map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": p.name, "namespace": p.namespace, "labels": labels},
			"spec": spec, "status": map[string]any{"podIP": p.ip},
		})
	}
	return out
}

// slice returns the EndpointSlice of a Service: the Pods that match its selector.
func (c *kubeCluster) slice(service map[string]any) map[string]any {
	name, namespace := str(service, "metadata", "name"), str(service, "metadata", "namespace")
	endpoints := []any{}
	for _, p := range c.pods {
		if p.namespace == namespace && selects(labelsOf(service, "spec", "selector"), p.labels) {
			endpoints = append(endpoints, map[string]any{
				"addresses": []string{p.ip}, "targetRef": map[string]string{"kind": "Pod", "name": p.name, "namespace": p.namespace},
			})
		}
	}
	ports := []any{}
	list, _ := field(service, "spec")["ports"].([]any)
	for _, port := range list {
		p, _ := port.(map[string]any)
		ports = append(ports, map[string]any{"name": p["name"], "port": p["targetPort"]})
	}
	return map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata": map[string]any{"name": name + "-1", "namespace": namespace, "labels": map[string]string{"kubernetes.io/service-name": name}},
		"ports":    ports, "endpoints": endpoints,
	}
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return len(selector) > 0
}

// field returns the map at path; an empty one if there is none.
func field(doc map[string]any, path ...string) map[string]any {
	for _, name := range path {
		next, ok := doc[name].(map[string]any)
		if !ok {
			return map[string]any{}
		}
		doc = next
	}
	return doc
}

// str returns the text at path; "" if there is none.
func str(doc map[string]any, path ...string) string {
	last := len(path) - 1
	text, _ := field(doc, path[:last]...)[path[last]].(string)
	return strings.TrimSpace(text)
}

func labelsOf(doc map[string]any, path ...string) map[string]string {
	out := map[string]string{}
	for k, v := range field(doc, path...) {
		out[k] = fmt.Sprint(v)
	}
	return out
}
