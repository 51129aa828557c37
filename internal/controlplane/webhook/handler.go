// Package webhook has the admission webhooks. The validating one rejects Istio objects that cannot be used,
// before they are stored, with the checks of `moonsail analyze`. The mutating one adds a sidecar to Pods.
//
// An error in an object itself rejects it. A problem between objects is a warning, because the other object
// may come next.
//
// Start reading at admission.serve, which both share, then Handler.review and Injector.review. bundle.go and
// trust.go make the API server trust the webhooks.
package webhook

import (
	"errors"
	"log/slog"
	"net/http"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// Path is the path of reviews.
const Path = "/validate"

// Handler answers reviews.
type Handler struct {
	Decoder  config.Decoder
	Snapshot func() *store.Snapshot // the other objects
	// RootNamespace is the namespace of the mesh's configuration.
	RootNamespace string
	Count         func(result string)
	Log           *slog.Logger

	prepare   sync.Once
	comparing chan struct{} // holds an element while a review compares its object with others; see crossCheck
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	admission{name: "review", count: h.Count, log: h.Log}.serve(w, r, func(path string) (decide, error) {
		if path != Path {
			return nil, errors.New("not found: send reviews to " + Path)
		}
		return h.decide, nil
	})
}

func (h *Handler) decide(r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, string) {
	response := h.review(r)
	return response, resultOf(response)
}

func resultOf(r *admissionv1.AdmissionResponse) string {
	if r.Allowed {
		return resultAllowed
	}
	return resultRefused
}
