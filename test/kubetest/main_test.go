package kubetest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/test/kubetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(kubetest.Main(m)) }
