package meshtest

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/model"
)

// Proxy is a sidecar or router of a test, in the notation of its file.
type Proxy struct {
	Type           model.ProxyType // "": sidecar
	Name           string
	Namespace      string
	IP             string
	OtherIPs       []string `yaml:"otherIPs"` // of the other IP family
	Labels         map[string]string
	ServiceAccount string             `yaml:"serviceAccount"`
	Interception   model.Interception // "": REDIRECT
	Locality       string
	Ports          map[string]uint32 // named container ports
	Identity       bool              // it has certificates
	Files          bool              // its agent reads files with certificates
	Uncounted      bool              // it has no statistics of responses by code
	DNSCapture     bool              `yaml:"dnsCapture"` // its applications use a DNS proxy of the mesh
	HTTP10         bool              `yaml:"http10"`     // it accepts HTTP/1.0
	Connections    map[string]any    // its own connectionSettings
	Topology       struct {          // of a router: the proxies in front of it, as it states them
		Set            bool
		TrustedProxies uint32 `yaml:"trustedProxies"`
	}
}

// Model returns the proxy as it would connect.
func (p *Proxy) Model(domain string) *model.Proxy {
	dns := p.Namespace + ".svc." + domain
	return &model.Proxy{
		ID:             fmt.Sprintf("%s~%s~%s.%s~%s", p.Type, p.IP, p.Name, p.Namespace, dns),
		Type:           p.Type,
		Name:           p.Name,
		Namespace:      p.Namespace,
		IPs:            append([]string{p.IP}, p.OtherIPs...),
		Labels:         p.Labels,
		ServiceAccount: p.ServiceAccount,
		Cluster:        p.Labels["app"] + "." + p.Namespace,
		ClusterID:      "Kubernetes",
		Locality:       model.ParseLocality(p.Locality),
		DNSDomain:      dns,
		Interception:   p.Interception,
		NamedPorts:     p.Ports,
		Identity:       p.Identity,
		Files:          p.Files,
		Uncounted:      p.Uncounted,
		DNSCapture:     p.DNSCapture,
		HTTP10:         p.HTTP10,
		Connections:    model.ProxyConnectionsOf(p.Connections),
		Topology:       model.Topology{Set: p.Topology.Set, TrustedProxies: p.Topology.TrustedProxies},
	}
}

// addProxies reads one proxy or a list of them.
func (f *File) addProxies(data []byte) error {
	var n yaml.Node
	if err := yaml.Unmarshal(data, &n); err != nil {
		return err
	}
	if len(n.Content) > 0 && n.Content[0].Kind == yaml.SequenceNode {
		if err := strict(data, &f.Proxies); err != nil {
			return err
		}
	} else {
		p := &Proxy{}
		if err := strict(data, p); err != nil {
			return err
		}
		f.Proxies = []*Proxy{p}
	}
	for i, p := range f.Proxies {
		p.setDefaults(i)
	}
	return nil
}

func (p *Proxy) setDefaults(i int) {
	set := func(to *string, v string) {
		if *to == "" {
			*to = v
		}
	}
	set((*string)(&p.Type), string(model.ProxySidecar))
	set(&p.Name, "client")
	set(&p.Namespace, "default")
	set(&p.IP, fmt.Sprintf("10.99.0.%d", i+1))
	set(&p.ServiceAccount, "default")
	set((*string)(&p.Interception), string(model.InterceptRedirect))
}

// proxy returns a proxy by name; without a name the first one.
func (f *File) proxy(name string) (*Proxy, error) {
	for _, p := range f.Proxies {
		if name == "" || p.Name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no proxy is named %q", name)
}

// CallsOf returns the calls that a proxy makes or receives.
func (f *File) CallsOf(p *Proxy) []Case {
	var out []Case
	for _, c := range f.Calls {
		if owner, err := f.proxy(c.Proxy); err == nil && owner == p {
			out = append(out, c)
		}
	}
	return out
}
