package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// echoServer sends every message of every stream back.
func echoServer() *grpc.Server {
	return grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		for {
			m := &wrapperspb.Int64Value{}
			if err := s.RecvMsg(m); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if err := s.SendMsg(m); err != nil {
				return err
			}
		}
	}))
}

// streams are gRPC streams to one host, several at a time. Each lasts long enough that replicas end during it.
type streams struct {
	t      *testing.T
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	calls    int        // streams that have ended
	failures []string
}

// Each stream sends this many messages, at this interval.
const (
	streamMessages = 20
	streamPause    = 5 * time.Millisecond
)

// startStreams opens streams through a sidecar until they are stopped, or the test ends.
func startStreams(t *testing.T, c *client, host string) *streams {
	t.Helper()
	conn, err := grpc.NewClient(net.JoinHostPort(c.ip, strconv.Itoa(meshPort)), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(host), grpc.WithDisableRetry())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	l := &streams{t: t, cancel: cancel}
	for range callers {
		l.ended.Go(func() {
			for ctx.Err() == nil {
				l.note(time.Now(), stream(conn))
			}
		})
	}
	t.Cleanup(func() {
		l.stop()
		_ = conn.Close()
	})
	l.await(2 * callers)
	return l
}

// stream is one complete stream; the end of the test does not cut it off.
func stream(conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Echo/Echo")
	if err != nil {
		return err
	}
	pause := time.NewTicker(streamPause)
	defer pause.Stop()
	for i := range int64(streamMessages) {
		<-pause.C
		if err := s.SendMsg(wrapperspb.Int64(i)); err != nil {
			return errors.Join(err, s.RecvMsg(&wrapperspb.Int64Value{}))
		}
		back := &wrapperspb.Int64Value{}
		if err := s.RecvMsg(back); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if back.Value != i {
			return fmt.Errorf("message %d came back as %d", i, back.Value)
		}
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	if err := s.RecvMsg(&wrapperspb.Int64Value{}); !errors.Is(err, io.EOF) {
		return fmt.Errorf("at the end: %w", err)
	}
	return nil
}

func (l *streams) note(start time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	if err != nil {
		l.failures = append(l.failures, start.Format("15:04:05.000 ")+err.Error())
	}
}

func (l *streams) stop() {
	l.cancel()
	l.ended.Wait()
}

func (l *streams) failed() (calls int, failures []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls, l.failures
}

func (l *streams) await(calls int) {
	l.t.Helper()
	eventually(l.t, "streams go on", func() bool {
		n, failures := l.failed()
		return n >= calls || len(failures) > 0
	}, nil)
}
