package kubetest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/test/kubetest"
	"github.com/moonsail/moonsail/test/netns"
)

func TestMain(m *testing.M) {
	netns.Isolate()
	goleak.VerifyTestMain(kubetest.Main(m))
}
