// Package floor has servers that compute nothing: the yardstick beside every
// measurement of a control plane.
//
// The floor is a server of delta xDS on stock grpc-go with its default options. It
// watches a directory as a control plane does, and sends what the files in it hold
// (encoded responses) to every stream, each encoded once. To a proxy that connects it
// plays back what the measured control plane sent at the same point. ACKs are read.
//
// The limit is less still: bytes over bare TCP, without HTTP/2, gRPC or messages.
package floor
