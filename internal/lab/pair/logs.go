package pair

import "fmt"

// LogProviders is a mesh configuration with two access logs: "text" in Istio's default format, and "json" with the same
// fields as JSON. Both go to /dev/null, so that an Envoy formats and writes them, and nothing collects them.
const LogProviders = `extensionProviders:
- {name: text, envoyFileAccessLog: {path: /dev/null}}
- name: json
  envoyFileAccessLog:
    path: /dev/null
    logFormat:
      labels:
        start_time: "%START_TIME%"
        route_name: "%ROUTE_NAME%"
        method: "%REQ(:METHOD)%"
        path: "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"
        protocol: "%PROTOCOL%"
        response_code: "%RESPONSE_CODE%"
        response_flags: "%RESPONSE_FLAGS%"
        response_code_details: "%RESPONSE_CODE_DETAILS%"
        connection_termination_details: "%CONNECTION_TERMINATION_DETAILS%"
        bytes_received: "%BYTES_RECEIVED%"
        bytes_sent: "%BYTES_SENT%"
        duration: "%DURATION%"
        upstream_service_time: "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%"
        x_forwarded_for: "%REQ(X-FORWARDED-FOR)%"
        user_agent: "%REQ(USER-AGENT)%"
        request_id: "%REQ(X-REQUEST-ID)%"
        authority: "%REQ(:AUTHORITY)%"
        upstream_host: "%UPSTREAM_HOST%"
        upstream_cluster: "%UPSTREAM_CLUSTER%"
        upstream_local_address: "%UPSTREAM_LOCAL_ADDRESS%"
        upstream_transport_failure_reason: "%UPSTREAM_TRANSPORT_FAILURE_REASON%"
        downstream_local_address: "%DOWNSTREAM_LOCAL_ADDRESS%"
        downstream_remote_address: "%DOWNSTREAM_REMOTE_ADDRESS%"
        requested_server_name: "%REQUESTED_SERVER_NAME%"`

// AccessLog is an object that makes both sidecars of a pair write that log.
func AccessLog(provider string) string {
	return fmt.Sprintf(`apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: access-log, namespace: $NAMESPACE}
spec: {accessLogging: [{providers: [{name: %s}]}]}`, provider)
}
