package meshtest

import "testing"

func TestCorpus(t *testing.T) { Run(t, "testdata") }
