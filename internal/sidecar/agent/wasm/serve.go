package wasm

import (
	"fmt"
	"strconv"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	extensionv3 "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/sidecar/agent/sds"
)

// service answers Envoy. Each stream has two goroutines, which end with it.
type service struct {
	extensionv3.UnimplementedExtensionConfigDiscoveryServiceServer
	cache *ModuleCache
}

// Register adds the service to a server.
func (c *ModuleCache) Register(s grpc.ServiceRegistrar) {
	extensionv3.RegisterExtensionConfigDiscoveryServiceServer(s, &service{cache: c})
}

// stream is one subscription. Envoy opens one for each plugin.
type stream struct {
	cache *ModuleCache
	out   extensionv3.ExtensionConfigDiscoveryService_StreamExtensionConfigsServer
	name  string

	nonce   int
	sent    *served    // the version of the last nonce
	as      *anypb.Any // the configuration of it that was sent
	waiting bool       // for Envoy's answer, which determines the next configuration
}

// StreamExtensionConfigs implements the discovery service.
func (s *service) StreamExtensionConfigs(out extensionv3.ExtensionConfigDiscoveryService_StreamExtensionConfigsServer) error {
	s.cache.want()
	st := &stream{cache: s.cache, out: out}
	requests := sds.Requests(st.out)
	for {
		now, config, changed := s.cache.give(st.name, !st.waiting)
		if !st.waiting {
			if err := st.send(now, config); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-out.Context().Done():
			return nil
		case req, ok := <-requests:
			if !ok {
				return nil
			}
			if err := st.take(req); err != nil {
				return err
			}
		}
	}
}

// take applies a request: a name, or Envoy's ACK or NACK.
func (st *stream) take(req *discoveryv3.DiscoveryRequest) error {
	if n := len(req.ResourceNames); n != 1 || st.name != "" && req.ResourceNames[0] != st.name {
		return status.Errorf(codes.InvalidArgument, "a stream is for one plugin, not for %q", req.ResourceNames)
	}
	st.name = req.ResourceNames[0]
	if st.sent == nil || req.ResponseNonce != strconv.Itoa(st.nonce) {
		return nil
	}
	st.waiting = false
	e, tried := req.GetErrorDetail(), st.as == st.sent.config && !st.sent.standIn
	if e != nil {
		st.cache.Log.Error("Envoy refused a plugin", "plugin", st.name, "reason", e.GetMessage())
	}
	switch {
	case !tried:
	case e != nil:
		st.cache.refuse(st.name, st.sent, fmt.Sprintf("Envoy refuses it: %s", e.GetMessage()))
	default:
		st.cache.accept(st.sent)
	}
	return nil
}

// send sends the configuration in force, unless it was sent before.
func (st *stream) send(now *served, config *anypb.Any) error {
	if now == nil || now == st.sent && config == st.as {
		return nil
	}
	st.nonce++
	st.sent, st.as, st.waiting = now, config, true
	return st.out.Send(&discoveryv3.DiscoveryResponse{
		TypeUrl: TypeURL, VersionInfo: now.version + "." + strconv.Itoa(st.nonce), Nonce: strconv.Itoa(st.nonce), Resources: []*anypb.Any{config},
	})
}
