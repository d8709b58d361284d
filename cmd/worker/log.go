package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"github.com/redis/go-redis/v9"
	"golang.org/x/term"

	"github.com/claimq/claimq/internal/config"
)

// newLogger writes text on a terminal and JSON elsewhere, unless told which.
// No line ever holds a payload.
func newLogger(w io.Writer, c config.Log) *slog.Logger {
	tty := isTerminal(w)
	if c.Format == config.LogText || c.Format == config.LogAuto && tty {
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: c.Level, TimeFormat: time.TimeOnly, NoColor: !tty}))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: c.Level}))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// clientLog gives what the Redis client has to say to the log. It speaks of
// connections only.
type clientLog struct{ log *slog.Logger }

func (l clientLog) Printf(_ context.Context, format string, args ...any) {
	l.log.Debug("redis client", "text", fmt.Sprintf(format, args...))
}

// useClientLog replaces the client's own log, which is one for the process.
func useClientLog(log *slog.Logger) { redis.SetLogger(clientLog{log}) }
