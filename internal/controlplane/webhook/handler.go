// Package webhook has the admission webhooks. The validating one rejects Istio objects that cannot be used,
// before they are stored, with the checks of `moonsail analyze`. The mutating one adds a sidecar to Pods.
//
// An error in an object itself rejects it. A problem between objects is a warning, because the other object
// may come next.
//
// Start reading at Handler.ServeHTTP and Injector.ServeHTTP. bundle.go and trust.go make the API server
// trust the webhooks.
package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// Path is the path of reviews.
const Path = "/validate"

// maxBody bounds a review, in bytes: etcd accepts objects up to 1.5 MB, and an update has two.
const maxBody = 3 << 20

// Results, for metrics.
const (
	resultAllowed    = "allowed"
	resultRefused    = "refused"
	resultUnreadable = "unreadable"
)

// Handler answers reviews.
type Handler struct {
	Decoder  config.Decoder
	Snapshot func() *store.Snapshot // the other objects
	// RootNamespace is the namespace of the mesh's configuration.
	RootNamespace string
	Count         func(result string)
	Log           *slog.Logger
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if cause := recover(); cause != nil {
			h.Log.Error("panic in a review", "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
			h.unreadable(w, http.StatusInternalServerError, "review failed: see the control plane's log")
		}
	}()
	if r.URL.Path != Path {
		http.Error(w, "not found: send reviews to "+Path, http.StatusNotFound)
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		h.unreadable(w, http.StatusMethodNotAllowed, "method not allowed: send an AdmissionReview by POST")
		return
	}
	review, code, err := read(w, r)
	if err != nil {
		h.unreadable(w, code, err.Error())
		return
	}
	response := h.review(review.Request)
	h.Count(resultOf(response))
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: response}) // the caller is gone
}

func resultOf(r *admissionv1.AdmissionResponse) string {
	if r.Allowed {
		return resultAllowed
	}
	return resultRefused
}

func (h *Handler) unreadable(w http.ResponseWriter, code int, text string) {
	h.Count(resultUnreadable)
	http.Error(w, text, code)
}

// read reads a request's review, and returns the HTTP status of an error.
func read(w http.ResponseWriter, r *http.Request) (*admissionv1.AdmissionReview, int, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("body: more than %d bytes", maxBody)
	case err != nil:
		return nil, http.StatusBadRequest, fmt.Errorf("body: %w", err)
	}
	review := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(body, review); err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("body: not an AdmissionReview: %w", err)
	}
	if want := admissionv1.SchemeGroupVersion.String(); review.APIVersion != want || review.Kind != "AdmissionReview" {
		return nil, http.StatusBadRequest, fmt.Errorf("body: %q of %q: send an AdmissionReview of %s", review.Kind, review.APIVersion, want)
	}
	if review.Request == nil || review.Request.UID == "" {
		return nil, http.StatusBadRequest, errors.New("AdmissionReview: no request, or no uid in it")
	}
	return review, http.StatusOK, nil
}

// allow is an answer without remarks.
func allow(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: r.UID, Allowed: true}
}

func refuse(r *admissionv1.AdmissionRequest, text string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: r.UID, Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: text,
	}}
}
