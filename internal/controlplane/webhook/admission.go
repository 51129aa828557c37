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
)

// maxBody bounds a review, in bytes: etcd accepts objects up to 1.5 MB, and an update has two.
const maxBody = 3 << 20

// Results, for metrics.
const (
	resultAllowed    = "allowed"
	resultRefused    = "refused"
	resultUnreadable = "unreadable"
	resultLimited    = "limited" // there were too many at once
)

// admission is the HTTP side of a webhook.
type admission struct {
	name  string // in log lines and errors
	count func(result string)
	log   *slog.Logger
}

// decide answers a review. The result is for metrics.
type decide func(*admissionv1.AdmissionRequest) (response *admissionv1.AdmissionResponse, result string)

// serve reads a review, and writes the answer of the function that find returns for the request's path.
func (a admission) serve(w http.ResponseWriter, r *http.Request, find func(path string) (decide, error)) {
	defer func() {
		if cause := recover(); cause != nil {
			a.log.Error("panic in a webhook", "webhook", a.name, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
			a.unreadable(w, http.StatusInternalServerError, a.name+" failed: see the control plane's log")
		}
	}()
	answer, err := find(r.URL.Path)
	if err != nil {
		a.unreadable(w, http.StatusNotFound, err.Error())
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		a.unreadable(w, http.StatusMethodNotAllowed, "method not allowed: send an AdmissionReview by POST")
		return
	}
	review, code, err := read(w, r)
	if err != nil {
		a.unreadable(w, code, err.Error())
		return
	}
	response, result := answer(review.Request)
	a.count(result)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: response}) // the caller is gone
}

func (a admission) unreadable(w http.ResponseWriter, code int, text string) {
	a.count(resultUnreadable)
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
