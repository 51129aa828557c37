package istio

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"

	extensions "istio.io/api/extensions/v1alpha1"
	typev1beta1 "istio.io/api/type/v1beta1"
	extensionsv1alpha1 "istio.io/client-go/pkg/apis/extensions/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

var sha256Hex = regexp.MustCompile(`^[0-9a-f]{64}$`)

// WasmPlugin decodes a WasmPlugin. It returns nil if the plugin can select no workload, or names no module.
func WasmPlugin(in convert.Cluster, o *extensionsv1alpha1.WasmPlugin) (*model.WasmPlugin, problem.List) {
	c := pluginConv{convert.Start(in, model.KindWasmPlugin, &o.ObjectMeta)}
	at, spec := problem.Path("spec"), &o.Spec
	selector, targets := policyConv(c).policyScope(spec)
	p := &model.WasmPlugin{
		Meta: c.Meta, Selector: selector, Targets: targets, Network: spec.Type == extensions.PluginType_NETWORK, PluginName: spec.PluginName, Phase: wasmPhase(spec.Phase), Priority: spec.Priority.GetValue(),
		FailOpen: spec.FailStrategy == extensions.FailStrategy_FAIL_OPEN, Reload: spec.FailStrategy == extensions.FailStrategy_FAIL_RELOAD,
	}
	c.wasmPlace(at.Field("url"), spec.Url, p)
	c.wasmSum(at.Field("sha256"), spec.Sha256, p)
	c.wasmPull(at, spec, p)
	if spec.PluginConfig != nil {
		text, err := json.Marshal(spec.PluginConfig.AsMap()) // in one order, without spaces
		if err != nil {
			c.Errorf(code.Unreadable, at.Field("pluginConfig"), "cannot be read: %v", err)
		}
		p.Config = string(text)
	}
	c.wasmEnv(at.Field("vmConfig").Field("env"), spec.VmConfig, p)
	c.wasmMatches(at.Field("match"), spec.Match, p)
	if spec.VerificationKey != "" {
		c.Warnf(code.NoEffect, at.Field("verificationKey"), "has no effect, as in Istio, which does not verify signatures; pin the module with sha256")
	}
	if len(model.Selectors(p)) == 0 || p.File == "" && p.Module.URL == "" {
		return nil, c.Problems
	}
	return p, c.Problems
}

func wasmPhase(p extensions.PluginPhase) model.WasmPhase {
	if p == extensions.PluginPhase_UNSPECIFIED_PHASE {
		return model.WasmUnspecified
	}
	return model.WasmPhase(p.String())
}

// wasmPlace is where the module is: a file of the sidecar, or what its agent fetches. Without a
// scheme it is an image, as in Istio.
func (c pluginConv) wasmPlace(at problem.Path, text string, into *model.WasmPlugin) {
	u, err := url.Parse(text)
	if err == nil && u.Scheme == "" || isHostPort(text) {
		u, err = url.Parse("oci://" + text)
	}
	switch {
	case text == "":
		c.Errorf(code.MissingField, at, "is missing; name the module, such as https://example.com/filter.wasm, oci://example.com/filter:v1, or file:///var/lib/wasm/filter.wasm for a file of the sidecar")
	case err != nil:
		c.Errorf(code.InvalidFormat, at, "%q is not an URL", text)
	case u.Scheme == "file" && (u.Host != "" || !strings.HasPrefix(u.Path, "/")):
		c.Errorf(code.InvalidFormat, at, "%q does not name a file of the sidecar; write file:///path", text)
	case u.Scheme == "file":
		into.File = u.Path
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "oci":
		c.Errorf(code.InvalidFormat, at, "%q cannot be fetched; use http://, https://, oci:// or file:///path", text)
	case u.Host == "" || u.User != nil:
		c.Errorf(code.InvalidFormat, at, "%q has more or less than a host before the path; write %s://host/path", u.Redacted(), u.Scheme)
	case u.Scheme == "oci":
		c.wasmImage(at, u, into)
	default:
		into.Module.URL = u.String()
	}
}

// isHostPort reports whether the text is an image such as "example.com:5000/filter:v1", whose host looks like a scheme.
func isHostPort(text string) bool {
	host, rest, ok := strings.Cut(text, ":")
	return ok && strings.Contains(host, ".") && !strings.Contains(host, "/") && !strings.HasPrefix(rest, "//") || strings.HasPrefix(text, "localhost:")
}

// imagePath is a repository, then a tag or a digest, or both.
var imagePath = regexp.MustCompile(`^/[a-z0-9]+([._/-]+[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[0-9a-f]{64})?$`)

// wasmImage is an image of a registry. An image whose tag may move is looked up again for each
// version of the object, as in Istio.
func (c pluginConv) wasmImage(at problem.Path, u *url.URL, into *model.WasmPlugin) {
	if !imagePath.MatchString(u.Path) || u.RawQuery != "" || u.Fragment != "" {
		c.Errorf(code.InvalidFormat, at, "%q is not an image; write oci://host/repository:tag, or @sha256: and the digest for the tag", u.String())
		return
	}
	into.Module.URL = u.String()
	if _, digest, ok := strings.Cut(u.Path, "@sha256:"); ok {
		into.Module.SHA256 = digest
		return
	}
	name := u.Path[strings.LastIndex(u.Path, "/"):]
	into.Module.Always = !strings.Contains(name, ":") || strings.HasSuffix(name, ":latest")
}

// wasmSum takes the checksum, which must be the digest where the image has one.
func (c pluginConv) wasmSum(at problem.Path, sum string, into *model.WasmPlugin) {
	sum = strings.ToLower(sum)
	switch {
	case sum == "":
	case !sha256Hex.MatchString(sum):
		c.Errorf(code.InvalidFormat, at, "%q is not a SHA-256 in hex, which has 64 digits", sum)
	case into.File != "":
		c.Add(code.NoEffect, problem.SeverityInfo, at, "is not checked: a module that is a file of the sidecar is taken as it is")
	case into.Module.SHA256 != "" && into.Module.SHA256 != sum:
		c.Errorf(code.InvalidFormat, at, "is not the digest that the url has; leave one of the two out")
	case into.Module.URL != "":
		into.Module.SHA256 = sum
	}
}

// wasmPull is when the module is fetched, and by what right.
func (c pluginConv) wasmPull(at problem.Path, spec *extensions.WasmPlugin, into *model.WasmPlugin) {
	m := &into.Module
	switch spec.ImagePullPolicy {
	case extensions.PullPolicy_Always:
		m.Always = m.URL != ""
	case extensions.PullPolicy_IfNotPresent:
		m.Always = false
	}
	switch name := spec.ImagePullSecret; {
	case name == "":
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		c.Errorf(code.InvalidName, at.Field("imagePullSecret"), "%q is not the name of a Secret", name)
	case !strings.HasPrefix(m.URL, "oci://"):
		c.Warnf(code.NoEffect, at.Field("imagePullSecret"), "has no effect: it is for images of registries")
	default:
		m.PullSecret = name
	}
}

func (c pluginConv) wasmEnv(at problem.Path, vm *extensions.VmConfig, into *model.WasmPlugin) {
	seen := map[string]bool{}
	for i, e := range vm.GetEnv() {
		at := at.Index(i)
		switch {
		case !variableName.MatchString(e.Name):
			c.Errorf(code.InvalidName, at.Field("name"), "%q is not the name of an environment variable", e.Name)
		case seen[e.Name]:
			c.Errorf(code.ListedTwice, at.Field("name"), "%q is set twice; keep one", e.Name)
		case len(e.Value) > maxEnvironment:
			c.Errorf(code.InvalidText, at.Field("value"), "has %d characters; %d is the limit", len(e.Value), maxEnvironment)
		case e.ValueFrom == extensions.EnvValueSource_HOST && e.Value != "":
			c.Errorf(code.ExclusiveFields, at.Field("value"), "cannot be combined with valueFrom HOST, which takes Envoy's own variable; remove one of the two")
		}
		seen[e.Name] = true
		into.Env = append(into.Env, model.WasmVariable{Name: e.Name, Value: e.Value, FromHost: e.ValueFrom == extensions.EnvValueSource_HOST})
	}
}

func (c pluginConv) wasmMatches(at problem.Path, list []*extensions.WasmPlugin_TrafficSelector, into *model.WasmPlugin) {
	for i, m := range list {
		out := model.WasmMatch{Sides: model.BothSides}
		switch m.Mode {
		case typev1beta1.WorkloadMode_CLIENT:
			out.Sides = model.SideClient
		case typev1beta1.WorkloadMode_SERVER:
			out.Sides = model.SideServer
		}
		for j, p := range m.Ports {
			c.CheckPort(at.Index(i).Field("ports").Index(j).Field("number"), p.Number)
			out.Ports = append(out.Ports, p.Number)
		}
		into.Matches = append(into.Matches, out)
	}
}
