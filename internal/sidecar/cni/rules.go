package cni

import (
	"context"

	"github.com/moonsail/moonsail/internal/sidecar/intercept"
)

// SetRules sets the rules for settings in a network namespace. IPv6 is intercepted if the Pod has such an address (intercept.NeedsIPv6).
func SetRules(ctx context.Context, netns string, settings intercept.Settings, addresses []string) (used intercept.Backend, err error) {
	rules, err := settings.Parse()
	if err != nil {
		return "", err
	}
	rules.Probe = true
	err = intercept.Within(netns, func() error {
		rules.IPv6 = intercept.NeedsIPv6(addresses)
		var err error
		used, err = intercept.Apply(ctx, rules, intercept.Auto)
		return err
	})
	return used, err
}

// RulesInForce reports whether a network namespace has rules of interception.
func RulesInForce(ctx context.Context, netns string) (there bool, err error) {
	err = intercept.Within(netns, func() error {
		var err error
		there, err = intercept.InForce(ctx)
		return err
	})
	return there, err
}
