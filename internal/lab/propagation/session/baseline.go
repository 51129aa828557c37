package session

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/lab/baseline"
	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
)

// BaselineServer is the baseline: a child process with a directory.
type BaselineServer struct {
	Subject
	dir, staging string
	argv         []string
	Count        int // of the last change
	// cheap avoids the cost of renaming new files. Set if the mesh is in an API server; in a directory the
	// cost is the same for both sides.
	cheap bool
}

// tape has the responses that a control plane sent to a connecting proxy.
type tape struct{ responses [fleet.Kinds][][]byte }

func (t *tape) record(k fleet.Kind, b []byte) {
	t.responses[k] = append(t.responses[k], append([]byte(nil), b...))
}

// save writes a tape into the directory from which the baseline plays it back.
func (t *tape) save(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, baseline.Playback), 0o700); err != nil {
		return err
	}
	for k, list := range t.responses {
		for i, b := range list {
			if err := os.WriteFile(baseline.PlaybackFile(dir, fleet.Kind(k), i), b, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// startBaseline starts a baseline that plays back a tape. Its proxies do not connect yet.
func startBaseline(ctx context.Context, binary []string, dir string, t *tape, ids []fleet.Identity) (*BaselineServer, error) {
	f := &BaselineServer{dir: filepath.Join(dir, "baseline"), staging: filepath.Join(dir, "baseline-staging")}
	f.Name = "the baseline"
	for _, d := range []string{f.dir, f.staging} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	if err := t.save(f.dir); err != nil {
		return nil, err
	}
	f.argv = append(slices.Clone(binary), "baseline", "--config", f.dir)
	if err := f.Start(ctx, AnyPort, AnyPort); err != nil {
		return nil, err
	}
	f.Fleet = fleet.NewFleet(fleet.NewCatalog(), fleet.Options{Address: f.Process.Addr()}, ids)
	return f, nil
}

// AnyPort is an address with a port that the kernel chooses.
const AnyPort = "127.0.0.1:0"

// Start starts the process, which serves xDS at streams and debug pages at pages.
func (f *BaselineServer) Start(ctx context.Context, streams, pages string) error {
	p, err := child.Start(ctx, f.Name, append(slices.Clone(f.argv), "--addr", streams, "--http-addr", pages)...)
	if err == nil {
		f.Process, f.PID, f.answered = p, p.Pid(), answeredPage(p)
	}
	return err
}

// baselineResource names the i-th resource of the baseline.
func baselineResource(i int) string { return fmt.Sprintf("baseline-%d", i) }

// Prepare writes a response of size bytes into the staging directory; apply renames it into the watched one.
// Changes with different i are changes of different resources.
func (f *BaselineServer) Prepare(i int, size float64) (wants []fleet.Want, apply func() error, err error) {
	f.Count++
	b, err := proto.Marshal(baselineResponse(i, f.Count, int(size)))
	if err != nil {
		return nil, nil, err
	}
	name := baselineResource(i) + baseline.Extension
	from, to := filepath.Join(f.staging, fmt.Sprint(f.Count)), filepath.Join(f.dir, name) // several may be prepared at the same time
	write := os.WriteFile
	if f.cheap {
		write = writeAllocated
	}
	if err := write(from, b, 0o600); err != nil {
		return nil, nil, err
	}
	return []fleet.Want{BaselineWant(i, f.Count)}, func() error { return os.Rename(from, to) }, nil
}

// baselineMark returns text that only the n-th response contains.
func baselineMark(n int) string { return fmt.Sprintf("baseline-mark-%08d", n) }

// BaselineWant waits for the n-th response with resource i.
func BaselineWant(i, n int) fleet.Want {
	mark := []byte(baselineMark(n))
	return fleet.Want{Kind: fleet.CDS, Name: baselineResource(i), Accept: func(b []byte) bool { return bytes.Contains(b, mark) }}
}

// baselineResponse returns a response of about size bytes.
func baselineResponse(i, n, size int) *discoveryv3.DeltaDiscoveryResponse {
	value := &anypb.Any{TypeUrl: fleet.URLs[fleet.CDS]}
	resp := &discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: fleet.URLs[fleet.CDS], Nonce: baseline.BroadcastNonce, SystemVersionInfo: fmt.Sprint(n),
		Resources: []*discoveryv3.Resource{{Name: baselineResource(i), Version: fmt.Sprintf("%016x", n), Resource: value}},
	}
	// An unknown field: a proxy that parses the value as a cluster ignores it.
	text := baselineMark(n)
	if pad := size - proto.Size(resp) - len(text) - 10; pad > 0 {
		text += strings.Repeat(".", pad)
	}
	value.Value = protowire.AppendString(protowire.AppendTag(nil, 900, protowire.BytesType), text)
	return resp
}

// bareServer is bare TCP: a child process with its connections.
type bareServer struct {
	dir     string
	process *child.Process
	clients *baseline.BareClients
	n       int
}

func startBare(ctx context.Context, binary []string, dir string, n int) (*bareServer, error) {
	b := &bareServer{dir: filepath.Join(dir, "bare")}
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return nil, err
	}
	argv := append(slices.Clone(binary), "baseline", "--bare", "--config", b.dir, "--addr", AnyPort, "--http-addr", AnyPort)
	p, err := child.Start(ctx, "bare TCP", argv...)
	if err != nil {
		return nil, err
	}
	b.process = p
	if b.clients, err = baseline.DialBare(ctx, p.Addr(), n); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

// Measure sends one message on every connection.
func (b *bareServer) Measure(ctx context.Context) (results.Sample, error) {
	b.n++
	from, to := filepath.Join(filepath.Dir(b.dir), "bare.tmp"), filepath.Join(b.dir, "change"+baseline.Extension)
	if err := os.WriteFile(from, fmt.Append(nil, b.n), 0o600); err != nil {
		return results.Sample{}, err
	}
	s := Subject{Name: "bare TCP", PID: b.process.Pid(), Process: b.process, Fleet: &fleet.Fleet{}, answered: answeredPage(b.process)}
	round := b.clients.Expect()
	cpu := s.CPU()
	round.Restart()
	if err := os.Rename(from, to); err != nil {
		return results.Sample{}, err
	}
	if err := s.Await(ctx, round, ChangeTime); err != nil {
		return results.Sample{}, err
	}
	if err := s.Quiet(ctx); err != nil {
		return results.Sample{}, err
	}
	out := results.Sample{CPU: results.Millis(s.CPU() - cpu), Began: round.Start(), ProxyTimes: results.AllMillis(round.Latencies()), Concerned: results.PerProxy{Messages: 1, Bytes: baseline.BareMessage}}
	for _, l := range out.ProxyTimes {
		out.Last = max(out.Last, l)
	}
	return out, s.AskHeard(ctx, &out)
}

func (b *bareServer) stop() {
	if b == nil {
		return
	}
	if b.clients != nil {
		b.clients.Close()
	}
	b.process.Stop(stopTime)
}
