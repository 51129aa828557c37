package propagation

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

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/lab/floor"
)

// floorServer is the floor, as a child process, with a directory of its own.
type floorServer struct {
	subject
	dir, staging string
	argv         []string
	n            int // of the last change
	// cheap: renaming files is to cost next to nothing, as nothing else is written as files. Where the mesh
	// is, it costs both sides the same.
	cheap bool
}

// tape is what a control plane sent to a proxy as it connected.
type tape struct{ responses [fleet.Kinds][][]byte }

func (t *tape) record(k fleet.Kind, b []byte) {
	t.responses[k] = append(t.responses[k], append([]byte(nil), b...))
}

// save writes a tape to where the floor plays it back from.
func (t *tape) save(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, floor.Playback), 0o700); err != nil {
		return err
	}
	for k, list := range t.responses {
		for i, b := range list {
			if err := os.WriteFile(floor.PlaybackFile(dir, fleet.Kind(k), i), b, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// startFloor starts a floor that plays a tape back. Its proxies are not connected yet.
func startFloor(ctx context.Context, binary []string, dir string, t *tape, ids []fleet.Identity) (*floorServer, error) {
	f := &floorServer{dir: filepath.Join(dir, "floor"), staging: filepath.Join(dir, "floor-staging")}
	f.name = "the floor"
	for _, d := range []string{f.dir, f.staging} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	if err := t.save(f.dir); err != nil {
		return nil, err
	}
	f.argv = append(slices.Clone(binary), "floor", "--config", f.dir)
	if err := f.start(ctx, anyPort, anyPort); err != nil {
		return nil, err
	}
	f.fleet = fleet.NewFleet(fleet.NewCatalog(), fleet.Options{Address: f.process.Addr()}, ids)
	return f, nil
}

// anyPort is an address with a port that the kernel chooses.
const anyPort = "127.0.0.1:0"

func (f *floorServer) start(ctx context.Context, streams, pages string) error {
	p, err := child.Start(ctx, f.name, append(slices.Clone(f.argv), "--addr", streams, "--http-addr", pages)...)
	if err == nil {
		f.process, f.pid, f.answered = p, p.Pid(), answeredPage(p)
	}
	return err
}

// floorResource is the name of what the floor sends.
func floorResource(i int) string { return fmt.Sprintf("floor-%d", i) }

// prepare writes a response of so many bytes beside the directory; apply renames it
// into its place. i tells changes of different things apart.
func (f *floorServer) prepare(i int, size float64) (wants []fleet.Want, apply func() error, err error) {
	f.n++
	b, err := proto.Marshal(floorResponse(i, f.n, int(size)))
	if err != nil {
		return nil, nil, err
	}
	name := floorResource(i) + floor.Extension
	from, to := filepath.Join(f.staging, fmt.Sprint(f.n)), filepath.Join(f.dir, name) // several may wait for their turn
	write := os.WriteFile
	if f.cheap {
		write = writeAllocated
	}
	if err := write(from, b, 0o600); err != nil {
		return nil, nil, err
	}
	return []fleet.Want{floorWant(i, f.n)}, func() error { return os.Rename(from, to) }, nil
}

// floorMark is in the content of the floor's n-th response.
func floorMark(n int) string { return fmt.Sprintf("floor-mark-%08d", n) }

func floorWant(i, n int) fleet.Want {
	mark := []byte(floorMark(n))
	return fleet.Want{Kind: fleet.CDS, Name: floorResource(i), Accept: func(b []byte) bool { return bytes.Contains(b, mark) }}
}

// floorResponse is a response of about size bytes.
func floorResponse(i, n, size int) *discoveryv3.DeltaDiscoveryResponse {
	value := &anypb.Any{TypeUrl: fleet.URLs[fleet.CDS]}
	resp := &discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: fleet.URLs[fleet.CDS], Nonce: floor.BroadcastNonce, SystemVersionInfo: fmt.Sprint(n),
		Resources: []*discoveryv3.Resource{{Name: floorResource(i), Version: fmt.Sprintf("%016x", n), Resource: value}},
	}
	// A field of text that clusters do not have: parsed as one, it does no harm.
	text := floorMark(n)
	if pad := size - proto.Size(resp) - len(text) - 10; pad > 0 {
		text += strings.Repeat(".", pad)
	}
	value.Value = protowire.AppendString(protowire.AppendTag(nil, 900, protowire.BytesType), text)
	return resp
}

// bareServer is the limit, as a child process, with its connections.
type bareServer struct {
	dir     string
	process *child.Process
	clients *floor.BareClients
	n       int
}

func startBare(ctx context.Context, binary []string, dir string, n int) (*bareServer, error) {
	b := &bareServer{dir: filepath.Join(dir, "bare")}
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return nil, err
	}
	argv := append(slices.Clone(binary), "floor", "--bare", "--config", b.dir, "--addr", anyPort, "--http-addr", anyPort)
	p, err := child.Start(ctx, "bare TCP", argv...)
	if err != nil {
		return nil, err
	}
	b.process = p
	if b.clients, err = floor.DialBare(ctx, p.Addr(), n); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

// measure sends one message to every connection.
func (b *bareServer) measure(ctx context.Context) (Sample, error) {
	b.n++
	from, to := filepath.Join(filepath.Dir(b.dir), "bare.tmp"), filepath.Join(b.dir, "change"+floor.Extension)
	if err := os.WriteFile(from, fmt.Append(nil, b.n), 0o600); err != nil {
		return Sample{}, err
	}
	s := subject{name: "bare TCP", pid: b.process.Pid(), process: b.process, fleet: &fleet.Fleet{}, answered: answeredPage(b.process)}
	round := b.clients.Expect()
	cpu := s.cpu()
	round.Restart()
	if err := os.Rename(from, to); err != nil {
		return Sample{}, err
	}
	if err := s.await(ctx, round, changeTime); err != nil {
		return Sample{}, err
	}
	if err := s.quiet(ctx); err != nil {
		return Sample{}, err
	}
	out := Sample{CPU: millis(s.cpu() - cpu), began: round.Start(), proxies: allMillis(round.Latencies()), Concerned: PerProxy{1, floor.BareMessage}}
	for _, l := range out.proxies {
		out.Last = max(out.Last, l)
	}
	return out, s.askHeard(ctx, &out)
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
