// Package webhook is a validating webhook: it tells an API server which of Istio's objects
// cannot be used, before they are stored, with the checks of `moonsail analyze`.
//
// What is wrong with an object by itself refuses it. What is wrong between it and others is
// a warning: the others may come next.
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

// Path is where reviews go.
const Path = "/validate"

// maxBody bounds a review, in bytes: etcd takes objects up to 1.5 MB, and an update has two.
const maxBody = 3 << 20

// Results, as they are counted.
const (
	resultAllowed    = "allowed"
	resultRefused    = "refused"
	resultUnreadable = "unreadable"
)

// Handler answers reviews.
type Handler struct {
	Decoder  config.Decoder
	Snapshot func() *store.Snapshot // what there is beside the object
	// RootNamespace has the mesh's configuration.
	RootNamespace string
	Count         func(result string)
	Log           *slog.Logger
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if cause := recover(); cause != nil {
			h.Log.Error("a review ended in a panic", "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
			h.unreadable(w, http.StatusInternalServerError, "the review failed; see the control plane's log")
		}
	}()
	if r.URL.Path != Path {
		http.Error(w, "reviews are at "+Path, http.StatusNotFound)
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		h.unreadable(w, http.StatusMethodNotAllowed, "an AdmissionReview comes by POST")
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
	_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: response}) // nobody is left to tell
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

// read takes a request's review, or says what is wrong with the request.
func read(w http.ResponseWriter, r *http.Request) (*admissionv1.AdmissionReview, int, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the body has more than %d bytes", maxBody)
	case err != nil:
		return nil, http.StatusBadRequest, fmt.Errorf("the body cannot be read: %w", err)
	}
	review := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(body, review); err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("the body is no AdmissionReview: %w", err)
	}
	if want := admissionv1.SchemeGroupVersion.String(); review.APIVersion != want || review.Kind != "AdmissionReview" {
		return nil, http.StatusBadRequest, fmt.Errorf("the body is %q of %q; an AdmissionReview of %s is asked for", review.Kind, review.APIVersion, want)
	}
	if review.Request == nil || review.Request.UID == "" {
		return nil, http.StatusBadRequest, errors.New("the AdmissionReview has no request, or its request has no uid")
	}
	return review, http.StatusOK, nil
}

// allow is the answer to what there is nothing to say about.
func allow(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: r.UID, Allowed: true}
}

func refuse(r *admissionv1.AdmissionRequest, text string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: r.UID, Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: text,
	}}
}
