package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
)

const versionAbout = `Prints the version, the revision it was built from and the Go release.
`

// build is which program this is.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Revision = s.Value + b.Revision
		case s.Key == "vcs.modified" && s.Value == "true":
			b.Revision += " (modified)"
		}
	}
	return b
}

func versionVerb(s std, args []string) int {
	fs := flag.NewFlagSet("version", flag.ContinueOnError)
	asJSON := fs.Bool("json", false, "print it as JSON")
	if code, done := parse(s, fs, args, versionAbout); done {
		return code
	}
	b := thisBuild()
	if *asJSON {
		return printJSON(s, b)
	}
	fmt.Fprintf(s.out, "claimq worker %s", b.Version)
	if b.Revision != "" {
		fmt.Fprintf(s.out, " %s", b.Revision)
	}
	fmt.Fprintf(s.out, " %s %s\n", b.Go, b.Platform)
	return exitOK
}

func printJSON(s std, v any) int {
	enc := json.NewEncoder(s.out)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		fmt.Fprintf(s.err, "worker: %v\n", err)
		return exitFailed
	}
	return exitOK
}
