package queue

// ScriptText is a script as it is sent, for faults that concern it alone.
func ScriptText(name string) string { return mustLoad(name).text }
