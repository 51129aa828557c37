package simulate

import (
	"fmt"
	"net/http"
	"strings"
)

// isGRPC reports whether Envoy takes a request for one of gRPC.
func (r *request) isGRPC() bool {
	rest, ok := strings.CutPrefix(r.headers["content-type"], "application/grpc")
	return ok && (rest == "" || rest[0] == '+')
}

// answerGRPC sets the status in which the proxy's own answer reaches a client of gRPC.
func (res *Result) answerGRPC(r *request) {
	if res.Status == 0 || !r.isGRPC() || res.CORS != nil && res.CORS.Preflight {
		return
	}
	status := grpcStatus(res.Status)
	if res.Fault != nil && res.Fault.AbortGRPC != nil && res.Reason == faultReason {
		status = *res.Fault.AbortGRPC
	}
	res.GRPCStatus = &status
}

// grpcNames are the names of gRPC's status codes.
var grpcNames = []string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
	"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

// StatusText is the status of the proxy's own answer: "503", or "gRPC status 14 (UNAVAILABLE)".
func (res *Result) StatusText() string {
	switch {
	case res.GRPCStatus == nil:
		return fmt.Sprint(res.Status)
	case int(*res.GRPCStatus) < len(grpcNames):
		return fmt.Sprintf("gRPC status %d (%s)", *res.GRPCStatus, grpcNames[*res.GRPCStatus])
	}
	return fmt.Sprintf("gRPC status %d", *res.GRPCStatus)
}

// grpcStatus is Envoy's Grpc::Utility::httpToGrpcStatus.
func grpcStatus(status int) uint32 {
	switch status {
	case http.StatusBadRequest:
		return 13
	case http.StatusUnauthorized:
		return 16
	case http.StatusForbidden:
		return 7
	case http.StatusNotFound:
		return 12
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return 14
	}
	return 2
}
