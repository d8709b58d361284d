// Package archtest holds the repository to its own rules: who may import whom,
// who may start a goroutine, name a Redis command, read the environment, keep
// state or end the process; how long files and functions may be; what a script
// must have checked before it acks.
//
// The rules are tests, and each violation is printed with the reason for the
// rule. A rule that is wrong for a case gets an exception with a reason beside
// it, and an exception that is not needed any more is a violation too.
//
// Each checker is itself shown to fail, on a source text with the fault in it.
package archtest
