package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that ends at the first SIGTERM or SIGINT (or
// at the end of in). The second one calls abort. stop ends the goroutine that
// waits for signals; the one that reads stays until its read returns.
func untilSignal(log *slog.Logger, abort func(), in io.Reader, untilEOF bool) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	quit, ended := make(chan struct{}), make(chan struct{})
	eof := make(chan struct{})
	if untilEOF {
		go func() {
			// Whatever ends the reading means that the parent is gone.
			_, _ = io.Copy(io.Discard, in)
			close(eof)
		}()
	}
	go func() {
		defer close(ended)
		first := true
		for {
			why := "standard input has ended"
			select {
			case <-quit:
				return
			case sig := <-signals:
				why = sig.String()
			case <-eof:
				eof = nil
			}
			if first {
				log.Info("stopping: finishing what is in hand; a second signal ends it at once", "why", why)
				cancel()
			} else {
				log.Warn("stopping at once", "why", why)
				abort()
			}
			first = false
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(quit)
		<-ended
		cancel()
	}
}
