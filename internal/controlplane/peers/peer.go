package peers

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// Peer is another control plane, at one address.
type Peer struct {
	Address string

	all    *Peers
	ctx    context.Context // ends when the peer leaves the list
	cancel context.CancelFunc
	calls  chan struct{} // a slot for each call in progress

	mu      sync.Mutex // guards the fields below
	conn    *grpc.ClientConn
	id      string    // empty: unknown
	heard   time.Time // last answer; at first the time of listing
	lived   bool      // it has answered once
	refused bool      // no process listens there
	problem error     // error of the last attempt; nil: it answers
}

func newPeer(ctx context.Context, all *Peers, address string) *Peer {
	p := &Peer{Address: address, all: all, calls: make(chan struct{}, maxCalls), heard: time.Now()}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// hasLived reports whether the peer has answered once, and is not known to be gone.
func (p *Peer) hasLived() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lived && !p.refused && p.id != p.all.id
}

// standing returns the peer's ID, and whether it is gone.
func (p *Peer) standing() (id string, gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id, p.refused
}

// Gone reports whether no process listens at the peer's address.
func (p *Peer) Gone() bool {
	_, gone := p.standing()
	return gone || p.ctx.Err() != nil
}

// Silent returns since when the peer has not answered, and whether that is too long to wait for it. why is
// the reason, if it is known; empty if the peer answers.
func (p *Peer) Silent() (d time.Duration, over bool, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.problem == nil && p.lived {
		return 0, false, ""
	}
	d, why = time.Since(p.heard), "not reached yet"
	if p.problem != nil {
		why = status.Convert(p.problem).Message()
	}
	return d, d >= p.all.opts.Patience || isFinal(p.problem), why
}

// isFinal reports whether a retry would give the same error.
func isFinal(err error) bool {
	switch status.Code(err) {
	case codes.Unimplemented, codes.PermissionDenied, codes.InvalidArgument:
		return err != nil
	}
	return false
}

// Call calls a method of the peer. Its errors are gRPC statuses.
func (p *Peer) Call(ctx context.Context, method string, request, answer any) error {
	err := p.call(ctx, method, request, answer)
	switch code := status.Code(err); {
	case p.all.opts.Failed == nil, code == codes.OK, code == codes.Canceled:
	case code != codes.FailedPrecondition: // an error, but an answer
		p.all.opts.Failed(path.Base(method))
	}
	return err
}

func (p *Peer) call(ctx context.Context, method string, request, answer any) error {
	select {
	case p.calls <- struct{}{}:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	defer func() { <-p.calls }()
	conn, err := p.connection()
	if err != nil {
		return err
	}
	return conn.Invoke(ctx, method, request, answer)
}

// connection returns the connection. It is made on first use, and again after reset.
func (p *Peer) connection() (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return nil, status.Error(codes.Unavailable, "no longer listed")
	}
	if p.conn != nil {
		return p.conn, nil
	}
	var err error
	// TLS belongs to the dialer, so that each connection uses the current certificates.
	p.conn, err = grpc.NewClient("passthrough:///"+p.Address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(p.dial), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(jsonCodec{}), grpc.MaxCallRecvMsgSize(maxAnswer)), grpc.WithConnectParams(connectParams))
	return p.conn, err
}

// maxAnswer bounds an answer of a peer, in bytes.
const maxAnswer = 16 << 20

// reset closes the connection, so that the next call makes a new one.
func (p *Peer) reset() {
	p.mu.Lock()
	conn := p.conn
	p.conn = nil
	p.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // it is not used any more
	}
}

// dial connects, and records if no process listens at the address.
func (p *Peer) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if errors.Is(err, syscall.ECONNREFUSED) {
		p.noteRefused()
	}
	if err == nil {
		p.noteListening()
	}
	if err != nil || p.all.opts.TLS == nil {
		return conn, err
	}
	secure, err := p.handshake(ctx, conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}

func (p *Peer) handshake(ctx context.Context, conn net.Conn) (net.Conn, error) {
	config, err := p.all.opts.TLS()
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("not authenticated as a control plane of this mesh: %w", err)
	}
	return secure, nil
}

// noteListening records that a process listens again: it has proxies soon, and is waited for from now on.
func (p *Peer) noteListening() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused {
		p.refused, p.heard = false, time.Now()
	}
}

func (p *Peer) noteRefused() {
	p.mu.Lock()
	lost := p.lived && !p.refused
	p.refused = true
	p.mu.Unlock()
	if lost {
		p.all.noteLost()
		p.all.opts.Log.Info("another control plane is gone", "peer", p.Address)
	}
}

// jsonCodec encodes gRPC messages as JSON.
type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)   { return json.Marshal(v) }
func (jsonCodec) Unmarshal(b []byte, v any) error { return json.Unmarshal(b, v) }
func (jsonCodec) Name() string                    { return "json" }
