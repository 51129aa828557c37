package istio

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networkingv1beta1 "istio.io/client-go/pkg/apis/networking/v1beta1"

	"github.com/moonsail/moonsail/internal/model"
)

const (
	maxThreads     = 1024 // the agent's limit, too
	maxEnvironment = 2048 // characters of a value
)

// annotationProxyConfig is a Pod's own ProxyConfig, which its sidecar reads.
const annotationProxyConfig = "proxy.istio.io/config"

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

// ProxyConfig decodes a ProxyConfig.
func (d Decoder) ProxyConfig(o *networkingv1beta1.ProxyConfig) (*model.ProxyConfig, Problems) {
	c := d.start(model.KindProxyConfig, &o.ObjectMeta)
	at, spec := path("spec"), &o.Spec
	p := &model.ProxyConfig{Meta: c.meta, Environment: spec.EnvironmentVariables}
	if spec.Selector != nil {
		p.Selector = c.selector(at.f("selector"), "matchLabels", spec.Selector.MatchLabels)
	}
	if n := spec.Concurrency; n != nil {
		if n.Value < 0 || n.Value > maxThreads {
			c.errorf(at.f("concurrency"), "%d is no number of threads; use 0 (one a core) to %d", n.Value, maxThreads)
		}
		p.Concurrency = &n.Value
	}
	c.environment(at.f("environmentVariables"), spec.EnvironmentVariables)
	if p.ImageType = spec.GetImage().GetImageType(); p.ImageType != "" && !isLabel(p.ImageType) {
		c.errorf(at.f("image").f("imageType"), "%q cannot be part of an image's name; use default, debug or distroless", p.ImageType)
	}
	if p.Concurrency == nil && len(p.Environment) == 0 && p.ImageType == "" {
		c.warnf(at, "says nothing; give at least one of concurrency, environmentVariables and image")
	}
	return p, c.list
}

func (c *conv) environment(at path, env map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch {
		case !variableName.MatchString(name):
			c.errorf(at.k(name), "%q is not the name of an environment variable", name)
		case len(env[name]) > maxEnvironment:
			c.errorf(at.k(name), "has %d characters; %d is the limit", len(env[name]), maxEnvironment)
		case strings.ContainsRune(env[name], 0):
			c.errorf(at.k(name), "has a character of value 0, which no environment variable can have")
		}
	}
}

// proxyDefaults is the mesh's defaultConfig as JSON, for who adds sidecars.
func proxyDefaults(tree any) string {
	top, _ := tree.(map[string]any)
	said, ok := top["defaultConfig"]
	if !ok || said == nil {
		return ""
	}
	text, err := json.Marshal(said)
	if err != nil {
		return ""
	}
	return string(text)
}

// proxyConfigText warns of what a sidecar does not take, or not use, of its Pod's own ProxyConfig. The Pod is there
// all the same.
func (c *conv) proxyConfigText(at path, text string) {
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(text), &n); err != nil {
		c.warnf(at, "%s; %s", SyntaxMessage(err), noStart)
		return
	}
	tree, err := (&treeBuilder{}).value(&n, 0)
	if err != nil {
		c.warnf(at, "cannot be read: %v; %s", err, noStart)
		return
	}
	found, s := &report{object: c.object}, protoShape((&meshconfig.ProxyConfig{}).ProtoReflect().Descriptor())
	checker{found}.value(at, &n, s)
	for _, p := range found.list {
		c.warnf(path(p.Field), "%s; %s", p.Message, noStart)
	}
	c.unreadPart(at, tree, s, model.ProxyConfigFields, model.TracingFields)
}

const noStart = "no sidecar starts with it"
