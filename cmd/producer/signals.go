package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// signals returns two contexts: the first signal ends stop, after which the
// batch in progress is finished; the second ends abort too.
func signals(stderr io.Writer) (stop, abort context.Context, release func()) {
	stop, cancelStop := context.WithCancel(context.Background())
	abort, cancelAbort := context.WithCancel(context.Background())
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-c:
			case <-done:
				return
			}
			if stop.Err() != nil {
				cancelAbort()
				return
			}
			fmt.Fprintln(stderr, "stopping after the batch in progress; once more to stop at once")
			cancelStop()
		}
	}()
	return stop, abort, func() {
		signal.Stop(c)
		close(done)
		cancelStop()
		cancelAbort()
	}
}
