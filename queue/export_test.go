package queue

// ScriptText is a script as it is sent, for faults that concern it alone.
func ScriptText(name string) string { return mustLoad(name).text }

// Unkept judges a server's answer to the command that waits.
func Unkept(d Durability, reply any) error { return d.unkept(reply, nil) }
