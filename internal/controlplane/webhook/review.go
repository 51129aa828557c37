package webhook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/analyze"
	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// compared are the kinds that objects are checked against.
var compared = []model.Kind{
	model.KindService, model.KindServiceEntry, model.KindPod, model.KindWorkloadEntry,
	model.KindVirtualService, model.KindDestinationRule, model.KindSidecar, model.KindEnvoyFilter,
	model.KindPeerAuthentication, model.KindAuthorizationPolicy, model.KindRequestAuthentication, model.KindMeshConfig, model.KindProxyConfig, model.KindWasmPlugin, model.KindGateway,
	model.KindKubernetesGateway, model.KindListenerSet, model.KindHTTPRoute, model.KindGRPCRoute, model.KindTLSRoute, model.KindTCPRoute, model.KindReferenceGrant, model.KindBackendTLSPolicy,
}

// maxWarnings bounds the warnings of one answer. The API server drops everything beyond 4 KB.
const maxWarnings = 20

// review checks the object of a request.
func (h *Handler) review(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	kind, ok := lookup(r.Kind)
	if !ok || r.Operation != admissionv1.Create && r.Operation != admissionv1.Update {
		return allow(r)
	}
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal(r.Object.Raw, &meta); err != nil {
		return refuse(r, fmt.Sprintf("object: %v", err))
	}
	if meta.DeletionTimestamp != nil {
		return allow(r) // a deletion must never be blocked: finalizers are removed by updates
	}
	if !h.concerns(kind, r.Object.Raw) {
		return allow(r)
	}
	out := h.Decoder.FromRaw(kind, r.Object.Raw)
	if out.OtherRevision {
		return allow(r) // that revision has its own webhook
	}
	if out.Problems.HasErrors() && kind.Group != gatewayapi.Group {
		response := refuse(r, complaint(out.Problems))
		response.Warnings = warnings(out.Problems, problem.SeverityWarning)
		return response
	}
	response := allow(r)
	response.Warnings = warnings(append(out.Problems, h.crossCheck(out.Object)...), problem.SeverityError, problem.SeverityWarning)
	return response
}

// concerns reports whether an object belongs to the mesh. The Gateway API has other implementations: a
// route is theirs if none of its parents is a Service or a Gateway of ours. For the same reason an object
// of that API only gets warnings, and its kinds without effect in the mesh are ignored.
func (h *Handler) concerns(kind config.Resource, raw []byte) bool {
	if kind.Group == gatewayapi.Group && !kind.Read {
		return false
	}
	if !kind.Model.IsKubernetesRoute() && kind.Model != model.KindListenerSet {
		return true
	}
	outline := gatewayapi.RefsOf(kind.Model, raw)
	snap := h.Snapshot()
	switch {
	case outline == nil:
		return true // it cannot be decoded, which is an error
	case outline.Gateway != nil:
		return snap.Get(outline.Gateway.Parent) != nil
	}
	return slices.ContainsFunc(outline.Route.Parents, func(p gatewayapi.ParentRef) bool {
		return p.IsOfMesh() || p.IsListener() && snap.Get(p.Key()) != nil
	})
}

// groupKubernetes has kinds that the webhook is not for: other controllers have Ingresses, too.
const groupKubernetes = "networking.k8s.io"

// lookup finds a kind among those that the mesh knows.
func lookup(k metav1.GroupVersionKind) (config.Resource, bool) {
	for _, r := range config.Resources() {
		if r.Group == k.Group && r.Kind == k.Kind && r.Custom && r.Group != groupKubernetes {
			return r, true
		}
	}
	return config.Resource{}, false
}

// compareWait is how long a review waits for its turn to compare its object with others.
const compareWait = time.Second

// crossCheck returns the problems between an object and the others, as warnings. It indexes all objects, which takes time in a
// large mesh. One review does this at a time. One that waits for too long is answered without these warnings, so that a
// large 'kubectl apply' does not take the CPU of the pipeline.
func (h *Handler) crossCheck(o model.Object) problem.List {
	if o == nil {
		return nil
	}
	h.prepare.Do(func() { h.comparing = make(chan struct{}, 1) })
	wait := time.NewTimer(compareWait)
	defer wait.Stop()
	select {
	case h.comparing <- struct{}{}:
		defer func() { <-h.comparing }()
	case <-wait.C:
		return nil
	}
	if m := o.Metadata(); m.Created.IsZero() {
		m.Created = time.Now() // it is younger than all others
	}
	snap := h.Snapshot()
	var others []model.Object
	for _, kind := range compared {
		for other := range snap.All(kind) {
			others = append(others, other)
		}
	}
	return analyze.CheckOne(o, others, h.Decoder.Domain)
}

// complaint lists the errors, each with its field.
func complaint(ps problem.List) string {
	var lines []string
	for _, p := range ps {
		if p.Severity == problem.SeverityError {
			lines = append(lines, line(p))
		}
	}
	return strings.Join(lines, "; ")
}

// warnings returns the problems of some severities.
func warnings(ps problem.List, of ...problem.Severity) []string {
	var out []string
	for _, p := range ps {
		if slices.Contains(of, p.Severity) && len(out) < maxWarnings {
			out = append(out, line(p))
		}
	}
	return out
}

func line(p problem.Problem) string {
	if p.Field == "" {
		return p.Coded()
	}
	return p.Field + ": " + p.Coded()
}
