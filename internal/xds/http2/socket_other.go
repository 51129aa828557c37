//go:build !unix

package http2

import "errors"

const nonBlocking = false

func readOnce(uintptr, []byte) (n int, again bool, err error) { return 0, false, errors.ErrUnsupported }
func writeOnce(uintptr, []byte) (n int, again bool, err error) {
	return 0, false, errors.ErrUnsupported
}
