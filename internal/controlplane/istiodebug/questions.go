package istiodebug

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/moonsail/moonsail/internal/version"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Types of questions. Their answers are messages; those of QuestionType itself are the text of a page.
const (
	typeSyncz      = server.QuestionType + "/syncz"
	typeConfigDump = server.QuestionType + "/config_dump"
)

// Answer answers a question of istioctl.
func (p *Pages) Answer(ctx context.Context, q *server.Question) (*server.Answer, error) {
	out := &server.Answer{Server: p.identifier()}
	switch q.TypeURL {
	case typeSyncz:
		p.turn.Lock()
		defer p.turn.Unlock()
		for _, proxy := range p.Proxies() {
			packed, err := anypb.New(clientConfig(&proxy))
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", q.TypeURL, proxy.ID, err)
			}
			out.Resources = append(out.Resources, packed)
		}
		return out, nil
	case typeConfigDump:
		if len(q.Names) != 1 {
			return nil, server.Invalid("%s: %d names: exactly one proxy is required", q.TypeURL, len(q.Names))
		}
		p.turn.Lock()
		defer p.turn.Unlock()
		dump, err := p.dump(q.Names[0], false)
		switch {
		case errors.Is(err, errNotConnected): // it may be connected to another replica, which answers too
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %s: %w", q.TypeURL, q.Names[0], err)
		}
		out.Resources = dump.Configs
		return out, nil
	case server.QuestionType:
		if len(q.Names) != 1 {
			return nil, server.Invalid("%s: %d names: exactly one debug page is required", q.TypeURL, len(q.Names))
		}
		text, err := p.text(ctx, q.Names[0])
		out.Resources = []*anypb.Any{{TypeUrl: server.QuestionType, Value: text}}
		return out, err
	}
	return nil, server.Invalid("%s: unknown type: use %s, %s or %s", q.TypeURL, typeSyncz, typeConfigDump, server.QuestionType)
}

// text returns the body of a page, named as "edsz?proxyID=web-1.shop".
func (p *Pages) text(ctx context.Context, name string) ([]byte, error) {
	u, err := url.Parse(name)
	if err != nil {
		return nil, server.Invalid("debug page %q: not a path: %v", name, err)
	}
	u.Path = "/debug/" + strings.TrimPrefix(u.Path, "/")
	r := (&http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}).WithContext(ctx)
	return p.record(p.handler(strings.TrimPrefix(u.Path, "/debug/")), r).Bytes(), nil
}

// identifier is the JSON that istioctl reads for the columns ISTIOD and VERSION.
func (p *Pages) identifier() string {
	b, _ := json.Marshal(struct {
		Component string
		ID        string
		Info      version.Istio
	}{"istiod", p.Instance, version.Get().Istio()})
	return string(b)
}

// clientConfig describes a proxy for `istioctl proxy-status`.
func clientConfig(p *server.ProxyState) *statusv3.ClientConfig {
	meta := map[string]any{"NAMESPACE": p.Namespace, "CLUSTER_ID": cluster(p), "ISTIO_VERSION": istioVersion(p)}
	fields, _ := structpb.NewStruct(meta) // texts only
	out := &statusv3.ClientConfig{Node: &corev3.Node{Id: p.Name + "." + p.Namespace, Metadata: fields}}
	for i := range p.Types {
		t := &p.Types[i]
		if !t.InUse() {
			continue
		}
		one := &statusv3.ClientConfig_GenericXdsConfig{TypeUrl: typeURL(t.Type), ConfigStatus: statusv3.ConfigStatus_SYNCED}
		switch t.Progress() {
		case server.TypeRefused:
			one.ConfigStatus = statusv3.ConfigStatus_ERROR
			one.ErrorState = &adminv3.UpdateFailureState{Details: t.Held[0].Message}
		case server.TypeInFlight:
			one.ConfigStatus, one.LastUpdated = statusv3.ConfigStatus_STALE, timestamppb.New(t.InFlightSince)
		case server.TypeWaiting:
			one.ConfigStatus = statusv3.ConfigStatus_STALE
		case server.TypeNotSent:
			one.ConfigStatus = statusv3.ConfigStatus_NOT_SENT
		}
		out.GenericXdsConfigs = append(out.GenericXdsConfigs, one)
	}
	return out
}

// typeURL returns the URL of a type's short name.
func typeURL(short string) string {
	for _, t := range resource.Types {
		if t.Short == short {
			return t.URL
		}
	}
	return short
}
