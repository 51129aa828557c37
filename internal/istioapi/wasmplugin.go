package istioapi

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"

	extensions "istio.io/api/extensions/v1alpha1"
	typev1beta1 "istio.io/api/type/v1beta1"
	extensionsv1alpha1 "istio.io/client-go/pkg/apis/extensions/v1alpha1"

	"github.com/moonsail/moonsail/internal/model"
)

var sha256Hex = regexp.MustCompile(`^[0-9a-f]{64}$`)

// WasmPlugin decodes a WasmPlugin; nil for one that is not about requests of
// sidecars, or whose module is not there.
func (d Decoder) WasmPlugin(o *extensionsv1alpha1.WasmPlugin) (*model.WasmPlugin, Problems) {
	c := d.start(model.KindWasmPlugin, &o.ObjectMeta)
	at, spec := path("spec"), &o.Spec
	selector, targeted := c.policyScope(spec)
	p := &model.WasmPlugin{
		Meta: c.meta, Selector: selector, PluginName: spec.PluginName, Phase: wasmPhase(spec.Phase), Priority: spec.Priority.GetValue(),
		FailOpen: spec.FailStrategy == extensions.FailStrategy_FAIL_OPEN, Reload: spec.FailStrategy == extensions.FailStrategy_FAIL_RELOAD,
	}
	p.File = c.wasmFile(at.f("url"), spec.Url)
	c.wasmSum(at.f("sha256"), spec.Sha256)
	if spec.PluginConfig != nil {
		text, err := json.Marshal(spec.PluginConfig.AsMap()) // in one order, without spaces
		if err != nil {
			c.errorf(at.f("pluginConfig"), "cannot be read: %v", err)
		}
		p.Config = string(text)
	}
	c.wasmEnv(at.f("vmConfig").f("env"), spec.VmConfig, p)
	c.wasmMatches(at.f("match"), spec.Match, p)
	if spec.VerificationKey != "" {
		c.warnf(at.f("verificationKey"), "has no effect")
	}
	if spec.Type == extensions.PluginType_NETWORK {
		c.warnf(at.f("type"), "filters of connections (NETWORK) have no effect in Moonsail yet; HTTP ones have")
		return nil, c.list
	}
	if targeted || p.File == "" {
		return nil, c.list
	}
	return p, c.list
}

func wasmPhase(p extensions.PluginPhase) model.WasmPhase {
	if p == extensions.PluginPhase_UNSPECIFIED_PHASE {
		return model.WasmUnspecified
	}
	return model.WasmPhase(p.String())
}

// wasmFile is the module's file, in the sidecar; empty: it is elsewhere, which is told.
func (c *conv) wasmFile(at path, text string) string {
	u, err := url.Parse(text)
	switch {
	case text == "":
		c.errorf(at, "is missing; name the module's file in the sidecar, such as file:///var/lib/wasm/filter.wasm")
	case err != nil:
		c.errorf(at, "%q is not an URL", text)
	case u.Scheme == "file" && (u.Host != "" || !strings.HasPrefix(u.Path, "/")):
		c.errorf(at, "%q does not name a file of the sidecar; write file:///path", text)
	case u.Scheme == "file":
		return u.Path
	case u.Scheme == "http" || u.Scheme == "https" || u.Scheme == "oci" || u.Scheme == "":
		c.warnf(at, "modules are not fetched yet, so the plugin has no effect; mount the module into the sidecar (annotations sidecar.istio.io/userVolume and userVolumeMount), and name it by file:///path")
	default:
		c.errorf(at, "%q cannot be fetched; use file:///path", text)
	}
	return ""
}

func (c *conv) wasmSum(at path, sum string) {
	switch {
	case sum == "":
	case !sha256Hex.MatchString(strings.ToLower(sum)):
		c.errorf(at, "%q is not a SHA-256 in hex, which has 64 digits", sum)
	default:
		c.add(SeverityInfo, at, "is not checked: a module that is a file of the sidecar is taken as it is")
	}
}

func (c *conv) wasmEnv(at path, vm *extensions.VmConfig, into *model.WasmPlugin) {
	seen := map[string]bool{}
	for i, e := range vm.GetEnv() {
		at := at.i(i)
		switch {
		case !variableName.MatchString(e.Name):
			c.errorf(at.f("name"), "%q is not the name of an environment variable", e.Name)
		case seen[e.Name]:
			c.errorf(at.f("name"), "%q is given twice; keep one", e.Name)
		case len(e.Value) > maxEnvironment:
			c.errorf(at.f("value"), "has %d characters; %d is the limit", len(e.Value), maxEnvironment)
		case e.ValueFrom == extensions.EnvValueSource_HOST && e.Value != "":
			c.errorf(at.f("value"), "cannot be combined with valueFrom HOST, which takes Envoy's own variable; remove one of the two")
		}
		seen[e.Name] = true
		into.Env = append(into.Env, model.WasmVariable{Name: e.Name, Value: e.Value, FromHost: e.ValueFrom == extensions.EnvValueSource_HOST})
	}
}

func (c *conv) wasmMatches(at path, list []*extensions.WasmPlugin_TrafficSelector, into *model.WasmPlugin) {
	for i, m := range list {
		out := model.WasmMatch{Sides: model.BothSides}
		switch m.Mode {
		case typev1beta1.WorkloadMode_CLIENT:
			out.Sides = model.SideClient
		case typev1beta1.WorkloadMode_SERVER:
			out.Sides = model.SideServer
		}
		for j, p := range m.Ports {
			c.checkPort(at.i(i).f("ports").i(j).f("number"), p.Number)
			out.Ports = append(out.Ports, p.Number)
		}
		into.Matches = append(into.Matches, out)
	}
}
