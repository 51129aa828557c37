package status

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/kube"
)

var virtualServices = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}

func key(name string) model.Key {
	return model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: name}
}

// apiServer is an API server with the statuses of some objects.
type apiServer struct {
	mu     sync.Mutex // guards the fields below
	have   map[model.Key]*live
	writes int
	fail   []error // results of the next writes
	meet   func()  // called by the next write before it is done, without mu
}

func newServer() *apiServer { return &apiServer{have: map[model.Key]*live{}} }

func (s *apiServer) get(_ context.Context, u *update) (*live, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.have[u.key]
	if o == nil {
		return nil, apierrors.NewNotFound(u.resource.GroupResource(), u.key.Name)
	}
	c := *o
	return &c, nil
}

func (s *apiServer) patch(_ context.Context, u *update) (*live, error) {
	s.mu.Lock()
	meet := s.meet
	s.meet = nil
	s.mu.Unlock()
	if meet != nil {
		meet()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.have[u.key]
	if len(s.fail) > 0 {
		err := s.fail[0]
		s.fail = s.fail[1:]
		return nil, err
	}
	if o == nil {
		return nil, apierrors.NewNotFound(u.resource.GroupResource(), u.key.Name)
	}
	var p struct {
		Metadata struct{ ResourceVersion string }
		Status   json.RawMessage
	}
	if err := json.Unmarshal(u.patch, &p); err != nil {
		return nil, err
	}
	if p.Metadata.ResourceVersion != o.version {
		return nil, apierrors.NewConflict(u.resource.GroupResource(), u.key.Name, errors.New("it has changed"))
	}
	s.writes++
	o.put(p.Status)
	c := *o
	return &c, nil
}

func (o *live) put(status json.RawMessage) {
	n, _ := strconv.Atoi(o.version)
	o.version, o.status = strconv.Itoa(n+1), status
}

func (s *apiServer) wrote() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// apply makes a generation of an object, and updates the Tracker.
func (s *apiServer) apply(b *Tracker, k model.Key, problem string) {
	s.mu.Lock()
	o := s.have[k]
	if o == nil {
		o = &live{version: "0"}
		s.have[k] = o
	}
	o.generation++
	o.put(o.status)
	c := *o
	s.mu.Unlock()
	tell(b, k, &c, problem)
}

func tell(b *Tracker, k model.Key, o *live, message string) {
	seen := &kube.Seen{Key: k, Resource: virtualServices, Version: o.version, Generation: o.generation, Status: o.status}
	if message != "" {
		seen.Problems = problem.List{{Severity: problem.SeverityError, Object: k, Field: "spec", Message: message}}
	}
	b.Seen(seen)
}

// status returns the messages of an object's status.
func (s *apiServer) status(k model.Key) current {
	s.mu.Lock()
	defer s.mu.Unlock()
	return parse(s.have[k].status)
}

func (s *apiServer) message(k model.Key) any {
	c := s.status(k)
	return c.reconciled()["message"]
}
