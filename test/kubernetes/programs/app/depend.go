package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
)

// dependency is a server that a server calls for each request.
type dependency struct {
	name string
	call caller
}

// result is the result of a call of a dependency.
type result struct {
	Took   time.Duration   `json:"took"`
	Error  string          `json:"error,omitempty"`
	Answer json.RawMessage `json:"answer,omitempty"`
}

// forwarded are the headers that a dependency gets: those that belong to a trace, and the user's name.
var forwarded = []string{"End-User", "X-Request-Id", "Traceparent", "Tracestate", "X-B3-Traceid", "X-B3-Spanid", "X-B3-Sampled"}

func (s *server) addCall(text string) error {
	name, target, ok := strings.Cut(text, "=")
	if !ok {
		return errors.New("use NAME=URL")
	}
	call, err := callerFor(target)
	s.calls = append(s.calls, dependency{name: name, call: call})
	return err
}

// callAll calls all dependencies for a request, one after another.
func (s server) callAll(r *http.Request) map[string]result {
	if len(s.calls) == 0 {
		return nil
	}
	header := http.Header{}
	for _, name := range forwarded {
		if values := r.Header.Values(name); len(values) > 0 {
			header[name] = values
		}
	}
	out := map[string]result{}
	for _, d := range s.calls {
		out[d.name] = d.result(r.Context(), header, s.callTimeout)
	}
	return out
}

func (d dependency) result(ctx context.Context, header http.Header, timeout time.Duration) result {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	_, text, err := d.call(ctx, header)
	out := result{Took: time.Since(began)}
	switch {
	case err != nil:
		out.Error = err.Error()
	case json.Valid([]byte(text)):
		out.Answer = json.RawMessage(text)
	}
	return out
}
