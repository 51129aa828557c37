package istio

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// telemetryFields are the fields of MeshConfig that meshTelemetry reads.
var telemetryFields = []string{
	"accessLogEncoding", "accessLogFormat", "defaultConfig", "defaultProviders", "enablePrometheusMerge", "enableTracing",
	"extensionProviders",
}

// meshTelemetry converts the mesh's settings of telemetry. It returns nil without settings. Providers that the mesh names are beside the default ones.
func (c telemetryConv) meshTelemetry(at problem.Path, settings *meshconfig.MeshConfig, given map[string]bool) *model.MeshTelemetry {
	asked := false
	for _, f := range telemetryFields {
		asked = asked || given[f]
	}
	if !asked {
		return nil
	}
	out := model.DefaultMeshTelemetry()
	out.BaseSampling = 0 // MeshConfig.Over keeps the control plane's
	out.AccessLog = c.meshLogFormat(at, settings)
	for i, p := range settings.ExtensionProviders {
		if provider := providerConv(c).provider(at.Field("extensionProviders").Index(i), p); provider != nil {
			out.Providers = append([]model.Provider{*provider}, out.Providers...)
		}
	}
	if given["defaultProviders"] {
		d := settings.DefaultProviders
		out.Metrics, out.Logging, out.Tracing = d.GetMetrics(), d.GetAccessLogging(), d.GetTracing()
		c.defaultProviders(at.Field("defaultProviders"), &out)
	}
	if m := settings.EnablePrometheusMerge; m != nil {
		out.PrometheusMerge = m.Value
	}
	c.builtinLog(&out)
	providerConv(c).defaultTracing(at.Field("defaultConfig").Field("tracing"), settings, given["enableTracing"], &out)
	return &out
}

// builtinLog gives the provider "envoy" the mesh's format, as in Istio, unless the mesh defines it with its own.
func (c telemetryConv) builtinLog(out *model.MeshTelemetry) {
	p := out.Provider("envoy")
	if path := p.Log.Path; p.Kind == model.ProviderFileLog && p.Log == (model.LogFormat{Path: path}) {
		p.Log = out.AccessLog
		p.Log.Path = path
	}
}

// defaultProviders warns of providers that do not exist.
func (c telemetryConv) defaultProviders(at problem.Path, t *model.MeshTelemetry) {
	for _, f := range []struct {
		field string
		names []string
	}{{"metrics", t.Metrics}, {"accessLogging", t.Logging}, {"tracing", t.Tracing}} {
		for i, name := range f.names {
			if t.Provider(name) == nil {
				c.Warnf(code.NoEffect, at.Field(f.field).Index(i), "%q is not one of extensionProviders that telemetry can go to; it is left out", name)
			}
		}
	}
}

// meshLogFormat is the format of accessLogFile: a text, or an object of formats as JSON.
func (c telemetryConv) meshLogFormat(at problem.Path, settings *meshconfig.MeshConfig) model.LogFormat {
	text, field := settings.AccessLogFormat, at.Field("accessLogFormat")
	if settings.AccessLogEncoding == meshconfig.MeshConfig_TEXT {
		return model.LogFormat{Text: c.logText(field, text)}
	}
	if text == "" {
		return model.LogFormat{JSON: defaultJSONLog}
	}
	object := map[string]any{}
	err := json.Unmarshal([]byte(text), &object)
	if err != nil {
		c.Errorf(code.InvalidExpression, field, "is not an object of JSON, which accessLogEncoding requires: %v", err)
		return model.LogFormat{}
	}
	fields, err := structpb.NewStruct(object)
	if err != nil {
		c.Errorf(code.InvalidExpression, field, "cannot be a format: %v", err)
	}
	return model.LogFormat{JSON: c.logLabels(field, fields)}
}

// defaultJSONLog has what Istio's text has.
const defaultJSONLog = `{"authority":"%REQ(:AUTHORITY)%","bytes_received":"%BYTES_RECEIVED%","bytes_sent":"%BYTES_SENT%",` +
	`"connection_termination_details":"%CONNECTION_TERMINATION_DETAILS%","downstream_local_address":"%DOWNSTREAM_LOCAL_ADDRESS%",` +
	`"downstream_remote_address":"%DOWNSTREAM_REMOTE_ADDRESS%","duration":"%DURATION%","method":"%REQ(:METHOD)%",` +
	`"path":"%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%","protocol":"%PROTOCOL%","request_id":"%REQ(X-REQUEST-ID)%",` +
	`"requested_server_name":"%REQUESTED_SERVER_NAME%","response_code":"%RESPONSE_CODE%",` +
	`"response_code_details":"%RESPONSE_CODE_DETAILS%","response_flags":"%RESPONSE_FLAGS%","route_name":"%ROUTE_NAME%",` +
	`"start_time":"%START_TIME%","upstream_cluster":"%UPSTREAM_CLUSTER_RAW%","upstream_host":"%UPSTREAM_HOST%",` +
	`"upstream_local_address":"%UPSTREAM_LOCAL_ADDRESS%","upstream_service_time":"%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%",` +
	`"upstream_transport_failure_reason":"%UPSTREAM_TRANSPORT_FAILURE_REASON%","user_agent":"%REQ(USER-AGENT)%",` +
	`"x_forwarded_for":"%REQ(X-FORWARDED-FOR)%"}`

// logText checks a format, and ends its line.
func (c telemetryConv) logText(at problem.Path, text string) string {
	if text == "" {
		return ""
	}
	c.checkFormat(at, withoutQuery.Replace(text))
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}

// withoutQuery: access logs know an operator more, which is written like REQ.
var withoutQuery = strings.NewReplacer("%REQ_WITHOUT_QUERY(", "%REQ(")

// logLabels checks the formats in an object and writes it as JSON with sorted keys.
func (c telemetryConv) logLabels(at problem.Path, fields *structpb.Struct) string {
	if fields == nil {
		return ""
	}
	c.checkLabels(at, structpb.NewStructValue(fields))
	text, err := json.Marshal(fields.AsMap())
	if err != nil {
		c.Errorf(code.Unreadable, at, "cannot be written as JSON: %v", err)
	}
	return string(text)
}

func (c telemetryConv) checkLabels(at problem.Path, v *structpb.Value) {
	switch k := v.GetKind().(type) {
	case *structpb.Value_StructValue:
		fields := k.StructValue.GetFields()
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			c.checkLabels(at.Key(name), fields[name])
		}
	case *structpb.Value_ListValue:
		for i, e := range k.ListValue.GetValues() {
			c.checkLabels(at.Index(i), e)
		}
	case *structpb.Value_StringValue:
		c.checkFormat(at, withoutQuery.Replace(k.StringValue))
	}
}
