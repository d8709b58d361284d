package queue

import (
	"strings"

	"github.com/redis/go-redis/v9"
)

// scriptNames finds a script's name by its text and by its SHA1.
var scriptNames = namesOfScripts()

func namesOfScripts() map[string]string {
	files, err := luaFiles.ReadDir("lua")
	if err != nil {
		panic(err)
	}
	names := map[string]string{}
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ".lua"); ok {
			s := mustLoad(name)
			names[s.sha], names[s.text] = name, name
		}
	}
	return names
}

// OtherCommand is how CommandOf calls a command that this package does not
// make.
const OtherCommand = "other"

// Command is what metrics of a client need to know of one command.
type Command struct {
	// Name is a script of this package by its file ("enqueue"), a plain command
	// that this package makes in lower case, or OtherCommand: few, whatever goes
	// through a client.
	Name string
	// Waits is true of a read that may block: its time says nothing of the
	// server.
	Waits bool
	// Setup is true of what a client says by itself on a new connection. Some
	// of it fails with servers that do not know it, and nothing is wrong then.
	Setup bool
}

// CommandOf tells what a command is.
func CommandOf(cmd redis.Cmder) Command {
	switch name := cmd.Name(); name {
	case "evalsha", "eval":
		if args := cmd.Args(); len(args) > 1 {
			if text, ok := args[1].(string); ok && scriptNames[text] != "" {
				return Command{Name: scriptNames[text]}
			}
		}
	case "xreadgroup":
		return Command{Name: name, Waits: true}
	case "info", "xrange":
		return Command{Name: name}
	case "hello", "client", "auth", "select":
		return Command{Name: OtherCommand, Setup: true}
	}
	return Command{Name: OtherCommand}
}
