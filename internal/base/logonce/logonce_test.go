package logonce_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/base/logonce"
)

func TestProblem(t *testing.T) {
	refused, timeout := errors.New("refused"), errors.New("timeout")
	var p logonce.Problem
	for i, test := range []struct {
		err          error
		began, ended bool
	}{
		{}, {err: refused, began: true}, {err: errors.New("refused")}, {err: timeout, began: true}, {ended: true}, {},
	} {
		began, ended := p.Note(test.err)
		require.Equal(t, test.began, began, "result %d", i)
		require.Equal(t, test.ended, ended, "result %d", i)
		want := ""
		if test.err != nil {
			want = test.err.Error()
		}
		require.Equal(t, want, p.Text(), "result %d", i)
	}
}

func TestErrors(t *testing.T) {
	refused, timeout, empty := errors.New("refused"), errors.New("timeout"), errors.New("")
	for _, test := range []struct {
		name       string
		results    []error
		isNew      []bool
		firstError []bool
	}{
		{"success", []error{nil, nil}, []bool{false, false}, []bool{false, false}},
		{"the same error again", []error{refused, refused, errors.New("refused")}, []bool{true, false, false}, []bool{true, false, false}},
		{"another error", []error{refused, timeout, refused}, []bool{true, true, true}, []bool{true, false, false}},
		{"the same error after a success", []error{refused, nil, refused}, []bool{true, false, true}, []bool{true, false, true}},
		{"errors without text", []error{empty, empty, nil, empty}, []bool{true, false, false, true}, []bool{true, false, false, true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var byText, bySuccess logonce.Errors
			for i, err := range test.results {
				require.Equal(t, test.isNew[i], byText.New(err), "result %d", i)
				require.Equal(t, test.firstError[i], bySuccess.First(err), "result %d", i)
			}
		})
	}
}
