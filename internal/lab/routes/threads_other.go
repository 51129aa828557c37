//go:build !linux

package routes

import "github.com/moonsail/moonsail/internal/lab/child"

func readThreads(int) (threads, error) { return threads{}, child.ErrUnsupported }
