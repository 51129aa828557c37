package inject

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/template"

	meshconfig "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/intercept"
)

// Policies for Pods without a label or annotation.
const (
	PolicyEnabled  = "enabled"
	PolicyDisabled = "disabled"
)

// SidecarTemplate is the name of the built-in template. A configuration may replace it.
const SidecarTemplate = "sidecar"

// Config determines what is injected, and where. The first fields are those of Istio's ConfigMap
// istio-sidecar-injector.
type Config struct {
	Policy               string                 `json:"policy,omitempty"`
	DefaultTemplates     []string               `json:"defaultTemplates,omitempty"`
	Templates            map[string]string      `json:"templates,omitempty"` // Go templates of Pods
	Aliases              map[string][]string    `json:"aliases,omitempty"`
	NeverInjectSelector  []metav1.LabelSelector `json:"neverInjectSelector,omitempty"`
	AlwaysInjectSelector []metav1.LabelSelector `json:"alwaysInjectSelector,omitempty"`
	InjectedAnnotations  map[string]string      `json:"injectedAnnotations,omitempty"`
	Values               map[string]any         `json:"values,omitempty"` // for templates, as .Values

	Image              string                      `json:"image,omitempty"`
	ImagePullPolicy    corev1.PullPolicy           `json:"imagePullPolicy,omitempty"`
	ImagePullSecrets   []string                    `json:"imagePullSecrets,omitempty"`
	Revision           string                      `json:"revision,omitempty"`
	XDSAddress         string                      `json:"xdsAddress,omitempty"`
	XDSPlaintext       bool                        `json:"xdsPlaintext,omitempty"`
	ClusterID          string                      `json:"clusterID,omitempty"`
	MeshID             string                      `json:"meshID,omitempty"`
	Network            string                      `json:"network,omitempty"`
	Domain             string                      `json:"domain,omitempty"`
	TrustDomain        string                      `json:"trustDomain,omitempty"`
	NativeSidecar      bool                        `json:"nativeSidecar"`
	HoldApplication    bool                        `json:"holdApplicationUntilProxyStarts,omitempty"`
	HoldUntilDrained   bool                        `json:"holdApplicationUntilDrained"` // until every proxy has ACKed that it ends
	RewriteProbes      bool                        `json:"rewriteAppHTTPProbers"`
	MergeMetrics       bool                        `json:"enablePrometheusMerge"`
	ExcludedNamespaces []string                    `json:"excludedNamespaces,omitempty"`
	Resources          corev1.ResourceRequirements `json:"resources,omitempty"`
	CNI                CNI                         `json:"cni,omitzero"`
	CAAddress          string                      `json:"caAddress,omitempty"` // of workloads, if it is not the control plane
	WorkloadAPI        WorkloadAPI                 `json:"workloadAPI,omitzero"`
	// ProxyConfig is the base, and ProxyConfigs those of the mesh; nil: none. They come from the mesh's configuration,
	// not from the file.
	ProxyConfig  *meshconfig.ProxyConfig `json:"-"`
	ProxyConfigs *model.ProxyConfigs     `json:"-"`

	// FileNamespace is the namespace of objects in files that name none.
	FileNamespace string `json:"-"`

	// HookKey returns the unguessable end of the path of an application's hook at the agent; nil: a random one.
	HookKey func() string `json:"-"`

	parsed       map[string]*template.Template
	intercepting map[string]string // see interceptionValues
	never        []labels.Selector
	always       []labels.Selector
}

// CNI describes the CNI plugin that sets the rules of interception.
type CNI struct {
	// Enabled means that a plugin sets them, Moonsail's or Istio's. Sidecars then need no privileges, and pass the Pod Security Standard
	// restricted, except in mode TPROXY. values.pilot.cni.enabled has the same effect.
	Enabled bool `json:"enabled,omitempty"`
}

// WorkloadAPI locates the SPIFFE Workload API, which gives sidecars their certificates.
type WorkloadAPI struct {
	Driver string `json:"driver,omitempty"` // the CSI driver that mounts its socket, for example csi.spiffe.io; empty: none
	Socket string `json:"socket,omitempty"` // the name of the socket; empty: "socket"
}

// cniInValues reports whether Istio's values enable a CNI plugin.
func (c *Config) cniInValues() bool {
	pilot, _ := c.Values["pilot"].(map[string]any)
	plugin, _ := pilot["cni"].(map[string]any)
	enabled, _ := plugin["enabled"].(bool)
	return enabled
}

// Default returns the defaults of a configuration.
func Default() *Config {
	quantity := resource.MustParse
	return &Config{
		Policy: PolicyEnabled, DefaultTemplates: []string{SidecarTemplate},
		Image: "moonsail", XDSAddress: "istiod.istio-system.svc:15012",
		ClusterID: "Kubernetes", Domain: "cluster.local", TrustDomain: "cluster.local",
		NativeSidecar: true, HoldUntilDrained: true, RewriteProbes: true, MergeMetrics: true,
		ExcludedNamespaces: []string{"kube-system", "kube-public", "kube-node-lease", "local-path-storage"},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: quantity("100m"), corev1.ResourceMemory: quantity("128Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: quantity("2"), corev1.ResourceMemory: quantity("1Gi")},
		},
		ProxyConfig: &meshconfig.ProxyConfig{},
	}
}

// Load decodes a configuration over the defaults. An unknown field is an error.
func Load(text []byte) (*Config, error) {
	c := Default()
	var given struct {
		Resources *corev1.ResourceRequirements `json:"resources"`
	}
	if yaml.Unmarshal(text, &given) == nil && given.Resources != nil {
		c.Resources = corev1.ResourceRequirements{} // a configuration replaces all resources
	}
	if err := yaml.UnmarshalStrict(text, c); err != nil {
		return nil, fmt.Errorf("configuration of injection: %s", strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: json: "))
	}
	return c, c.Prepare()
}

// Prepare checks a configuration and parses its templates. Call it before the first injection and after changes.
func (c *Config) Prepare() error {
	if c.Policy != PolicyEnabled && c.Policy != PolicyDisabled {
		return fmt.Errorf("policy: invalid value %q: use %s or %s", c.Policy, PolicyEnabled, PolicyDisabled)
	}
	if c.Image == "" || c.XDSAddress == "" {
		return errors.New("image and xdsAddress: both must be set")
	}
	c.CNI.Enabled = c.CNI.Enabled || c.cniInValues()
	c.parsed = map[string]*template.Template{}
	for name, text := range c.Templates {
		t, err := template.New(name).Funcs(functions).Parse(text)
		if err != nil {
			return fmt.Errorf("templates[%s]: %w", name, err)
		}
		c.parsed[name] = t
	}
	if err := c.checkResources(); err != nil {
		return err
	}
	c.intercepting = c.interceptionValues()
	if _, err := intercept.Default().Annotated(c.intercepting).Parse(); err != nil {
		return fmt.Errorf("values.global.proxy, for %w", err)
	}
	var err error
	if c.never, err = selectors("neverInjectSelector", c.NeverInjectSelector); err != nil {
		return err
	}
	c.always, err = selectors("alwaysInjectSelector", c.AlwaysInjectSelector)
	return err
}

// checkResources finds requests that exceed the limit. The API server would refuse each Pod with a sidecar.
func (c *Config) checkResources() error {
	for name, request := range c.Resources.Requests {
		if limit, ok := c.Resources.Limits[name]; ok && request.Cmp(limit) > 0 {
			return fmt.Errorf("resources.requests.%s: %s exceeds the limit of %s: raise resources.limits.%s, too (the chart merges global.proxy.resources with its defaults)",
				name, request.String(), limit.String(), name)
		}
	}
	return nil
}

func selectors(field string, from []metav1.LabelSelector) ([]labels.Selector, error) {
	var out []labels.Selector
	for i := range from {
		s, err := metav1.LabelSelectorAsSelector(&from[i])
		if err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", field, i, err)
		}
		if !s.Empty() {
			out = append(out, s)
		}
	}
	return out, nil
}

// templatesOf returns the names of a Pod's templates, with aliases resolved.
func (c *Config) templatesOf(pod *corev1.Pod) []string {
	names := c.DefaultTemplates
	if a, ok := pod.Annotations[annotationTemplates]; ok {
		names = nil
		for n := range strings.SplitSeq(a, ",") {
			names = append(names, strings.TrimSpace(n))
		}
	}
	var out []string
	for _, n := range names {
		if of, ok := c.Aliases[n]; ok {
			out = append(out, of...)
		} else {
			out = append(out, n)
		}
	}
	return out
}

// interception returns the settings of a Pod's interception.
func (c *Config) interception(pod *corev1.Pod, pc *meshconfig.ProxyConfig) (intercept.Settings, error) {
	s := intercept.Default().Annotated(c.intercepting)
	s.Mode = pc.GetInterceptionMode().String()
	if p := c.ProxyConfigs; p != nil {
		setPort(&s.OutboundPort, p.OutboundPort)
		setPort(&s.InboundPort, p.InboundPort)
	}
	s = s.Annotated(pod.Annotations)
	_, err := s.Parse()
	return s, err
}

// meshInterception maps settings of interception in Istio's values global.proxy to the annotations of Pods that precede them.
var meshInterception = map[string]string{
	"includeIPRanges": "includeOutboundIPRanges", "excludeIPRanges": "excludeOutboundIPRanges",
	"includeInboundPorts": "includeInboundPorts", "excludeInboundPorts": "excludeInboundPorts",
	"includeOutboundPorts": "includeOutboundPorts", "excludeOutboundPorts": "excludeOutboundPorts",
}

// interceptionValues returns the settings of Istio's values for all Pods, by their annotations.
func (c *Config) interceptionValues() map[string]string {
	global, _ := c.Values["global"].(map[string]any)
	proxy, _ := global["proxy"].(map[string]any)
	out := map[string]string{}
	for name, annotation := range meshInterception {
		if v, ok := proxy[name]; ok && v != nil {
			out["traffic.sidecar.istio.io/"+annotation] = fmt.Sprint(v)
		}
	}
	return out
}

// setPort sets a port, unless it is 0.
func setPort(to *string, port uint32) {
	if port != 0 {
		*to = strconv.Itoa(int(port))
	}
}
