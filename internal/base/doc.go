// Package base has what any program needs, whatever it does. It knows nothing of a mesh, and imports the standard library only.
//
//	clock      waits that end with a context
//	httpserve  HTTP servers that end with a context
//	logonce    which errors of a repeated attempt are logged
package base
