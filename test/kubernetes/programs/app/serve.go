package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// server answers calls. When it ends it closes its ports at once and finishes the calls in flight, as servers do by
// default.
type server struct {
	http, grpc, tcp string
	version         string
	calls           []dependency // for each request of HTTP
	callTimeout     time.Duration
}

// answer is the response to an HTTP request.
type answer struct {
	Instance string      `json:"instance"` // the Pod's name
	Protocol string      `json:"protocol"`
	Method   string      `json:"method"`
	Path     string      `json:"path"`
	Headers  http.Header `json:"headers"`
	Version  string      `json:"version,omitempty"`
	// Calls are the results of the calls that the server made for the request, by name.
	Calls map[string]result `json:"calls,omitempty"`
}

func instance() string {
	name, err := os.Hostname()
	if err != nil {
		return err.Error()
	}
	return name
}

func (s server) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for address, serve := range map[string]func(context.Context, net.Listener) error{
		s.http: s.serveHTTP, s.grpc: serveGRPC, s.tcp: serveTCP,
	} {
		if address == "" {
			continue
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return err
		}
		all.Go(func() {
			if err := serve(ctx, listener); err != nil {
				cancel(err)
			}
		})
	}
	fmt.Println("ready")
	<-ctx.Done()
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (s server) serveHTTP(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, err := strconv.Atoi(r.PathValue("code"))
		if err != nil || code < 200 || code > 599 {
			code = http.StatusBadRequest
		}
		w.WriteHeader(code)
		s.echo(w, r)
	})
	mux.HandleFunc("/delay/{duration}", func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.PathValue("duration"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		select {
		case <-time.After(d):
		case <-r.Context().Done():
		}
		s.echo(w, r)
	})
	mux.HandleFunc("/", s.echo)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	listening := &http.Server{Handler: mux, Protocols: &protocols, ReadHeaderTimeout: defaultTimeout}
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ended <- listening.Shutdown(context.WithoutCancel(ctx))
	}()
	if err := listening.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended
}

func (s server) echo(w http.ResponseWriter, r *http.Request) {
	out := answer{
		Instance: instance(), Protocol: r.Proto, Method: r.Method, Path: r.URL.RequestURI(), Headers: r.Header, Version: s.version,
		Calls: s.callAll(r),
	}
	_ = json.NewEncoder(w).Encode(out) // an error means that the client has gone
}

// echoMethod answers a gRPC call of a string with the instance and the string.
const echoMethod = "/moonsail.test.Echo/Call"

func serveGRPC(ctx context.Context, l net.Listener) error {
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "moonsail.test.Echo",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Call",
			Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				var in wrapperspb.StringValue
				if err := decode(&in); err != nil {
					return nil, err
				}
				return wrapperspb.String(instance() + " " + in.GetValue()), nil
			},
		}},
	}, nil)
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	defer context.AfterFunc(ctx, s.GracefulStop)()
	return s.Serve(l)
}

// serveTCP answers each line with the instance and the line.
func serveTCP(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		go func() {
			defer func() { _ = conn.Close() }() // all was written
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				if _, err := fmt.Fprintln(conn, instance(), strings.TrimSpace(lines.Text())); err != nil {
					return
				}
			}
		}()
	}
}
