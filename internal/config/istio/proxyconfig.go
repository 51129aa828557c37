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

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/schema"
	"github.com/moonsail/moonsail/internal/model"
)

const (
	maxThreads     = 1024 // the agent's limit, too
	maxEnvironment = 2048 // characters of a value
)

// AnnotationProxyConfig is a Pod's own ProxyConfig, which its sidecar reads.
const AnnotationProxyConfig = "proxy.istio.io/config"

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

// ProxyConfig decodes a ProxyConfig.
func ProxyConfig(in convert.Cluster, o *networkingv1beta1.ProxyConfig) (*model.ProxyConfig, problem.List) {
	c := meshConv{convert.Start(in, model.KindProxyConfig, &o.ObjectMeta)}
	at, spec := problem.Path("spec"), &o.Spec
	p := &model.ProxyConfig{Meta: c.Meta, Environment: spec.EnvironmentVariables}
	if spec.Selector != nil {
		p.Selector = c.Selector(at.Field("selector"), "matchLabels", spec.Selector.MatchLabels)
	}
	if n := spec.Concurrency; n != nil {
		if n.Value < 0 || n.Value > maxThreads {
			c.Errorf(code.InvalidNumber, at.Field("concurrency"), "%d is not a number of threads; use 0 (one for each core) to %d", n.Value, maxThreads)
		}
		p.Concurrency = &n.Value
	}
	c.environment(at.Field("environmentVariables"), spec.EnvironmentVariables)
	if p.ImageType = spec.GetImage().GetImageType(); p.ImageType != "" && !convert.IsLabel(p.ImageType) {
		c.Errorf(code.UnknownValue, at.Field("image").Field("imageType"), "%q cannot be part of an image's name; use default, debug or distroless", p.ImageType)
	}
	if p.Concurrency == nil && len(p.Environment) == 0 && p.ImageType == "" {
		c.Warnf(code.EmptyValue, at, "is empty; set at least one of concurrency, environmentVariables and image")
	}
	return p, c.Problems
}

func (c meshConv) environment(at problem.Path, env map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch {
		case !variableName.MatchString(name):
			c.Errorf(code.InvalidName, at.Key(name), "%q is not the name of an environment variable", name)
		case len(env[name]) > maxEnvironment:
			c.Errorf(code.InvalidText, at.Key(name), "has %d characters; %d is the limit", len(env[name]), maxEnvironment)
		case strings.ContainsRune(env[name], 0):
			c.Errorf(code.InvalidText, at.Key(name), "has a character of value 0, which no environment variable can have")
		}
	}
}

// proxyDefaults is the mesh's defaultConfig as JSON, for who adds sidecars.
func proxyDefaults(tree any) string {
	top, _ := tree.(map[string]any)
	settings, ok := top["defaultConfig"]
	if !ok || settings == nil {
		return ""
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return ""
	}
	return string(text)
}

// CheckProxyConfig warns of what a sidecar does not take, or not use, of its Pod's own ProxyConfig. The Pod is there
// all the same.
func CheckProxyConfig(c *convert.Converter, at problem.Path, text string) {
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(text), &n); err != nil {
		c.Warnf(code.InvalidYAML, at, "%s; %s", schema.TextMessage(err), noStart)
		return
	}
	tree, err := schema.Tree(&n)
	if err != nil {
		c.Warnf(code.Unreadable, at, "cannot be read: %v; %s", err, noStart)
		return
	}
	found, s := &problem.Report{Object: c.Object}, schema.OfMessage((&meshconfig.ProxyConfig{}).ProtoReflect().Descriptor())
	schema.Check(found, at, &n, s)
	for _, p := range found.Problems {
		if p.Code == code.UnknownField {
			c.Warnf(code.UnknownField, problem.Path(p.Field), "%s; it has no effect", p.Message)
			continue
		}
		c.Warnf(code.InvalidFormat, problem.Path(p.Field), "%s; %s", p.Message, noStart)
	}
	meshConv{c}.unreadPart(at, tree, s, model.ProxyConfigFields, model.TracingFields)
}

const noStart = "no sidecar starts with it"
