package server

import (
	"context"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/xds/ledger"
)

// QuestionType begins the types of resources that ask the control plane about itself. istioctl requests them on a stream
// of discovery requests, in the place of a proxy.
const QuestionType = "istio.io/debug"

// Question is a request for a type that begins with QuestionType.
type Question struct {
	TypeURL string
	Names   []string
}

// Answer is the answer to a Question.
type Answer struct {
	Resources []*anypb.Any
	Server    string // identifier of the control plane
}

// asks reports whether a request is a question. Only streams without a proxy ask some.
func (st *stream) asks(r *request) bool {
	return st.proxy == nil && st.port.Questions != nil && strings.HasPrefix(string(r.TypeURL), QuestionType)
}

// answerQuestion answers a question at once. Acknowledgements of answers need none. A nonce alone does not make a request an
// acknowledgement: istioctl's first request has one. Without an error the peer counts as authenticated, so every stream
// passes the check of Questions first.
func (st *stream) answerQuestion(r *request) error {
	if st.answered && string(r.Nonce) == answerNonce {
		return nil
	}
	peer := st.transport.caller()
	if peer.Authorization == "" {
		peer.Authorization = st.authorization
	}
	q := Question{TypeURL: string(r.TypeURL)}
	for _, list := range [][][]byte{r.Names, r.Subscribe} {
		for _, n := range list {
			q.Names = append(q.Names, string(n))
		}
	}
	ctx, cancel := st.transport.requestContext()
	a, err := st.port.Questions(WithPeer(ctx, peer), &q)
	cancel()
	if err != nil {
		return err
	}
	b, err := proto.Marshal(a.response(st.protocol, &q))
	if err != nil {
		return err
	}
	st.answered = true
	_, err = st.transport.send([]message{{b}})
	return err
}

// answerNonce is the nonce of answers. A stream needs no other: it does not wait for acknowledgements.
const answerNonce = "answer"

func (a *Answer) response(p ledger.Protocol, q *Question) proto.Message {
	by := &corev3.ControlPlane{Identifier: a.Server}
	if p == ledger.Sotw {
		return &discoveryv3.DiscoveryResponse{TypeUrl: q.TypeURL, Nonce: answerNonce, Resources: a.Resources, ControlPlane: by}
	}
	out := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: q.TypeURL, Nonce: answerNonce, ControlPlane: by}
	for _, r := range a.Resources {
		out.Resources = append(out.Resources, &discoveryv3.Resource{Name: strings.Join(q.Names, ","), Resource: r})
	}
	return out
}

// Questions answers questions. The context has the peer. Its errors are gRPC statuses.
type Questions func(ctx context.Context, q *Question) (*Answer, error)
