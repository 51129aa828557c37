// Package baseline has servers that compute nothing. Measurements of a control plane are compared with them.
//
// The baseline is a delta xDS server on stock grpc-go with default options. It watches a directory, as a control plane
// does, and sends the encoded responses in its files to every stream. Each is encoded once. To a connecting proxy it
// plays back the responses of the measured control plane. It reads ACKs.
//
// Bare TCP does less still: it sends bytes without HTTP/2, gRPC or messages.
package baseline
