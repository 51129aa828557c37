package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/sidecar/intercept"
)

// Names on nodes.
const (
	PluginName = "moonsail-cni" // of the program, and the type in lists of plugins
	Socket     = "/var/run/moonsail-cni/agent.sock"
)

// Entry is the plugin's entry in a list of CNI plugins.
type Entry struct {
	Type              string   `json:"type"`
	Socket            string   `json:"socket"`
	ExcludeNamespaces []string `json:"exclude_namespaces,omitempty"`
	// AgentPods is NAMESPACE/PREFIX of the names of the node agent's Pods, which start without asking the agent.
	AgentPods string `json:"agent_pods,omitempty"`
}

// Pod identifies a Pod, as the container runtime does.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// Question is the plugin's question about a Pod.
type Question struct {
	Pod
	Check bool `json:"check,omitempty"` // the plugin sets no rules
}

// String returns NAMESPACE/NAME.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Answer is the node agent's answer about a Pod.
type Answer struct {
	Redirect bool               `json:"redirect"`
	Why      string             `json:"why,omitempty"`     // why not
	Settings intercept.Settings `json:"settings,omitzero"` // of the rules
	Problem  string             `json:"problem,omitempty"` // the agent cannot decide
	Invalid  bool               `json:"invalid,omitempty"` // the problem is in the Pod: another attempt fails too
}

// Result is what the plugin reports after it has set the rules, or failed to.
type Result struct {
	Backend intercept.Backend `json:"backend,omitempty"`
	Problem string            `json:"problem,omitempty"`
}

// Limits of the protocol.
const (
	maxMessage     = 1 << 20
	messageTimeout = 20 * time.Second // for the other side's next message
)

// Call is a plugin's connection to the node agent.
type Call struct {
	Answer Answer
	conn   net.Conn
}

// Ask asks the node agent until ctx ends. Close the call after its report.
func Ask(ctx context.Context, socket string, q Question) (*Call, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	c := &Call{conn: conn}
	if err = send(conn, q); err == nil {
		err = receive(conn, &c.Answer)
	}
	if err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("%s: %w", socket, err)
	}
	return c, nil
}

// Report reports the result. The agent counts and logs it.
func (c *Call) Report(r Result) error { return send(c.conn, r) }

// Close ends the call.
func (c *Call) Close() { _ = c.conn.Close() }

// Server answers plugins. Its fields are set before Serve.
type Server struct {
	Answer func(context.Context, Pod) Answer
	// Done is called after a Pod's rules were set or could not be set. The result has a problem if the plugin ended
	// without a report.
	Done func(Pod, Result)
}

// Serve answers until ctx ends, then closes the listener and all connections. Only root connects: the container runtime, once for
// each Pod that it starts or checks, which bounds the connections.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	var calls sync.WaitGroup
	defer calls.Wait()
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	for {
		conn, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // for example too many open files
			_ = clock.Sleep(ctx, 100*time.Millisecond)
			continue
		}
		calls.Go(func() { s.serve(ctx, conn) })
	}
}

// serve answers one plugin.
func (s *Server) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var q Question
	if receive(conn, &q) != nil {
		return
	}
	answer := s.Answer(ctx, q.Pod)
	err := send(conn, answer)
	if !answer.Redirect || q.Check {
		return
	}
	var result Result
	if err == nil {
		err = receive(conn, &result)
	}
	if err != nil {
		result = Result{Problem: "the plugin ended without a report: " + err.Error()}
	}
	s.Done(q.Pod, result)
}

// send writes a message as one line of JSON.
func send(conn net.Conn, message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if err := conn.SetWriteDeadline(time.Now().Add(messageTimeout)); err != nil {
		return err
	}
	_, err = conn.Write(append(text, '\n'))
	return err
}

// receive reads a message. Each side waits for the other before it sends the next one.
func receive(conn net.Conn, into any) error {
	if err := conn.SetReadDeadline(time.Now().Add(messageTimeout)); err != nil {
		return err
	}
	return json.NewDecoder(io.LimitReader(conn, maxMessage)).Decode(into)
}
