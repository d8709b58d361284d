package sim

import (
	"crypto/sha1"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// scripts are the queue's scripts as it sends them, by their hash.
type scripts struct {
	name map[string]string // by hash
	text map[string]string // by name
}

const scriptDir = "../../queue/lua"

// loadScripts puts the scripts together as package queue does. That it does so
// rightly is seen in each run: an unknown hash is a finding.
var loadScripts = sync.OnceValue(func() scripts {
	s := scripts{name: map[string]string{}, text: map[string]string{}}
	files, err := filepath.Glob(filepath.Join(scriptDir, "*.lua"))
	if err != nil || len(files) == 0 {
		panic("no scripts in " + scriptDir)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".lua")
		src := mustRead(file)
		var b strings.Builder
		for line := range strings.Lines(src) {
			b.WriteString(bare(line))
			names, ok := strings.CutPrefix(strings.TrimSpace(line), "-- @include ")
			if !ok {
				continue
			}
			for _, inc := range strings.Fields(names) {
				b.WriteString(bare(mustRead(filepath.Join(scriptDir, "include", inc+".lua"))))
			}
		}
		sum := sha1.Sum([]byte(b.String()))
		s.name[hex.EncodeToString(sum[:])] = name
		s.text[name] = b.String()
	}
	return s
})

func mustRead(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// bare drops the lines that are comments.
func bare(src string) string {
	var b strings.Builder
	for line := range strings.Lines(src) {
		if t := strings.TrimSpace(line); t != "" && !strings.HasPrefix(t, "--") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// of names a script call; text is what EVALSHA would run.
func (s scripts) of(cmd string, args []string) (name, text string) {
	switch {
	case len(args) == 0:
	case cmd == "EVALSHA":
		name = s.name[args[0]]
	case cmd == "EVAL":
		sum := sha1.Sum([]byte(args[0]))
		name = s.name[hex.EncodeToString(sum[:])]
	}
	return name, s.text[name]
}
