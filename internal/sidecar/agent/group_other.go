//go:build !linux

package agent

import "errors"

// setEffectiveGroup fails: rules of interception exist on Linux only.
func setEffectiveGroup(int) error { return errors.ErrUnsupported }
