package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/sidecar/cni"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
)

// readTimeout bounds the read of a Pod that the copy does not have yet.
const readTimeout = 10 * time.Second

// staticHash is the annotation of a static Pod's object with the UID that the kubelet uses.
const staticHash = "kubernetes.io/config.hash"

// answer decides whether a Pod's connections are redirected.
func (a *Agent) answer(ctx context.Context, asked cni.Pod) cni.Answer {
	pod, err := a.pod(ctx, asked)
	if err != nil {
		a.metrics.pods.WithLabelValues("failed").Inc()
		a.Log.Warn("cannot read Pod, CNI ADD will be retried", "pod", asked.String(), "error", err)
		return cni.Answer{Problem: err.Error()}
	}
	r, err := inject.RedirectionOf(pod)
	if err != nil {
		a.metrics.pods.WithLabelValues("failed").Inc()
		a.Log.Warn("a Pod cannot start: its annotations are invalid", "pod", asked.String(), "error", err)
		return cni.Answer{Problem: err.Error(), Invalid: true}
	}
	if !r.Redirect {
		a.metrics.pods.WithLabelValues("passed").Inc()
		a.Log.Debug("a Pod gets no rules", "pod", asked.String(), "why", r.Why)
	}
	return cni.Answer{Redirect: r.Redirect, Why: r.Why, Settings: r.Settings}
}

// pod returns the Pod with the UID that the container runtime knows. Another Pod may have had its name before.
func (a *Agent) pod(ctx context.Context, asked cni.Pod) (*corev1.Pod, error) {
	if p := a.Cluster.Get(asked.Namespace, asked.Name); p != nil && asked.UID != "" && same(p, asked.UID) {
		return p, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	p, err := a.Cluster.Read(ctx, asked.Namespace, asked.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the API server does not know the Pod: %w", err)
	case err != nil:
		return nil, fmt.Errorf("the API server does not answer: %w", err)
	case asked.UID != "" && !same(p, asked.UID):
		return nil, fmt.Errorf("the API server has another Pod of this name, with UID %s instead of %s", p.UID, asked.UID)
	}
	return p, nil
}

func same(p *corev1.Pod, uid string) bool {
	return p.UID == types.UID(uid) || p.Annotations[staticHash] == uid
}

// done records the result of a plugin.
func (a *Agent) done(pod cni.Pod, r cni.Result) {
	if r.Problem != "" {
		a.metrics.pods.WithLabelValues("failed").Inc()
		a.Log.Warn("cannot set rules of Pod, CNI ADD will be retried", "pod", pod.String(), "error", r.Problem)
		return
	}
	a.metrics.pods.WithLabelValues("redirected").Inc()
	a.repairer.redirected(types.UID(pod.UID))
	a.Log.Info("redirected the connections of a Pod", "pod", pod.String(), "backend", string(r.Backend))
}
