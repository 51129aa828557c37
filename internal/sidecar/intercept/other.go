//go:build !linux

package intercept

import "errors"

var errOther = errors.New("interception requires Linux")

func applyNFT(*Ruleset) error       { return errOther }
func nftThere() (bool, error)       { return false, errOther }
func setRouting(Family, bool) error { return errOther }
func setSource(bool) error          { return errOther }

// Within returns an error: network namespaces exist on Linux only.
func Within(string, func() error) error { return errOther }
