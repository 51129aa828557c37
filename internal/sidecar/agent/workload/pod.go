package workload

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/model"
)

// pod has the fields of a Kubernetes Pod that a sidecar needs.
type pod struct {
	Kind     string `yaml:"kind"`
	Metadata struct {
		Name            string            `yaml:"name"`
		Namespace       string            `yaml:"namespace"`
		Labels          map[string]string `yaml:"labels"`
		Annotations     map[string]string `yaml:"annotations"`
		OwnerReferences []struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string `yaml:"kind"`
			Name       string `yaml:"name"`
			Controller bool   `yaml:"controller"`
		} `yaml:"ownerReferences"`
	} `yaml:"metadata"`
	Spec struct {
		ServiceAccountName string      `yaml:"serviceAccountName"`
		NodeName           string      `yaml:"nodeName"`
		Containers         []container `yaml:"containers"`
		InitContainers     []container `yaml:"initContainers"`
	} `yaml:"spec"`
	Status struct {
		PodIP  string `yaml:"podIP"`
		PodIPs []struct {
			IP string `yaml:"ip"`
		} `yaml:"podIPs"`
	} `yaml:"status"`
}

type container struct {
	Name          string `yaml:"name"`
	RestartPolicy string `yaml:"restartPolicy"`
	Ports         []struct {
		Name          string `yaml:"name"`
		ContainerPort uint32 `yaml:"containerPort"`
		Protocol      string `yaml:"protocol"`
	} `yaml:"ports"`
}

// proxyContainer is the name of the sidecar's container, as in Istio.
const proxyContainer = "istio-proxy"

// ReadPod reads the Pod with a name from a YAML file, which may hold several documents. The name may be empty if the file
// holds one Pod.
func ReadPod(file, name string) (Workload, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return Workload{}, fmt.Errorf("cannot read the Pod: %w: correct --pod", err)
	}
	pods, err := decodePods(content)
	if err != nil {
		return Workload{}, fmt.Errorf("--pod %s: %w", file, err)
	}
	p, err := choosePod(pods, name)
	if err != nil {
		return Workload{}, fmt.Errorf("--pod %s: %w", file, err)
	}
	return p.workload(), nil
}

func decodePods(content []byte) ([]*pod, error) {
	var pods []*pod
	for d := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var doc yaml.Node
		if err := d.Decode(&doc); errors.Is(err, io.EOF) {
			return pods, nil
		} else if err != nil {
			return nil, err
		}
		var kind struct {
			Kind string `yaml:"kind"`
		}
		if doc.Decode(&kind) != nil || kind.Kind != "Pod" {
			continue
		}
		p := &pod{}
		if err := doc.Decode(p); err != nil {
			return nil, withoutTypes(err)
		}
		pods = append(pods, p)
	}
}

// withoutTypes removes Go's types from an error about a field of a Pod.
func withoutTypes(err error) error {
	var wrong *yaml.TypeError
	if !errors.As(err, &wrong) {
		return err
	}
	var lines []string
	for _, one := range wrong.Errors {
		line, _, _ := strings.Cut(one, " into ")
		lines = append(lines, strings.Replace(line, "cannot unmarshal", "invalid value for a field of a Pod:", 1))
	}
	return errors.New(strings.Join(lines, "; "))
}

func choosePod(pods []*pod, name string) (*pod, error) {
	names := make([]string, len(pods))
	for i, p := range pods {
		if names[i] = p.Metadata.Name; name == names[i] {
			return p, nil
		}
	}
	switch {
	case len(pods) == 0:
		return nil, errors.New("no object of kind Pod: use a file that contains the Pod")
	case len(pods) == 1 && name == "":
		return pods[0], nil
	case name == "":
		return nil, fmt.Errorf("%d Pods: choose one with --name: %s", len(pods), strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("no Pod named %s: correct --name: the file has %s", name, strings.Join(names, ", "))
}

func (p *pod) workload() Workload {
	w := Workload{
		Name:           p.Metadata.Name,
		Namespace:      p.Metadata.Namespace,
		Labels:         p.Metadata.Labels,
		Annotations:    p.Metadata.Annotations,
		ServiceAccount: p.Spec.ServiceAccountName,
		NodeName:       p.Spec.NodeName,
		IPs:            p.ips(),
	}
	for _, c := range p.Spec.Containers {
		if c.Name != proxyContainer {
			w.Containers = append(w.Containers, c.Name)
			w.addPorts(c)
		}
	}
	for _, c := range p.Spec.InitContainers {
		if c.Name != proxyContainer && c.RestartPolicy == "Always" {
			w.addPorts(c)
		}
	}
	w.WorkloadName, w.Owner = p.owner()
	return w
}

func (w *Workload) addPorts(c container) {
	for _, port := range c.Ports {
		w.Ports = append(w.Ports, Port{Name: port.Name, ContainerPort: port.ContainerPort, Protocol: cmp.Or(port.Protocol, "TCP")})
	}
}

func (p *pod) ips() []string {
	var ips []string
	for _, ip := range p.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	if len(ips) == 0 && p.Status.PodIP != "" {
		ips = []string{p.Status.PodIP}
	}
	return ips
}

// owner returns the workload that the Pod belongs to, and its URI.
func (p *pod) owner() (name, uri string) {
	ns := cmp.Or(p.Metadata.Namespace, "default")
	for _, ref := range p.Metadata.OwnerReferences {
		if ref.Controller || len(p.Metadata.OwnerReferences) == 1 {
			o := model.Owner{APIVersion: cmp.Or(ref.APIVersion, "apps/v1"), Kind: ref.Kind, Name: ref.Name}.Workload(p.Metadata.Labels)
			return o.Name, o.URI(ns)
		}
	}
	if p.Metadata.Name == "" {
		return "", ""
	}
	return p.Metadata.Name, model.Owner{APIVersion: "v1", Kind: "Pod", Name: p.Metadata.Name}.URI(ns)
}
