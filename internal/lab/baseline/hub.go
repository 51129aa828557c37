package baseline

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// hub has the newest content of each file, and wakes streams.
type hub struct {
	log      *slog.Logger
	answered *answered

	mu       sync.Mutex // guards what follows
	seq      int        // of the newest batch of files
	latest   map[string]change
	streams  map[*stream]struct{}
	prepared map[span]*grpc.PreparedMsg // messages up to the newest batch, by cursor
}

// change is the content of a file and the batch in which it changed.
type change struct {
	seq  int
	resp *discoveryv3.DeltaDiscoveryResponse
}

// span is from a stream's cursor to the newest batch.
type span struct{ from, to int }

func newHub(log *slog.Logger, last *answered) *hub {
	return &hub{log: log, answered: last, latest: map[string]change{}, streams: map[*stream]struct{}{}, prepared: map[span]*grpc.PreparedMsg{}}
}

// changed reads files and wakes all streams.
func (h *hub) changed(paths []string) {
	read := map[string]*discoveryv3.DeltaDiscoveryResponse{}
	for _, path := range paths {
		if filepath.Ext(path) != Extension {
			continue
		}
		b, err := os.ReadFile(path)
		resp := &discoveryv3.DeltaDiscoveryResponse{}
		if err == nil {
			err = proto.Unmarshal(b, resp)
		}
		if err != nil {
			h.log.Error("cannot read a change", "file", path, "error", err)
			continue
		}
		read[path] = resp
	}
	if len(read) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	clear(h.prepared)
	for path, resp := range read {
		h.latest[path] = change{h.seq, resp}
	}
	h.answered.ask(len(h.streams))
	for s := range h.streams {
		s.kick()
	}
}

// join adds a stream. It receives later changes only.
func (h *hub) join(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.cursor = h.seq
	h.streams[s] = struct{}{}
}

func (h *hub) leave(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.streams, s)
}

// since returns one message with all changes after a cursor, encoded once for all streams at that cursor; nil if there
// are none.
func (h *hub) since(g grpc.ServerStream, from int) (*grpc.PreparedMsg, int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if from == h.seq {
		return nil, from, nil
	}
	key := span{from, h.seq}
	if m := h.prepared[key]; m != nil {
		return m, h.seq, nil
	}
	all := &discoveryv3.DeltaDiscoveryResponse{}
	for _, c := range h.latest {
		if c.seq > from {
			all.TypeUrl, all.Nonce, all.SystemVersionInfo = c.resp.TypeUrl, c.resp.Nonce, c.resp.SystemVersionInfo
			all.Resources = append(all.Resources, c.resp.Resources...)
		}
	}
	m, err := prepare(g, all)
	if err != nil {
		return nil, from, err
	}
	h.prepared[key] = m
	return m, h.seq, nil
}

func prepare(g grpc.ServerStream, m proto.Message) (*grpc.PreparedMsg, error) {
	p := &grpc.PreparedMsg{}
	return p, p.Encode(g, m)
}
