//go:build !linux

package install

import "errors"

func exchange(string, string) error { return errors.New("CNI plugins require Linux") }
