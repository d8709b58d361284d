package config

import (
	"fmt"
	"log/slog"
	"strings"
)

// LogLevel is the least level of the log lines that are written.
type LogLevel slog.Level

// UnmarshalText reads one of the four names.
func (l *LogLevel) UnmarshalText(text []byte) error {
	levels := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}
	v, ok := levels[strings.ToLower(string(text))]
	if !ok {
		return fmt.Errorf("use debug, info, warn or error, got %q", text)
	}
	*l = LogLevel(v)
	return nil
}

// Level lets a LogLevel stand where slog wants a Leveler.
func (l LogLevel) Level() slog.Level { return slog.Level(l) }

// LogFormat is the form of log lines.
type LogFormat string

// The log formats.
const (
	LogAuto LogFormat = "auto" // text on a terminal, JSON elsewhere
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// UnmarshalText reads one of the three.
func (f *LogFormat) UnmarshalText(text []byte) error {
	switch v := LogFormat(strings.ToLower(string(text))); v {
	case LogAuto, LogText, LogJSON:
		*f = v
		return nil
	}
	return fmt.Errorf("use auto, text or json, got %q", text)
}
