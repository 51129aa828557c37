package webhook

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
)

// InjectPath is the path for Pods that may get a sidecar. As in Istio, /cluster/ID and /net/NETWORK may
// follow it.
const InjectPath = "/inject"

// Results of injection, for metrics.
const (
	resultInjected = "injected"
	resultSkipped  = "skipped"
)

// Injector answers reviews of Pods with a patch that adds a sidecar.
type Injector struct {
	Config *inject.Config
	// ProxyConfigs returns the mesh's settings for sidecars; nil: none.
	ProxyConfigs func() *model.ProxyConfigs
	Count        func(result string)
	Log          *slog.Logger
}

// ServeHTTP implements http.Handler.
func (i *Injector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	admission{name: "injection", count: i.Count, log: i.Log}.serve(w, r, func(path string) (decide, error) {
		config, err := i.configFor(path)
		return func(r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, string) {
			return i.review(config, r)
		}, err
	})
}

// configFor returns the configuration with the settings of a path.
func (i *Injector) configFor(path string) (*inject.Config, error) {
	words := strings.Split(strings.Trim(strings.TrimPrefix(path, InjectPath), "/"), "/")
	config := *i.Config
	if i.ProxyConfigs != nil {
		config.ProxyConfigs = i.ProxyConfigs()
	}
	if len(words) == 1 && words[0] == "" {
		return &config, nil
	}
	for n := 0; n < len(words); n += 2 {
		into, ok := map[string]*string{"cluster": &config.ClusterID, "net": &config.Network}[words[n]]
		if !ok || n+1 == len(words) || words[n+1] == "" {
			return nil, fmt.Errorf("unknown path: use %s or %s/cluster/ID/net/NETWORK", InjectPath, InjectPath)
		}
		*into = words[n+1]
	}
	return &config, nil
}

// review decides about a Pod and patches it.
func (i *Injector) review(c *inject.Config, r *admissionv1.AdmissionRequest) (response *admissionv1.AdmissionResponse, result string) {
	if r.Kind.Group != "" || r.Kind.Kind != "Pod" || r.Operation != admissionv1.Create || r.SubResource != "" {
		return allow(r), resultSkipped
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(r.Object.Raw, pod); err != nil {
		return refuse(r, fmt.Sprintf("Pod: %v", err)), resultRefused
	}
	pod.ManagedFields = nil
	name := cmp.Or(pod.Name, pod.GenerateName)
	// The API server sends the namespace beside the object.
	own := pod.Namespace
	pod.Namespace = r.Namespace
	if ok, why := c.Decide(pod); !ok {
		i.Log.Debug("pod without sidecar", "pod", name, "namespace", r.Namespace, "why", why)
		return allow(r), resultSkipped
	}
	injected, err := c.Inject(pod, inject.OwnerOf(pod))
	if err != nil {
		i.Log.Warn("injection failed", "pod", name, "namespace", r.Namespace, "error", err)
		return refuse(r, fmt.Sprintf("sidecar not added: %v", err)), resultRefused
	}
	pod.Namespace, injected.Namespace = own, own
	patch, err := inject.Patch(pod, injected)
	if err != nil {
		return refuse(r, fmt.Sprintf("sidecar not added: %v", err)), resultRefused
	}
	response = allow(r)
	if patch != nil {
		kind := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = patch, &kind
	}
	i.Log.Info("sidecar added to pod", "pod", name, "namespace", r.Namespace)
	return response, resultInjected
}

// Routes serves both webhooks on one port. injector may be nil.
func Routes(validating *Handler, injector *Injector) http.Handler {
	if injector == nil {
		return validating
	}
	mux := http.NewServeMux()
	mux.Handle("/", validating)
	for _, path := range []string{InjectPath, InjectPath + "/"} {
		mux.Handle(path, injector)
	}
	return mux
}
