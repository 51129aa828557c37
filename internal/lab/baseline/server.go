package baseline

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/lab/fleet"
)

// Options configure a server of this package.
type Options struct {
	Dir      string // watched; its subdirectory Playback is read at start
	Addr     string // for streams
	HTTPAddr string // for profiles, as in the control plane; empty: none
	Bare     bool   // serve bare TCP instead of xDS
	Log      *slog.Logger
}

// Playback is the subdirectory with the responses for connecting proxies, in files named by PlaybackFile.
const Playback = "playback"

// PlaybackFile names the file of the i-th response of a kind.
func PlaybackFile(dir string, k fleet.Kind, i int) string {
	return filepath.Join(dir, Playback, fmt.Sprintf("%s-%03d%s", k, i, Extension))
}

// server is the baseline.
type server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	hub      *hub
	answered *answered
	playback [fleet.Kinds][]*discoveryv3.DeltaDiscoveryResponse // read-only

	mu      sync.Mutex // guards answers
	answers map[answerKey]*grpc.PreparedMsg
}

type answerKey struct {
	ask
	i int
}

// Run serves until ctx ends. It logs its addresses as `moonsail serve` does.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Addr)
	if err != nil {
		return fmt.Errorf("--addr: %w", err)
	}
	defer ln.Close()
	var last answered
	pages, err := servePages(ctx, o, &last)
	if err != nil {
		return err
	}
	defer pages()
	serve := serveStreams
	if o.Bare {
		serve = serveBare
	}
	return serve(ctx, o, ln, &last)
}

func serveStreams(ctx context.Context, o Options, ln net.Listener, last *answered) error {
	s := &server{hub: newHub(o.Log, last), answered: last, answers: map[answerKey]*grpc.PreparedMsg{}}
	if err := s.load(o.Dir); err != nil {
		return err
	}
	wait, err := watch(ctx, o.Dir, s.hub.changed)
	if err != nil {
		return err
	}
	g := grpc.NewServer() // default options, intentionally
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
	stop := context.AfterFunc(ctx, g.Stop)
	defer stop()
	announce(o, ln)
	if err := g.Serve(ln); err != nil && ctx.Err() == nil {
		return err
	}
	return wait()
}

func announce(o Options, ln net.Listener) {
	o.Log.Info("serving xDS in plain text", "addr", ln.Addr().String())
}

// load reads the responses to play back.
func (s *server) load(dir string) error {
	for k := range fleet.Kinds {
		files, err := filepath.Glob(filepath.Join(dir, Playback, k.String()+"-*"+Extension))
		if err != nil {
			return err
		}
		slices.Sort(files)
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			resp := &discoveryv3.DeltaDiscoveryResponse{}
			if err := proto.Unmarshal(b, resp); err != nil {
				return fmt.Errorf("%s: %w", f, err)
			}
			s.playback[k] = append(s.playback[k], resp)
		}
	}
	return nil
}

// servePages serves AnsweredPage and the same profiles as the control plane.
func servePages(ctx context.Context, o Options, last *answered) (stop func(), err error) {
	if o.HTTPAddr == "" {
		return func() {}, nil
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.HTTPAddr)
	if err != nil {
		return nil, fmt.Errorf("--http-addr: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET "+AnsweredPage, last.serve)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := srv.Serve(ln); err != nil && ctx.Err() == nil {
			o.Log.Error("debug pages ended", "error", err)
		}
	})
	o.Log.Info("serving metrics and debug pages", "url", "http://"+ln.Addr().String()+"/debug")
	return func() {
		_ = srv.Close() // its listener is closed in any case
		ended.Wait()
	}, nil
}
