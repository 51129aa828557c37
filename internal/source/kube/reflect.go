package kube

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// backoff is the wait between attempts to reach an API server. It is also the delay of changes after an outage, during
// which proxies keep their configuration.
func backoff() *wait.Backoff {
	return &wait.Backoff{Duration: 100 * time.Millisecond, Cap: 3 * time.Second, Steps: 10, Factor: 2, Jitter: 0.5}
}

// reflect keeps a sink up to date until ctx ends. The Reflector's log lines are dropped; status logs changes once.
func (s *Source) reflect(ctx context.Context, r *resource, k *sink) {
	lw, err := s.Client.listWatch(r, func(err error) { s.status.heard(r.title(), err) })
	if err != nil {
		s.status.heard(r.title(), err)
		return
	}
	quiet := logr.Discard()
	options := cache.ReflectorOptions{Name: r.Kind, TypeDescription: r.Kind, Logger: &quiet, Backoff: backoff()}
	cache.NewReflectorWithOptions(lw, r.example, k, options).RunWithContext(logr.NewContext(ctx, quiet))
}
